package updater

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/updater/actuate"
)

type randomOwner struct {
	name    string
	objects func(replicas int, mode vpav1.UpdateMode) []runtime.Object
	never   bool // its pods must not be evicted: they do not come back, or not unchanged
}

func ownedPods(replicas int, mode vpav1.UpdateMode, target, owner metav1.OwnerReference, change func(*corev1.Pod)) []runtime.Object {
	vpa := autoscaler(mode)
	vpa.Spec.TargetRef.APIVersion, vpa.Spec.TargetRef.Kind = target.APIVersion, target.Kind
	objects := []runtime.Object{vpa}
	for _, o := range deployment(replicas, change) {
		if pod, is := o.(*corev1.Pod); is {
			pod.OwnerReferences = []metav1.OwnerReference{owner}
			if owner.Kind == "" {
				pod.OwnerReferences = nil
			}
			objects = append(objects, pod)
		}
	}
	return objects
}

func ownerOf(apiVersion, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "uid-web", Controller: new(true)}
}

func simpleOwner(apiVersion, kind string, workload func(replicas *int32) runtime.Object) func(int, vpav1.UpdateMode) []runtime.Object {
	return func(replicas int, mode vpav1.UpdateMode) []runtime.Object {
		ref := ownerOf(apiVersion, kind, "web")
		return append(ownedPods(replicas, mode, ref, ref, nil), workload(new(int32(replicas))))
	}
}

func randomOwners() []randomOwner {
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	ignoring := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}}}
	jobs := func(policy *batchv1.PodFailurePolicy, cron bool) func(int, vpav1.UpdateMode) []runtime.Object {
		return func(replicas int, mode vpav1.UpdateMode) []runtime.Object {
			ref := ownerOf("batch/v1", "Job", "web")
			run := job(policy)
			run.Spec.Parallelism = new(int32(replicas))
			if !cron {
				return append(ownedPods(replicas, mode, ref, ref, never), run)
			}
			target := ownerOf("batch/v1", "CronJob", "web")
			run.OwnerReferences = []metav1.OwnerReference{target}
			cronJob := &batchv1.CronJob{ObjectMeta: workloadMeta()}
			cronJob.Spec.JobTemplate.Spec.Template.Labels = map[string]string{"app": "web"}
			return append(ownedPods(replicas, mode, target, ref, never), run, cronJob)
		}
	}
	return []randomOwner{
		{name: "Deployment", objects: func(n int, mode vpav1.UpdateMode) []runtime.Object {
			return append(deployment(n, nil), autoscaler(mode))
		}},
		{name: "ReplicaSet", objects: simpleOwner("apps/v1", "ReplicaSet", func(n *int32) runtime.Object {
			return &appsv1.ReplicaSet{ObjectMeta: workloadMeta(), Spec: appsv1.ReplicaSetSpec{Selector: webSelector(), Replicas: n}}
		})},
		{name: "StatefulSet", objects: simpleOwner("apps/v1", "StatefulSet", func(n *int32) runtime.Object {
			return &appsv1.StatefulSet{ObjectMeta: workloadMeta(), Spec: appsv1.StatefulSetSpec{Selector: webSelector(), Replicas: n}}
		})},
		{name: "older revision", never: true, objects: func(n int, mode vpav1.UpdateMode) []runtime.Object {
			ref := ownerOf("apps/v1", "StatefulSet", "web")
			older := func(p *corev1.Pod) {
				p.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: "a"}
			}
			set := onDelete("a", "b")
			set.Spec.Replicas = new(int32(n))
			return append(ownedPods(n, mode, ref, ref, older), set)
		}},
		{name: "DaemonSet", objects: simpleOwner("apps/v1", "DaemonSet", func(n *int32) runtime.Object {
			return &appsv1.DaemonSet{ObjectMeta: workloadMeta(), Spec: appsv1.DaemonSetSpec{Selector: webSelector()},
				Status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: *n, CurrentNumberScheduled: *n, UpdatedNumberScheduled: *n}}
		})},
		{name: "ReplicationController", objects: simpleOwner("v1", "ReplicationController", func(n *int32) runtime.Object {
			return &corev1.ReplicationController{ObjectMeta: workloadMeta(), Spec: corev1.ReplicationControllerSpec{Selector: webSelector().MatchLabels, Replicas: n}}
		})},
		{name: "custom resource", objects: func(n int, mode vpav1.UpdateMode) []runtime.Object {
			ref := ownerOf("example.com/v1", "Fleet", "web")
			return ownedPods(n, mode, ref, ref, nil)
		}},
		{name: "Job", never: true, objects: jobs(nil, false)},
		{name: "Job that ignores disruptions", objects: jobs(ignoring, false)},
		{name: "CronJob", never: true, objects: jobs(nil, true)},
		{name: "bare pods", never: true, objects: func(n int, mode vpav1.UpdateMode) []runtime.Object {
			return ownedPods(n, mode, ownerOf("apps/v1", "ReplicaSet", "web"), metav1.OwnerReference{}, nil)
		}},
	}
}

