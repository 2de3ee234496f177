//go:build !race

package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	vpascheme "loadline.dev/loadline/pkg/generated/clientset/versioned/scheme"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/internal/oldview"
)

// randomCluster is a cluster of drawn objects with a program on it. Objects are kept as they were written last.
type randomCluster struct {
	rt      *rapid.T
	ctx     context.Context
	kube    *fake.Clientset
	vpa     *vpafake.Clientset
	program *program
	stop    func()
	now     time.Time

	objects map[string]metav1.Object // by type, namespace and name
	profile profile                  // what happens more often than elsewhere
	sharing bool                     // policies let pods share more often than not
	dense   bool                     // nothing is in the way of sharing at first
	version int
	pods    int // so far
	load    []*load
	victim  cache.ObjectName             // the pod that was killed last
	held    map[target.Key]*oldview.Held // rollouts of the last iteration, by workload
}

// profile is what happens in a cluster more often than elsewhere: effects of several conditions at once.
type profile int

const (
	anyProfile profile = iota
	sharingProfile
	crowdedProfile  // pods are to leave their nodes
	killedProfile   // pods that share memory run out of it
	declaredProfile // memory limits do not follow requests
)

// load is a workload of a cluster.
type load struct {
	namespace, name  string
	kind, apiVersion string
	owner            metav1.OwnerReference // of its pods
	containers       []string
	init             bool
	revision         int
}

func (l *load) labels() map[string]string { return map[string]string{"app": l.name} }

func (l *load) group() string {
	group, _, found := strings.Cut(l.apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// dice for draws: rapid draws small numbers more often, which makes clusters too plain.
var dice = map[int]*rapid.Generator[int]{}

func init() {
	for sides := 1; sides <= 60; sides++ {
		var numbers []int
		for n := range sides {
			numbers = append(numbers, n)
		}
		dice[sides] = rapid.SampledFrom(numbers)
	}
}

// n draws a number below a limit of at most 60.
func (c *randomCluster) n(limit int) int      { return dice[limit].Draw(c.rt, "n") }
func (c *randomCluster) oneIn(limit int) bool { return c.n(limit) == limit-1 }
func draw[V any](c *randomCluster, of ...V) V { return of[c.n(len(of))] }

var (
	drawnCPU    = []string{"10m", "50m", "100m", "150m", "200m", "400m", "500m", "800m", "1", "1400m", "2500m"}
	drawnMemory = []string{"16Mi", "50Mi", "100Mi", "128Mi", "200Mi", "256Mi", "400Mi", "700Mi", "1Gi", "3Gi"}
)

func (c *randomCluster) cpu() resource.Quantity { return resource.MustParse(draw(c, drawnCPU...)) }
func (c *randomCluster) memory() resource.Quantity {
	return resource.MustParse(draw(c, drawnMemory...))
}

// newRandomCluster draws a cluster and starts a program on it.
func newRandomCluster(t *testing.T, rt *rapid.T) *randomCluster {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	c := &randomCluster{rt: rt, ctx: ctx, now: noon, objects: map[string]metav1.Object{}, held: map[target.Key]*oldview.Held{},
		kube: fake.NewSimpleClientset(), vpa: vpafake.NewSimpleClientset()} //nolint:staticcheck // the other one is too slow
	c.profile = draw(c, anyProfile, anyProfile, anyProfile, sharingProfile, sharingProfile, crowdedProfile, killedProfile, declaredProfile)
	c.dense = c.profile == sharingProfile || c.profile == crowdedProfile || c.profile == killedProfile
	c.sharing = c.dense || c.oneIn(2)
	config := c.config()
	for i := range 1 + c.n(3) {
		c.node(fmt.Sprintf("n%d", i+1))
	}
	for _, namespace := range []string{"shop", "pay"} {
		c.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"team": namespace}}})
		if c.oneIn(4) {
			c.limitRange(namespace)
		}
		if c.oneIn(5) {
			c.quota(namespace)
		}
		if c.oneIn(3) {
			c.budget(namespace)
		}
	}
	policies := draw(c, 0, 1, 1, 1, 2, 3)
	if c.dense {
		policies = 1
	}
	for i := range policies {
		c.policy(fmt.Sprintf("p%d", i))
	}
	for i := range 1 + c.n(6) {
		c.workload(i)
	}
	var err error
	c.program, err = programFor(ctx, config, sameClients(c.kube, c.vpa), overrides{scale: c.scale})
	c.stop = func() {
		cancel()
		c.program.boosts.Run(ctx)
		c.program.observer.Run(ctx)
		c.program.shutdown()
	}
	require.NoError(t, err)
	synctest.Wait()
	return c
}

// describe lists the objects that decide what happens to pods.
func (c *randomCluster) describe() string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		var spec any
		switch o := c.objects[key].(type) {
		case *loadlinev1alpha1.SizingPolicy:
			spec = o.Spec
		case *vpav1.VerticalPodAutoscaler:
			spec = []any{o.Labels, o.Annotations, o.Spec, o.Status}
		case *corev1.Pod:
			spec = []any{o.OwnerReferences[0].Name, o.Spec.NodeName, o.Annotations, o.Status.Conditions, o.CreationTimestamp, o.DeletionTimestamp}
		case *corev1.Node:
			spec = []any{o.Labels, o.Spec, o.Status}
		case *corev1.LimitRange:
			spec = o.Spec
		case *corev1.ResourceQuota:
			spec = []any{o.Spec, o.Status}
		case *appsv1.ReplicaSet:
			continue
		}
		text, _ := json.Marshal(spec)
		lines = append(lines, key+" "+string(text))
	}
	return strings.Join(lines, "\n")
}