// randomWorkload is a workload with random pods, PodDisruptionBudgets, a quota and an admission
// policy. The fields below mu are the actual state, which caches may lag behind.
type randomWorkload struct {
	*world
	random   *rand.Rand
	owner    randomOwner
	replicas int
	budgets  []*policyv1.PodDisruptionBudget
	memory   resource.Quantity // of all pods by a quota, zero: unbounded
	standby  *program          // another replica of the updater

	mu         sync.Mutex
	refused    int32 // status with which admission refuses large pods, 0: none
	protected  map[string]bool
	unready    map[string]bool // not ready, unknown to the caches
	leaving    map[string]bool // evicted pods
	away       []*corev1.Pod   // evicted and not replaced yet
	stale      error
	violations []string
	evicted    int
	created    int // replacements so far
}

func newRandomWorkload(t *testing.T, owner randomOwner, seed uint64) *randomWorkload {
	r := &randomWorkload{random: rand.New(rand.NewPCG(seed, 37)), owner: owner, protected: map[string]bool{}, unready: map[string]bool{}, leaving: map[string]bool{}}
	r.replicas = 1 + r.random.IntN(7)
	modes := []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate}
	objects := owner.objects(r.replicas, modes[r.random.IntN(len(modes))])
	restarts := r.random.IntN(3) == 0
	for _, o := range objects {
		pod, is := o.(*corev1.Pod)
		if !is {
			continue
		}
		if restarts {
			restartsForMemory(pod)
		}
		switch r.random.IntN(8) {
		case 0:
			pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			r.protected[pod.Name] = true
		case 1:
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
		}
	}
	for i := range max(0, r.random.IntN(4)-1) { // two over one pod refuse each eviction
		r.budgets = append(r.budgets, r.randomBudget(i))
		objects = append(objects, r.budgets[i])
	}
	if r.random.IntN(4) == 0 {
		r.memory = *resource.NewQuantity(int64(100+r.random.IntN(100))*int64(r.replicas)<<20, resource.BinarySI)
	}
	r.world = newWorld(t, Default(), objects...)
	r.fleets.Put("shop", "web", "uid-web", int32(r.replicas))
	r.react()
	return r
}

func (r *randomWorkload) randomBudget(i int) *policyv1.PodDisruptionBudget {
	amount := intstr.FromInt32(int32(r.random.IntN(r.replicas + 1)))
	if r.random.IntN(2) == 0 {
		amount = intstr.FromString(fmt.Sprintf("%d%%", r.random.IntN(101)))
	}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("budget-%d", i)}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: webSelector()}}
	if r.random.IntN(2) == 0 {
		b.Spec.MinAvailable = &amount
	} else {
		b.Spec.MaxUnavailable = &amount
	}
	return b
}

func (r *randomWorkload) needs(b *policyv1.PodDisruptionBudget) int {
	part := func(v *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(v, r.replicas, true)
		require.NoError(r.t, err)
		return n
	}
	if b.Spec.MinAvailable != nil {
		return part(b.Spec.MinAvailable)
	}
	return r.replicas - part(b.Spec.MaxUnavailable)
}