// config draws the settings of the program.
func (c *randomCluster) config() *Config {
	config := Default()
	config.SharingMinAge, config.SharingInterval = draw(c, time.Minute, time.Minute, time.Hour), draw(c, 5*time.Minute, 5*time.Minute, time.Minute)
	config.Room = draw(c, roomAuto, roomAuto, roomFree, roomSize, roomOff)
	config.Disruption.CapToRoom = config.Room != roomOff && c.oneIn(3)
	config.Disruption.FreeResizes, config.Gates.InPlace, config.Gates.PerVPAConfig = c.oneIn(2), c.oneIn(2), c.oneIn(2)
	config.Disruption.MinReplicas, config.Disruption.Tolerance = draw(c, 1, 2), draw(c, 0.5, 0.5, 1, 0)
	config.Disruption.Lifetime = draw(c, 12*time.Hour, time.Minute)
	return config
}

// tracker returns where objects of a type are stored.
func (c *randomCluster) tracker(o runtime.Object) (ktesting.ObjectTracker, schema.GroupVersionResource) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	tracker := c.kube.Tracker()
	if err != nil {
		kinds, _, err = vpascheme.Scheme.ObjectKinds(o)
		tracker = c.vpa.Tracker()
	}
	if err != nil {
		panic(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	return tracker, resource
}

func keyOf(o metav1.Object) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }

// put writes an object with a new version.
func (c *randomCluster) put(o metav1.Object) {
	c.version++
	o.SetResourceVersion(fmt.Sprint(c.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", c.version)))
	}
	written := o.(runtime.Object).DeepCopyObject()
	tracker, resource := c.tracker(written)
	var err error
	if _, known := c.objects[keyOf(o)]; known {
		err = tracker.Update(resource, written, o.GetNamespace())
	} else {
		err = tracker.Create(resource, written, o.GetNamespace())
	}
	if err != nil {
		panic(err)
	}
	c.objects[keyOf(o)] = o
}

// remove deletes an object.
func (c *randomCluster) remove(o metav1.Object) {
	if _, known := c.objects[keyOf(o)]; !known {
		return
	}
	tracker, resource := c.tracker(o.(runtime.Object))
	if err := tracker.Delete(resource, o.GetNamespace(), o.GetName()); err != nil {
		panic(err)
	}
	delete(c.objects, keyOf(o))
}

// all returns the objects of a type, sorted.
func all[O metav1.Object](c *randomCluster) (of []O) {
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o, is := c.objects[key].(O); is {
			of = append(of, o)
		}
	}
	return of
}

// oneOf draws an object of a type. It is false if there is none.
func oneOf[O metav1.Object](c *randomCluster) (one O, some bool) {
	of := all[O](c)
	if len(of) == 0 {
		return one, false
	}
	return of[c.n(min(len(of), 60))], true
}

// scale is the scale subresource of custom workloads.
func (c *randomCluster) scale(_ context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
	return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec: autoscalingv1.ScaleSpec{Replicas: 3}, Status: autoscalingv1.ScaleStatus{Selector: "app=" + name, Replicas: 3}}, nil
}

func (c *randomCluster) node(name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if before, known := c.objects[keyOf(n)]; known {
		n.UID = before.GetUID()
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(draw(c, "1", "2", "4", "8", "16")),
		corev1.ResourceMemory: resource.MustParse(draw(c, "1Gi", "4Gi", "8Gi", "32Gi")),
	}
	n.Status.NodeInfo.KubeletVersion = "v1.33.2"
	if c.profile == killedProfile {
		n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse(draw(c, "500Mi", "1Gi", "4Gi"))
	}
	if c.profile == crowdedProfile {
		n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse(draw(c, "500m", "1", "2"))
	}
	ready, problem := corev1.ConditionTrue, c.n(20)
	if c.dense && !c.oneIn(4) {
		problem = -1
	}
	switch problem {
	case 0:
		n.Status.NodeInfo.KubeletVersion = "v1.31.0"
	case 1, 2:
		n.Spec.Unschedulable = true
	case 3:
		n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1")
	case 4, 5:
		n.Labels["cpumanager"] = "true"
	case 6:
		n.Labels["karpenter.sh/nodepool"] = "a"
	case 7:
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
	case 8:
		ready = corev1.ConditionFalse
	case 9:
		n.Status.Allocatable = nil
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: ready})
	c.put(n)
}

func (c *randomCluster) limitRange(namespace string) {
	item := corev1.LimitRangeItem{Type: draw(c, corev1.LimitTypeContainer, corev1.LimitTypeContainer, corev1.LimitTypePod)}
	if c.oneIn(2) {
		item.Max = corev1.ResourceList{corev1.ResourceCPU: c.cpu(), corev1.ResourceMemory: c.memory()}
	} else {
		item.Min = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(draw(c, "20m", "120m", "300m")), corev1.ResourceMemory: resource.MustParse(draw(c, "20Mi", "150Mi"))}
	}
	if c.oneIn(4) {
		item.MaxLimitRequestRatio = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2")}
	}
	c.put(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: draw(c, "a", "b")}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}})
}

func (c *randomCluster) quota(namespace string) {
	name := draw[corev1.ResourceName](c, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory, corev1.ResourceLimitsCPU)
	hard, used := "2500m", draw(c, "500m", "2200m", "2500m")
	if name == corev1.ResourceRequestsMemory || name == corev1.ResourceLimitsMemory {
		hard, used = "4Gi", draw(c, "1Gi", "3900Mi", "4Gi")
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"}, Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{name: resource.MustParse(hard)}, Used: corev1.ResourceList{name: resource.MustParse(used)}}}
	if c.oneIn(4) {
		q.Spec.Scopes = []corev1.ResourceQuotaScope{draw(c, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating)}
	}
	c.put(q)
}

func (c *randomCluster) budget(namespace string) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("w%d", c.n(6))}}
	if c.oneIn(3) {
		selector = &metav1.LabelSelector{}
	}
	c.put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: draw(c, "a", "b")},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: &intstr.IntOrString{IntVal: 1}}})
}

// policy writes a policy of that name.
func (c *randomCluster) policy(name string) {
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if before, known := c.objects[keyOf(p)]; known {
		p.UID, p.Generation = before.GetUID(), before.GetGeneration()+1
	}
	s := &p.Spec
	s.Namespaces.Names = draw(c, []string{"*"}, []string{"shop"}, []string{"shop", "pay"})
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		if !c.oneIn(8) {
			s.Workloads = append(s.Workloads, loadlinev1alpha1.WorkloadSelection{APIVersion: "apps/v1", Kind: kind})
		}
	}
	for i := range 6 {
		s.Workloads = append(s.Workloads, loadlinev1alpha1.WorkloadSelection{APIVersion: "example.com/v1", Kind: "Thing", Name: fmt.Sprintf("w%d", i)})
	}
	s.Priority = new(int32(draw(c, 100, 100, 200)))
	mode := draw(c, loadlinev1alpha1.RolloutModeAuto, loadlinev1alpha1.RolloutModeAuto, loadlinev1alpha1.RolloutModeAuto, loadlinev1alpha1.RolloutModeCanary,
		loadlinev1alpha1.RolloutModeCanary, loadlinev1alpha1.RolloutModeInherit, loadlinev1alpha1.RolloutModeOneShot, loadlinev1alpha1.RolloutModeRecommend, loadlinev1alpha1.RolloutModeObserve)
	r := &loadlinev1alpha1.Rollout{Mode: &mode}
	s.Rollout = r
	if mode == loadlinev1alpha1.RolloutModeCanary {
		r.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(draw(c, 10, 50))), AutoPromote: new(c.oneIn(2)), ObservationPeriod: &metav1.Duration{Duration: time.Minute}}
	}
	if c.oneIn(2) {
		r.Method = new(loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
	}
	r.Cooldown = &metav1.Duration{Duration: draw(c, 0, time.Minute, time.Hour)}
	r.MaxConcurrent = new(int32(draw(c, 0, 1, 2)))
	r.StartRate = new(int32(draw(c, 0, 1, 10)))
	if c.oneIn(6) {
		r.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: draw(c, "11:00", "13:00", "22:00"), End: draw(c, "12:30", "06:00", "20:00")}}}
	}
	if c.oneIn(4) {
		r.HPA = new(loadlinev1alpha1.HPAProceed)
	}
	if c.oneIn(5) {
		r.MinHistory = &metav1.Duration{Duration: 24 * time.Hour}
	}
	if c.oneIn(3) {
		s.Safety = &loadlinev1alpha1.Safety{AutoRevert: new(c.oneIn(2)), ObservationPeriod: &metav1.Duration{Duration: draw(c, time.Minute, 5*time.Minute)}, Restarts: new(int32(draw(c, 1, 3)))}
	}
	if c.oneIn(5) {
		s.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceCPU: c.cpu()}}}}
	}
	if c.sharing || c.oneIn(4) {
		s.Recipe = new(draw(c, "cruisekube", "cruisekube", "loadline:cpu=shared,memory=following"))
		s.Sharing = &loadlinev1alpha1.Sharing{Mode: new(draw(c, loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingDryRun, loadlinev1alpha1.SharingOff))}
		if c.oneIn(2) {
			s.Sharing.Resources = draw(c, []corev1.ResourceName{corev1.ResourceCPU}, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, []corev1.ResourceName{corev1.ResourceMemory})
		}
		if c.oneIn(2) {
			s.Sharing.Evict = new(true)
			if !c.oneIn(4) {
				r.Method = new(loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
			}
		}
		s.Sharing.CPULimit = draw(c, nil, new(loadlinev1alpha1.SharingCPULimitKeep), new(loadlinev1alpha1.SharingCPULimitRemove), new(loadlinev1alpha1.SharingCPULimitNodeAllocatable))
		if c.oneIn(3) {
			s.Sharing.NodeAutoscaler = new(loadlinev1alpha1.SharingNodeAutoscalerAccept)
		}
		if c.oneIn(4) {
			s.Sharing.UserVPAs = new(loadlinev1alpha1.SharingUserVPAsRestrict)
		}
	}
	if c.dense && !c.oneIn(4) {
		s.Namespaces.Names, r.Canary, s.Sharing.Mode = []string{"*"}, nil, new(loadlinev1alpha1.SharingOn)
		*r.Mode = loadlinev1alpha1.RolloutModeAuto
		if c.profile == crowdedProfile {
			s.Sharing.Evict, s.Sharing.Resources, r.Method = new(true), nil, new(loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
		}
		if c.profile == killedProfile {
			s.Sharing.Evict, r.Method = new(true), new(loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
			s.Sharing.Resources, s.Recipe = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, new("cruisekube")
		}
	}
	if c.oneIn(12) {
		s.Paused = new(true)
	}
	if c.oneIn(20) {
		s.Recipe = new("no such recipe")
	}
	c.put(p)
}

// workload draws a workload with its VPAs and pods.
func (c *randomCluster) workload(number int) {
	l := &load{namespace: draw(c, "shop", "shop", "pay"), name: fmt.Sprintf("w%d", number), containers: []string{"a", "b", "c"}[:draw(c, 1, 1, 2, 3)], init: c.oneIn(5)}
	l.kind = draw(c, "Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet", "Job", "Thing")
	if c.dense && !c.oneIn(4) {
		l.kind, l.init = "Deployment", false
	}
	l.apiVersion = map[string]string{"Job": "batch/v1", "Thing": "example.com/v1"}[l.kind]
	if l.apiVersion == "" {
		l.apiVersion = "apps/v1"
	}
	c.load = append(c.load, l)
	c.controller(l)
	for range c.n(7) {
		c.pod(l)
	}
	c.vpaOf(l)
	if c.oneIn(6) {
		c.vpaOf(l)
	}
	if c.oneIn(6) {
		c.hpaOf(l)
	}
}

// controller writes the controllers of a workload.
func (c *randomCluster) controller(l *load) {
	object := metav1.ObjectMeta{Namespace: l.namespace, Name: l.name, UID: types.UID("uid-" + l.name), Generation: 1, Labels: l.labels(),
		CreationTimestamp: metav1.NewTime(noon.Add(-draw(c, 30*24*time.Hour, 30*24*time.Hour, 10*time.Minute)))}
	switch c.n(40) {
	case 0:
		object.Annotations = map[string]string{fleet.SkipAnnotation: "true"}
	case 1:
		object.Annotations = map[string]string{fleet.ModeAnnotation: draw(c, "Auto", "Observe", "Inherit", "Canary")}
	}
	selector, replicas := &metav1.LabelSelector{MatchLabels: l.labels()}, int32(draw(c, 1, 2, 3, 3, 4, 6))
	rolling := c.oneIn(8)
	ready := replicas
	if rolling {
		ready--
	}
	reference := func(apiVersion, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}
	}
	l.owner = reference(l.apiVersion, l.kind, l.name)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l.labels()}}
	switch l.kind {
	case "Deployment":
		c.put(&appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{Selector: selector, Replicas: &replicas, Template: template},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: ready, AvailableReplicas: ready}})
		set := fmt.Sprintf("%s-%d", l.name, l.revision)
		c.put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: set, UID: types.UID("uid-" + set),
			OwnerReferences: []metav1.OwnerReference{reference("apps/v1", "Deployment", l.name)}}, Spec: appsv1.ReplicaSetSpec{Selector: selector, Replicas: &replicas}})
		l.owner = reference("apps/v1", "ReplicaSet", set)
	case "StatefulSet":
		c.put(&appsv1.StatefulSet{ObjectMeta: object, Spec: appsv1.StatefulSetSpec{Selector: selector, Replicas: &replicas, Template: template},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: ready, AvailableReplicas: ready, ReadyReplicas: ready, CurrentRevision: "1", UpdateRevision: "1"}})
	case "DaemonSet":
		c.put(&appsv1.DaemonSet{ObjectMeta: object, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
			Status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: replicas, CurrentNumberScheduled: replicas, UpdatedNumberScheduled: ready, NumberReady: ready, NumberAvailable: ready}})
	case "Job":
		c.put(&batchv1.Job{ObjectMeta: object, Spec: batchv1.JobSpec{Selector: selector, Parallelism: &replicas, Template: template}})
	}
}