// react makes the API server follow the actual state.
func (r *randomWorkload) react() {
	r.kube.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return true, &corev1.PodList{Items: r.truth()}, nil
	})
	r.kube.PrependReactor("create", "pods/eviction", func(a ktesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return true, nil, r.evict(a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction))
	})
	r.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if a.GetSubresource() != "resize" {
			return false, nil, nil
		}
		if r.refused != 0 {
			return true, nil, denial(r.refused, "", "admission webhook \"size\" denied the request: too large")
		}
		name := a.(ktesting.PatchAction).GetName()
		for _, pod := range r.truth() {
			if pod.Name == name && len(pod.Spec.Containers[0].ResizePolicy) > 0 && isReady(&pod) {
				r.loses("restart", name)
			}
		}
		return false, nil, nil
	})
	r.admit = func(pod *corev1.Pod) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.admits(pod)
	}
}

func (r *randomWorkload) truth() (pods []corev1.Pod) {
	list, err := r.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "shop")
	require.NoError(r.t, err)
	for _, pod := range list.(*corev1.PodList).Items {
		pod = *pod.DeepCopy()
		if r.unready[pod.Name] || r.leaving[pod.Name] {
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		if r.leaving[pod.Name] {
			pod.DeletionTimestamp = &metav1.Time{Time: r.now}
		}
		pods = append(pods, pod)
	}
	return pods
}

func (r *randomWorkload) ready() (n int) {
	for _, pod := range r.truth() {
		if isReady(&pod) {
			n++
		}
	}
	return n
}

// loses records a violation if the disruption of a ready pod leaves too few.
func (r *randomWorkload) loses(how, name string) {
	left := r.ready() - 1
	if how == "eviction" {
		left = r.ready() // it is already marked
	}
	if least := r.replicas - r.replicas/2; left < least {
		r.violations = append(r.violations, fmt.Sprintf("%s of %s leaves %d ready pods of %d, fewer than %d", how, name, left, r.replicas, least))
	}
	for _, b := range r.budgets {
		if left < r.needs(b) {
			r.violations = append(r.violations, fmt.Sprintf("%s of %s leaves %d ready pods, %s demands %d", how, name, left, b.Name, r.needs(b)))
		}
	}
	if how == "restart" {
		r.unready[name] = true
	}
}

func (r *randomWorkload) evict(e *policyv1.Eviction) error {
	if len(r.budgets) > 1 {
		return apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
	}
	ready := r.ready()
	for _, pod := range r.truth() {
		if pod.Name != e.Name {
			continue
		}
		if isReady(&pod) {
			ready--
		}
		for _, b := range r.budgets {
			if ready < r.needs(b) {
				return apierrors.NewTooManyRequestsError("Cannot evict pod as it would violate the pod's disruption budget.")
			}
		}
		if e.DeleteOptions != nil && len(e.DeleteOptions.DryRun) > 0 {
			return nil
		}
		r.evicted++
		r.leaving[pod.Name] = true
		switch {
		case r.stale != nil:
			r.violations = append(r.violations, pod.Name+" was evicted on an old picture")
		case r.owner.never:
			r.violations = append(r.violations, pod.Name+" of a "+r.owner.name+" was evicted")
		case r.protected[pod.Name]:
			r.violations = append(r.violations, pod.Name+" was evicted although it is protected")
		}
		if isReady(&pod) {
			r.loses("eviction", pod.Name)
		}
		r.away = append(r.away, pod.DeepCopy())
	}
	return nil
}

func (r *randomWorkload) admits(pod *corev1.Pod) error {
	wants := pod.Spec.Containers[0].Resources.Requests.Memory()
	if r.refused != 0 && wants.Cmp(resource.MustParse("150Mi")) > 0 {
		return denial(r.refused, "", fmt.Sprintf("admission webhook %q denied the request: %s is too much memory", "size", wants))
	}
	if r.memory.IsZero() {
		return nil
	}
	var used resource.Quantity
	for _, other := range r.truth() {
		used.Add(*other.Spec.Containers[0].Resources.Requests.Memory())
	}
	sum := used.DeepCopy()
	sum.Add(*wants)
	if sum.Cmp(r.memory) > 0 {
		return apierrors.NewForbidden(podResource, pod.Name, fmt.Errorf("exceeded quota: team, requested: requests.memory=%s, used: requests.memory=%s, limited: requests.memory=%s",
			wants, used.String(), r.memory.String()))
	}
	return nil
}