// pod draws a pod of a workload.
func (c *randomCluster) pod(l *load) *corev1.Pod {
	c.pods++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: fmt.Sprintf("%s-%d", l.name, c.pods), UID: types.UID(fmt.Sprintf("pod-%d", c.pods)),
		Labels: l.labels(), Annotations: map[string]string{}, OwnerReferences: []metav1.OwnerReference{l.owner}, Generation: 1,
		CreationTimestamp: metav1.NewTime(c.now.Add(-draw(c, time.Second, 10*time.Minute, 24*time.Hour, 24*time.Hour)))}}
	p.Spec.NodeName = fmt.Sprintf("n%d", 1+c.n(3))
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &metav1.Time{Time: p.CreationTimestamp.Time}
	limited, guaranteed := c.oneIn(3), c.oneIn(12)
	if c.dense && !c.oneIn(6) || c.profile == declaredProfile {
		limited, guaranteed = c.profile == declaredProfile, false
		p.CreationTimestamp = metav1.NewTime(c.now.Add(-24 * time.Hour))
	}
	for _, name := range l.containers {
		requests := corev1.ResourceList{corev1.ResourceCPU: c.cpu(), corev1.ResourceMemory: c.memory()}
		one := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
		switch {
		case guaranteed:
			one.Resources.Limits = requests.DeepCopy()
		case limited || c.oneIn(6):
			memory := requests.Memory().DeepCopy()
			memory.Add(memory)
			one.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: memory}
			if c.oneIn(3) {
				cpu := requests.Cpu().DeepCopy()
				cpu.Add(cpu)
				one.Resources.Limits[corev1.ResourceCPU] = cpu
			}
		}
		if c.oneIn(12) {
			one.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: draw(c, corev1.ResourceCPU, corev1.ResourceMemory), RestartPolicy: corev1.RestartContainer}}
		}
		p.Spec.Containers = append(p.Spec.Containers, one)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: true, Resources: one.Resources.DeepCopy()})
	}
	if l.init {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m"), corev1.ResourceMemory: resource.MustParse("64Mi")}}}}
	}
	if l.kind == "Job" {
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	if l.kind == "Thing" {
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = fmt.Sprint(l.revision)
	}
	setReady(p, !c.oneIn(8), c.now)
	if !c.oneIn(6) {
		p.Annotations[convert.ObservedAnnotation] = convert.Observation(p)
		p.Annotations[convert.UpdatesAnnotation] = "x"
	}
	if c.profile == declaredProfile && c.oneIn(2) {
		c.declare(p, &p.Spec.Containers[0])
	}
	if c.sharing && c.oneIn(5) || c.dense && c.version%2 == 0 {
		p.Annotations[convert.SharedAnnotation] = draw(c, "cpu", "cpu,memory at "+noon.Add(-time.Hour).Format(time.RFC3339)+" after 0", "cpu at "+noon.Add(-10*time.Minute).Format(time.RFC3339)+" after 0", "garbage")
	}
	c.put(p)
	return p
}

func setReady(p *corev1.Pod, ready bool, now time.Time) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	setCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now)})
}

func setCondition(p *corev1.Pod, condition corev1.PodCondition) {
	p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type }), condition)
}