func (r *randomWorkload) disturb() {
	switch r.random.IntN(6) {
	case 0: // restart of the process
		r.start(Default())
	case 1: // another replica with its own caches becomes leader
		current := r.program
		if r.standby == nil {
			r.start(Default())
		} else {
			r.program = r.standby
		}
		r.standby = current
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale, r.refused = nil, 0
	if r.random.IntN(6) == 0 {
		r.stale = errors.New("the watch of pods has received nothing for 4m0s")
	}
	if r.random.IntN(3) == 0 {
		r.refused = []int32{http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusForbidden, http.StatusInternalServerError}[r.random.IntN(4)]
	}
	clear(r.unready)
	for i := range r.replicas { // no watch shows these
		if r.random.IntN(6) == 0 {
			r.unready[fmt.Sprintf("web-1-%d", i)] = true
		}
	}
	stale := func() error { return r.stale }
	r.loop.stale, r.loop.runner.Executor.(*actuate.Cluster).Caches = stale, staleWhen(stale)
}

// iterate runs one iteration, deletes the evicted pods and creates some replacements.
func (r *randomWorkload) iterate(now time.Time) {
	r.disturb()
	r.runOnce(now)
	r.mu.Lock()
	gone := slices.Clone(r.away)
	r.mu.Unlock()
	pods := r.kube.CoreV1().Pods("shop")
	for _, pod := range gone {
		r.replaceable(pod)
		if r.leaving[pod.Name] {
			require.NoError(r.t, pods.Delete(r.t.Context(), pod.Name, metav1.DeleteOptions{}))
			delete(r.leaving, pod.Name)
			r.awaitAll(func(c *caches) bool {
				_, err := c.pods.Core().V1().Pods().Lister().Pods("shop").Get(pod.Name)
				return apierrors.IsNotFound(err)
			})
		}
	}
	require.Empty(r.t, r.violations, "%s at %s", r.owner.name, now)
	r.away = slices.DeleteFunc(r.away, func(pod *corev1.Pod) bool {
		if r.random.IntN(2) == 0 {
			return false
		}
		r.created++
		fresh := pod.DeepCopy()
		fresh.Name = fmt.Sprintf("new-%d", r.created)
		fresh.UID, fresh.ResourceVersion, fresh.CreationTimestamp, fresh.DeletionTimestamp = types.UID(fresh.Name), "", metav1.NewTime(now), nil
		fresh.Status.Conditions[0].Status = corev1.ConditionTrue
		fresh.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
		_, err := pods.Create(r.t.Context(), fresh, metav1.CreateOptions{})
		require.NoError(r.t, err)
		r.awaitAll(func(c *caches) bool {
			_, err := c.pods.Core().V1().Pods().Lister().Pods("shop").Get(fresh.Name)
			return err == nil
		})
		return true
	})
}

// replaceable records a violation if the API server refuses the replacement of a pod that was just
// evicted.
func (r *randomWorkload) replaceable(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leaving[pod.Name] {
		return
	}
	fresh := pod.DeepCopy()
	fresh.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
	others := r.memory.DeepCopy()
	if !r.memory.IsZero() {
		r.memory.Add(*pod.Spec.Containers[0].Resources.Requests.Memory()) // the evicted pod no longer counts
	}
	if err := r.admits(fresh); err != nil {
		r.violations = append(r.violations, fmt.Sprintf("the replacement of %s is refused: %v", pod.Name, err))
	}
	r.memory = others
}

func (r *randomWorkload) awaitAll(shown func(*caches) bool) {
	r.t.Helper()
	all := []*caches{r.caches}
	if r.standby != nil {
		all = append(all, r.standby.caches)
	}
	require.Eventually(r.t, func() bool { return !slices.ContainsFunc(all, func(c *caches) bool { return !shown(c) }) }, time.Minute, time.Millisecond)
}

// No workload has fewer ready pods than its tolerance and its PodDisruptionBudgets allow. Every
// evicted pod comes back unchanged, and its replacement is admitted.
func TestUpdater_KeepsWorkloadsReady(t *testing.T) {
	for number, owner := range randomOwners() {
		t.Run(owner.name, func(t *testing.T) {
			t.Parallel()
			evicted := 0
			for seed := range uint64(10) {
				r := newRandomWorkload(t, owner, uint64(number)<<32|seed)
				for minute := range 10 {
					r.iterate(noon.Add(time.Duration(minute) * 2 * time.Minute))
				}
				evicted += r.evicted
			}
			require.Equal(t, owner.never, evicted == 0, "%d evictions", evicted)
		})
	}
}