// settle ends the resize of a pod.
func settle(p *corev1.Pod) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].Resources = p.Spec.Containers[i].Resources.DeepCopy()
	}
}

// vpaOf draws a VPA of a workload, of a person or generated.
func (c *randomCluster) vpaOf(l *load) {
	v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: fmt.Sprintf("%s-%s", l.name, draw(c, "x", "y")), Generation: 1,
		CreationTimestamp: metav1.NewTime(noon.Add(-draw(c, 30*24*time.Hour, time.Hour)))}}
	mode := draw(c, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlace, vpav1.UpdateModeAuto, vpav1.UpdateModeInitial, vpav1.UpdateModeOff)
	if len(all[*loadlinev1alpha1.SizingPolicy](c)) > 0 && (!c.oneIn(3) || c.dense) {
		v.Name, v.Labels = fleet.MadeName(l.kind, l.group(), l.name), map[string]string{fleet.PolicyLabel: "p0"}
		mode = vpav1.UpdateModeOff
	}
	if _, known := c.objects[keyOf(v)]; known {
		return
	}
	v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: l.apiVersion, Kind: l.kind, Name: l.name}
	v.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: &mode}
	if c.oneIn(3) {
		v.Spec.UpdatePolicy.MinReplicas = new(int32(draw(c, 1, 2)))
	}
	if c.oneIn(10) {
		v.Spec.UpdatePolicy.EvictionRequirements = []*vpav1.EvictionRequirement{{Resources: []corev1.ResourceName{corev1.ResourceCPU}, ChangeRequirement: vpav1.TargetHigherThanRequests}}
	}
	if c.oneIn(8) {
		v.Spec.UpdatePolicy.EvictAfterOOMSeconds = new(int32(60))
	}
	if c.oneIn(3) {
		c.rules(v)
	}
	c.recommend(v, l)
	c.put(v)
}

// rules draws the resource policy of a VPA.
func (c *randomCluster) rules(v *vpav1.VerticalPodAutoscaler) {
	one := vpav1.ContainerResourcePolicy{ContainerName: draw(c, "*", "a", "b")}
	switch c.n(5) {
	case 0:
		one.MinAllowed = corev1.ResourceList{corev1.ResourceCPU: c.cpu()}
	case 1:
		one.MaxAllowed = corev1.ResourceList{corev1.ResourceMemory: c.memory()}
	case 2:
		one.Mode = new(vpav1.ContainerScalingModeOff)
	case 3:
		one.ControlledValues = new(vpav1.ContainerControlledValuesRequestsOnly)
	case 4:
		one.ControlledResources = &[]corev1.ResourceName{draw(c, corev1.ResourceCPU, corev1.ResourceMemory)}
	}
	v.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{one}}
}

// recommend draws what a VPA recommends.
func (c *randomCluster) recommend(v *vpav1.VerticalPodAutoscaler, l *load) {
	v.Status.ObservedGeneration = v.Generation
	v.Status.Conditions = nil
	if c.oneIn(4) || c.profile == declaredProfile {
		v.Status.Conditions = append(v.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Type: convert.SeparateMemoryLimit, Status: corev1.ConditionTrue})
	}
	if c.oneIn(12) && !c.dense {
		v.Status.Recommendation = nil
		return
	}
	v.Status.Recommendation = &vpav1.RecommendedPodResources{}
	for _, name := range l.containers {
		if c.oneIn(12) {
			continue
		}
		at, size := c.n(len(drawnCPU)-2), c.n(len(drawnMemory)-2)
		of := func(step int) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(drawnCPU[at+step]), corev1.ResourceMemory: resource.MustParse(drawnMemory[size+step])}
		}
		one := vpav1.RecommendedContainerResources{ContainerName: name, LowerBound: of(0), Target: of(1), UpperBound: of(2)}
		if c.oneIn(3) {
			one.LowerBound = of(1)
		}
		v.Status.Recommendation.ContainerRecommendations = append(v.Status.Recommendation.ContainerRecommendations, one)
	}
}

func (c *randomCluster) hpaOf(l *load) {
	c.put(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: l.apiVersion, Kind: l.kind, Name: l.name},
		Metrics:        []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: draw(c, corev1.ResourceCPU, corev1.ResourceMemory)}}},
	}})
}

func (c *randomCluster) loadOf(v *vpav1.VerticalPodAutoscaler) *load {
	for _, l := range c.load {
		if l.namespace == v.Namespace && l.name == v.Spec.TargetRef.Name {
			return l
		}
	}
	return c.load[0]
}

// change makes random changes, and lets time pass.
func (c *randomCluster) change() {
	if c.profile == crowdedProfile || c.profile == killedProfile {
		c.now = c.now.Add(draw(c, 10*time.Second, time.Minute, 5*time.Minute, 5*time.Minute, 20*time.Minute))
	} else {
		c.now = c.now.Add(draw(c, time.Second, 10*time.Second, time.Minute, time.Minute, time.Minute, 2*time.Minute, 5*time.Minute, 5*time.Minute, 11*time.Minute, time.Hour, 3*time.Hour, 13*time.Hour))
	}
	for range draw(c, 0, 1, 1, 2, 3, 4, 6) {
		if c.oneIn(2) || c.dense && !c.oneIn(4) {
			c.changePod()
		} else {
			c.changeOther()
		}
	}
	synctest.Wait()
}

// changeOther changes anything but an existing pod.
func (c *randomCluster) changeOther() {
	namespace := draw(c, "shop", "shop", "pay")
	switch c.n(22) {
	case 0, 1:
		c.pod(draw(c, c.load...))
	case 2, 3, 4, 5:
		if v, some := oneOf[*vpav1.VerticalPodAutoscaler](c); some {
			c.recommend(v, c.loadOf(v))
			c.put(v)
		}
	case 6, 7, 8:
		if v, some := oneOf[*vpav1.VerticalPodAutoscaler](c); some {
			c.changeVPA(v)
		}
	case 9:
		c.vpaOf(draw(c, c.load...))
	case 10, 11, 12:
		if p, some := oneOf[*loadlinev1alpha1.SizingPolicy](c); some {
			c.changePolicy(p)
		} else {
			c.policy("p0")
		}
	case 13, 14:
		c.node(fmt.Sprintf("n%d", 1+c.n(3)))
	case 15:
		if o, some := oneOf[*corev1.LimitRange](c); some && c.oneIn(2) {
			c.remove(o)
		} else {
			c.limitRange(namespace)
		}
	case 16:
		if o, some := oneOf[*corev1.ResourceQuota](c); some && c.oneIn(2) {
			c.remove(o)
		} else {
			c.quota(namespace)
		}
	case 17:
		c.budget(namespace)
	case 18:
		if o, some := oneOf[*autoscalingv2.HorizontalPodAutoscaler](c); some && c.oneIn(2) {
			c.remove(o)
		} else {
			c.hpaOf(draw(c, c.load...))
		}
	case 19:
		l := draw(c, c.load...)
		if l.revision++; l.kind != "Deployment" && l.kind != "Thing" || c.oneIn(2) {
			l.revision--
		}
		c.controller(l)
	case 20:
		status := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cluster-autoscaler-status"}}
		if _, known := c.objects[keyOf(status)]; known {
			c.remove(status)
		} else {
			c.put(status)
		}
	case 21:
		if o, some := oneOf[*corev1.Node](c); some && c.oneIn(3) {
			c.remove(o)
		} else {
			c.policy(fmt.Sprintf("p%d", c.n(3)))
		}
	}
}

func (c *randomCluster) changeVPA(v *vpav1.VerticalPodAutoscaler) {
	switch c.n(8) {
	case 0, 1:
		v.Generation++
		v.Spec.UpdatePolicy.UpdateMode = new(draw(c, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlace, vpav1.UpdateModeOff, vpav1.UpdateModeInitial))
	case 2:
		v.Generation++
		l := draw(c, c.load...)
		v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: l.apiVersion, Kind: l.kind, Name: l.name}
	case 3, 4:
		v.Generation++
		c.rules(v)
	case 5:
		c.remove(v)
		return
	case 6:
		if v.Annotations[vpav1.UnreadableAnnotation] == "" {
			v.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"}
		} else {
			v.Annotations = nil
		}
	case 7:
		v.Status.ObservedGeneration = v.Generation
	}
	c.put(v)
}

func (c *randomCluster) changePolicy(p *loadlinev1alpha1.SizingPolicy) {
	p.Generation++
	switch c.n(10) {
	case 0, 1, 2:
		c.policy(p.Name)
		return
	case 3:
		c.remove(p)
		return
	case 4:
		p.Spec.Paused = new(p.Spec.Paused == nil || !*p.Spec.Paused)
	case 5:
		p.Spec.Rollout.Mode = new(draw(c, loadlinev1alpha1.RolloutModeAuto, loadlinev1alpha1.RolloutModeCanary, loadlinev1alpha1.RolloutModeRecommend))
		p.Spec.Rollout.Canary = nil
		if *p.Spec.Rollout.Mode == loadlinev1alpha1.RolloutModeCanary {
			p.Spec.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(30))}
		}
	case 6, 7:
		if p.Spec.Sharing != nil {
			p.Spec.Sharing.Mode = new(draw(c, loadlinev1alpha1.SharingOn, loadlinev1alpha1.SharingDryRun, loadlinev1alpha1.SharingOff))
		}
	case 8:
		if p.Spec.Sharing != nil {
			p.Spec.Sharing.Resources = draw(c, []corev1.ResourceName{corev1.ResourceCPU}, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory})
		}
	case 9:
		p.Spec.Namespaces.Names = draw(c, []string{"*"}, []string{"pay"}, []string{"shop"})
	}
	c.put(p)
}

// changePod changes an existing pod.
func (c *randomCluster) changePod() {
	p, some := oneOf[*corev1.Pod](c)
	if !some {
		return
	}
	at := c.n(len(p.Spec.Containers))
	container, status := &p.Spec.Containers[at], &p.Status.ContainerStatuses[at]
	kind := c.n(30)
	if c.oneIn(2) {
		switch c.profile {
		case killedProfile:
			kind = 4
			if again := c.podOf(c.victim.Namespace, c.victim.Name); again != nil && c.oneIn(2) {
				p, at = again, 0
				container, status = &p.Spec.Containers[at], &p.Status.ContainerStatuses[at]
			}
			c.victim = cache.MetaObjectToName(p)
		case declaredProfile:
			kind = 19
		case sharingProfile:
			kind = draw(c, 0, 9, 22)
		}
	}
	switch kind {
	case 0:
		c.remove(p)
		return
	case 1:
		p.DeletionTimestamp = &metav1.Time{Time: c.now}
	case 2, 3:
		setReady(p, !slices.ContainsFunc(p.Status.Conditions, func(k corev1.PodCondition) bool { return k.Type == corev1.PodReady && k.Status == corev1.ConditionTrue }), c.now)
	case 4, 5, 6, 7:
		status.RestartCount++
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: convert.OOMKilled,
			StartedAt: metav1.NewTime(c.now.Add(-draw(c, time.Minute, time.Hour))), FinishedAt: metav1.NewTime(c.now.Add(-draw(c, time.Second, 20*time.Second, 4*time.Minute)))}
		setReady(p, c.oneIn(2), c.now)
	case 8:
		status.RestartCount += int32(draw(c, 1, 3))
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", StartedAt: metav1.NewTime(c.now.Add(-time.Minute)), FinishedAt: metav1.NewTime(c.now)}
	case 9, 10:
		container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: c.cpu(), corev1.ResourceMemory: c.memory()}
		container.Resources.Limits = nil
		p.Generation++
		if c.oneIn(2) {
			settle(p)
		}
	case 11, 12:
		settle(p)
	case 13, 14, 15:
		c.resizing(p)
	case 16:
		toggle(p, draw(c, "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"), draw(c, "false", "true"))
	case 17:
		toggle(p, convert.PauseAnnotation, fmt.Sprintf("%d until %s", 1+c.n(3), c.now.Add(draw(c, time.Minute, time.Hour)).Format(time.RFC3339)))
	case 18:
		toggle(p, convert.RestartAnnotation, c.now.Add(-time.Minute).Format(time.RFC3339)+" after 0")
	case 19, 20, 21:
		c.declare(p, container)
	case 22, 23:
		toggle(p, convert.SharedAnnotation, draw(c, "cpu", "memory", "cpu at "+c.now.Add(-draw(c, time.Minute, 2*time.Hour)).Format(time.RFC3339)+" after 0"+draw(c, "", "", " reverted")))
	case 24:
		key, value := convert.BoostAnnotation(*container)
		toggle(p, key, value)
	case 25:
		p.Annotations[convert.ObservedAnnotation] = draw(c, "a", "a, b", "", convert.Observation(p))
	case 26:
		p.Status.Phase = draw(c, corev1.PodPending, corev1.PodRunning)
	case 27, 28, 29:
		c.judge(p)
	}
	c.put(p)
}

// resizing draws the state of a resize of a pod.
func (c *randomCluster) resizing(p *corev1.Pod) {
	settle(p)
	pending := corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now.Add(-draw(c, time.Second, 10*time.Minute)))}
	switch c.n(6) {
	case 0:
		pending.Reason = corev1.PodReasonDeferred
	case 1:
		pending.Reason = corev1.PodReasonInfeasible
	case 2, 3:
		pending.Reason, pending.Message = corev1.PodReasonInfeasible, `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	case 4:
		pending.Type = corev1.PodResizeInProgress
	case 5:
		pending.Type, pending.Reason = corev1.PodResizeInProgress, corev1.PodReasonError
	}
	setCondition(p, pending)
}

func toggle(p *corev1.Pod, key, value string) {
	if _, has := p.Annotations[key]; has {
		delete(p.Annotations, key)
	} else {
		p.Annotations[key] = value
	}
}

// declare writes, loosens or removes the declared memory of a pod.
func (c *randomCluster) declare(p *corev1.Pod, container *corev1.Container) {
	if _, has := p.Annotations[convert.DeclaredAnnotation]; has && c.oneIn(2) {
		delete(p.Annotations, convert.DeclaredAnnotation)
		return
	}
	p.Annotations[convert.DeclaredAnnotation] = fmt.Sprintf(`{%q:{"requests":{"memory":"100Mi"},"limits":{"memory":%q}}}`, container.Name, draw(c, "120Mi", "150Mi", "200Mi", "400Mi"))
}

// judge ends the observation of a pod, or notes that its change did harm.
func (c *randomCluster) judge(p *corev1.Pod) {
	change, err := convert.NotedChange(p)
	if err != nil {
		toggle(p, convert.ResizedAtAnnotation, c.now.Add(-time.Minute).Format(time.RFC3339))
		p.Annotations[convert.OriginalAnnotation] = fmt.Sprintf(`{%q:{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{},"target":{"requests":{"cpu":"50m","memory":"50Mi"},"limits":{}},"restarts":0,"ready":true}}`, p.Spec.Containers[0].Name)
		return
	}
	outcome := draw(c, rollout.Success, rollout.Success, rollout.Reverted, rollout.Reverted, rollout.Failed, rollout.Unobserved, rollout.Superseded, "")
	if outcome == "" {
		change.Harm = rollout.OOMKill
		maps.Copy(p.Annotations, convert.ChangeNotes(change))
		return
	}
	ending := rollout.Ending{UID: string(p.UID), Change: change, Outcome: outcome}
	if outcome == rollout.Reverted {
		ending.Harm = rollout.OOMKill
		for _, one := range change.Containers {
			giveSizes(p, policy.ContainerTarget{Name: one.From.Name, Requests: one.From.Requests, Limits: one.From.Limits})
		}
		settle(p)
	}
	for _, key := range convert.NoteAnnotations {
		delete(p.Annotations, key)
	}
	for _, h := range c.held {
		if h.IsAbout(string(p.UID)) {
			c.store(h, func(s rollout.State) rollout.State {
				return s.End(ending, h.Settings, c.now.UTC().Truncate(time.Second))
			})
		}
	}
}

// store writes the record of a workload.
func (c *randomCluster) store(h *oldview.Held, change func(rollout.State) rollout.State) {
	if _, err := c.program.caches.records.Update(c.ctx, h.Workload, change); err != nil {
		c.rt.Fatalf("write a record: %v", err)
	}
}

// giveSizes resizes a container.
func giveSizes(p *corev1.Pod, f policy.ContainerTarget) {
	for i := range p.Spec.Containers {
		of := &p.Spec.Containers[i].Resources
		if p.Spec.Containers[i].Name != f.Name {
			continue
		}
		set := func(list *corev1.ResourceList, amounts resources.List) {
			for name, q := range (convert.Format{}).List(amounts) {
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				(*list)[name] = q
			}
		}
		set(&of.Requests, f.Requests)
		set(&of.Limits, f.Limits)
	}
}

// carryOut draws the results of the actions of an iteration, and carries out those that are done.
func (c *randomCluster) carryOut(was *oldSide, is side) {
	it := was.it
	stored := map[cache.ObjectName]bool{}
	c.held = map[target.Key]*oldview.Held{}
	for _, h := range it.Rollouts {
		c.held[h.Workload.Key] = h
	}
	for _, m := range it.Marks {
		if p := c.podOf(m.Of.Namespace, m.Of.Pod); p != nil && !c.oneIn(5) {
			p.Annotations[convert.SharedAnnotation] = convert.SharedText(m.Mark)
			c.put(p)
		}
	}
	for i := range it.Actions {
		a := &it.Actions[i]
		p := c.podOf(a.Namespace, a.Pod)
		r := draw(c, done, done, done, done, done, untried, untried, prevented, failed, tooMuch)
		if a.Evict && r != done {
			r = untried
		}
		if p == nil || r == untried {
			continue
		}
		name := cache.NewObjectName(a.Namespace, a.VPA)
		h := it.Rollouts[name]
		if a.Observed && !stored[name] && h.IsFree(a.UID) {
			c.store(h, func(rollout.State) rollout.State { return h.State })
			stored[name] = true
		}
		was.record(actionKey{a.UID, a.Cause.Shares() && !a.Evict}, p.Spec.NodeName, r, c.now)
		is.record(actionKey{a.UID, a.Cause.Shares() && !a.Evict}, p.Spec.NodeName, r, c.now)
		if r == done {
			c.do(a, p, h)
		}
	}
	for _, b := range it.Backoffs {
		if p := c.podOf(b.Namespace, b.Pod); p != nil {
			p.Annotations[convert.PauseAnnotation] = fmt.Sprintf("%d until %s", b.Fruitless, b.Until.UTC().Format(time.RFC3339))
			c.put(p)
		}
	}
	for _, of := range it.Ended {
		if p := c.podOf(of.Namespace, of.Pod); p != nil && !c.oneIn(4) {
			delete(p.Annotations, convert.SharedAnnotation)
			c.put(p)
		}
	}
	for name, h := range it.Rollouts {
		if h.Turned() && !stored[name] {
			c.store(h, func(rollout.State) rollout.State { return h.State })
			stored[name] = true
		}
	}
	was.end(c.ctx, stored)
	is.end(c.ctx, stored)
	synctest.Wait()
}

func (c *randomCluster) podOf(namespace, name string) *corev1.Pod {
	p, _ := c.objects[keyOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})].(*corev1.Pod)
	return p
}

// do carries out an action.
func (c *randomCluster) do(a *oldview.Planned, p *corev1.Pod, h *oldview.Held) {
	if a.Evict {
		c.evict(a, p, h)
		return
	}
	if a.Observed {
		note := noteOf(a, p, c.now)
		maps.Copy(p.Annotations, convert.ChangeNotes(note))
		c.store(h, func(s rollout.State) rollout.State { return s.Changed(note) })
	}
	if a.Mark != nil {
		p.Annotations[convert.SharedAnnotation] = convert.SharedText(*a.Mark)
	}
	if text, news := convert.DeclaredText(p.Annotations, a.Containers); news {
		p.Annotations[convert.DeclaredAnnotation] = text
	}
	for _, f := range a.Containers {
		giveSizes(p, f)
	}
	if a.Share != nil {
		for _, f := range a.Share.Containers {
			giveSizes(p, f)
		}
	}
	if !a.Restart.At.IsZero() {
		p.Annotations[convert.RestartAnnotation] = fmt.Sprintf("%s after %d", a.Restart.At.UTC().Format(time.RFC3339), a.Restart.Count)
	}
	p.Annotations[convert.ResizedAnnotation] = "true"
	delete(p.Annotations, convert.PauseAnnotation)
	p.Generation++
	switch c.n(6) {
	case 0:
		c.resizing(p)
	case 1: // the kubelet says nothing yet
	default:
		settle(p)
	}
	c.put(p)
}

// evict deletes a pod, and creates the next one with its new sizes, or without them.
func (c *randomCluster) evict(a *oldview.Planned, p *corev1.Pod, h *oldview.Held) {
	c.remove(p)
	if a.Observed {
		ending := rollout.Ending{UID: a.UID, Change: noteOf(a, p, c.now), Outcome: rollout.Evicted}
		c.store(h, func(s rollout.State) rollout.State { return s.End(ending, h.Settings, ending.Change.At) })
	}
	if c.oneIn(5) {
		return
	}
	next := p.DeepCopy()
	c.pods++
	next.Name, next.UID, next.Generation = fmt.Sprintf("%s-next-%d", p.Name[:strings.Index(p.Name, "-")], c.pods), types.UID(fmt.Sprintf("pod-%d", c.pods)), 1
	next.CreationTimestamp, next.Status.StartTime = metav1.NewTime(c.now), &metav1.Time{Time: c.now}
	next.Annotations = map[string]string{convert.ObservedAnnotation: convert.Observation(next), convert.UpdatesAnnotation: "x"}
	if !c.oneIn(4) {
		for _, f := range a.Containers {
			giveSizes(next, f)
		}
	}
	settle(next)
	for i := range next.Status.ContainerStatuses {
		next.Status.ContainerStatuses[i].RestartCount, next.Status.ContainerStatuses[i].LastTerminationState = 0, corev1.ContainerState{}
	}
	setReady(next, true, c.now)
	c.put(next)
}

// noteOf returns the note of a change.
func noteOf(a *oldview.Planned, p *corev1.Pod, now time.Time) rollout.Change {
	note := rollout.Change{At: now.UTC().Truncate(time.Second), Generation: p.Generation}
	note.Ready, _ = convert.Ready(p)
	for _, has := range convert.NewPod(p).Containers {
		for _, f := range a.Containers {
			if f.Name == has.Name {
				note.Containers = append(note.Containers, rollout.Sizing{From: has, To: policy.Container{Name: has.Name, Requests: f.Requests, Limits: f.Limits}})
			}
		}
	}
	if before, err := convert.NotedChange(p); err == nil {
		note = before.Renewed(note)
	}
	return note
}
