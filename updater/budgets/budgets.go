// Package budgets ensures that resizes restart the pods of a PodDisruptionBudget one after the
// other.
package budgets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
)

// UnknownBudgets is the budget of all pods of a namespace while its PodDisruptionBudgets are
// unknown. No PodDisruptionBudget can have this name.
const UnknownBudgets = "*"

// cacheDelay is the maximum time until caches show a restart.
const cacheDelay = 30 * time.Second

// Budgets lists the PodDisruptionBudgets that select a pod, and restarts the pods of one budget or
// owner one after the other. It is safe for concurrent use. The API server decides whether a budget
// allows a disruption. Reserve runs minutes after a plan or without one, so it checks the current
// pods and the last changes that no cache has yet.
type Budgets struct {
	pods    corelisters.PodLister
	budgets policylisters.PodDisruptionBudgetLister
	synced  cache.InformerSynced // never true without permission

	mu        sync.Mutex
	parsed    map[string]*namespaceBudgets // by namespace
	recent    map[string]reservation       // by shared budget or owner
	state     disruption.PodStates         // restarts of the last plan and later checks
	checkedAt map[string]time.Time         // time of that state by pod UID
}

// New returns Budgets that read the caches of pods and PodDisruptionBudgets.
func New(pods corelisters.PodLister, budgets policyinformers.PodDisruptionBudgetInformer) *Budgets {
	return &Budgets{pods: pods, budgets: budgets.Lister(), synced: budgets.Informer().HasSynced}
}

type reservation struct {
	pod types.UID
	at  time.Time
}

func (b *Budgets) inNamespace(namespace string, now time.Time) *namespaceBudgets {
	if !b.synced() {
		return nil
	}
	objects, err := b.budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	slices.SortFunc(objects, func(x, y *policyv1.PodDisruptionBudget) int { return strings.Compare(x.Name, y.Name) })
	b.mu.Lock()
	defer b.mu.Unlock()
	parsed := b.parsed[namespace]
	if parsed == nil || !slices.Equal(objects, parsed.objects) {
		parsed = parseBudgets(namespace, objects, parsed)
	}
	if b.parsed == nil {
		b.parsed = map[string]*namespaceBudgets{}
	}
	parsed.used = now
	b.parsed[namespace] = parsed
	return parsed
}

// Oversized returns an error if a budget in the namespace of a pod is too large to evaluate.
func (b *Budgets) Oversized(pod *corev1.Pod, now time.Time) error {
	budgets := b.inNamespace(pod.Namespace, now)
	if budgets == nil {
		return nil
	}
	for i := range budgets.budgets {
		if one := &budgets.budgets[i]; one.oversized {
			return fmt.Errorf("evaluate the selector of PodDisruptionBudget %s/%s: %w", pod.Namespace, one.name, client.ErrSelectorTooLarge)
		}
	}
	return nil
}

// AddBudgets adds budgets, and other pods that may be restarting, in namespaces of planned disruptions.
func (b *Budgets) AddBudgets(v *disruption.View, plan []disruption.Action, now time.Time) {
	namespaces := map[string]bool{}
	for i := range plan {
		if a := &plan[i]; a.Evict || a.MayEvict || a.Restarts {
			namespaces[a.Namespace] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		budgets := b.inNamespace(namespace, now)
		// A lister fails only without its index.
		pods, _ := b.pods.Pods(namespace).List(labels.Everything())
		unplanned := make(map[string]*corev1.Pod, len(pods))
		for _, pod := range pods {
			unplanned[string(pod.UID)] = pod
		}
		for i := range v.VPAs {
			if v.VPAs[i].Held != "" {
				continue // a plan restarts none of its pods
			}
			for j := range v.VPAs[i].Pods {
				p := &v.VPAs[i].Pods[j]
				if pod := unplanned[p.UID]; pod != nil && p.Namespace == namespace {
					p.Budgets = budgets.namesFor(pod)
					delete(unplanned, p.UID)
				}
			}
		}
		for _, pod := range unplanned {
			_ = serving.Guard(func() error { // a panic must not stop the others
				if core, is := restartable(pod); is {
					core.Budgets = budgets.namesFor(pod)
					v.Others = append(v.Others, core)
				}
				return nil
			})
		}
	}
}

// RecordPlan stores the restarts of a plan.
func (b *Budgets) RecordPlan(s disruption.State, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if b.state.Restarts == nil {
		b.state.Restarts, b.checkedAt = map[string]disruption.RestartState{}, map[string]time.Time{}
	}
	for uid, restart := range s.Recommended.Restarts {
		b.state.Restarts[uid], b.checkedAt[uid] = restart, now
	}
}

// forget drops restarts without a recent check. They may be about another restart.
func (b *Budgets) forget(now time.Time) {
	maps.DeleteFunc(b.state.Restarts, func(uid string, _ disruption.RestartState) bool {
		return now.Sub(b.checkedAt[uid]) >= disruption.RestartGrace
	})
	maps.DeleteFunc(b.checkedAt, func(uid string, _ time.Time) bool { _, kept := b.state.Restarts[uid]; return !kept })
	maps.DeleteFunc(b.parsed, func(_ string, p *namespaceBudgets) bool { return now.Sub(p.used) >= disruption.RestartGrace })
}

// Reserve returns an error if a pod with the same budget is being restarted, and for a restart also
// if a pod of the same owner is. Otherwise a restart is reserved until the caches show it. The
// caller calls release if it fails.
func (b *Budgets) Reserve(pod *corev1.Pod, restarts bool, now time.Time) (release func(), err error) {
	budgets := b.inNamespace(pod.Namespace, now)
	keys := keysOf(budgets, pod, restarts)
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.recent, func(_ string, h reservation) bool { return now.Sub(h.at) >= cacheDelay })
	for _, key := range keys {
		if h, held := b.recent[key]; held && h.pod != pod.UID {
			return nil, fmt.Errorf("another restart was requested recently in %s", key)
		}
	}
	if !restarts {
		return func() {}, nil
	}
	if err := b.checkRestarting(pod, keys, budgets, now); err != nil {
		return nil, err
	}
	if b.recent == nil {
		b.recent = map[string]reservation{}
	}
	for _, key := range keys {
		b.recent[key] = reservation{pod.UID, now}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		maps.DeleteFunc(b.recent, func(_ string, h reservation) bool { return h.pod == pod.UID })
	}, nil
}

func keysOf(budgets *namespaceBudgets, pod *corev1.Pod, withOwner bool) (keys []string) {
	for _, name := range budgets.namesFor(pod) {
		keys = append(keys, "PodDisruptionBudget "+pod.Namespace+"/"+name)
	}
	if ref := metav1.GetControllerOfNoCopy(pod); withOwner && ref != nil {
		keys = append(keys, ref.Kind+" "+pod.Namespace+"/"+ref.Name)
	}
	return keys
}

func (b *Budgets) checkRestarting(pod *corev1.Pod, keys []string, budgets *namespaceBudgets, now time.Time) error {
	all, err := b.pods.Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list the pods of namespace %s: %w", pod.Namespace, err)
	}
	b.forget(now)
	var holders disruption.RestartHolders
	names := map[string]string{}
	for _, other := range all {
		core, is := restartable(other)
		if !is {
			continue
		}
		one, holds := b.state.FollowRestart(&core, now)
		if _, follows := b.state.Restarts[one.UID]; follows {
			if b.checkedAt == nil {
				b.checkedAt = map[string]time.Time{}
			}
			b.checkedAt[one.UID] = now
		}
		if holds {
			names[one.UID] = other.Name
			holders.Add(one, keysOf(budgets, other, true)...)
		}
	}
	if blocker, key, blocked := holders.Blocker(string(pod.UID), keys...); blocked {
		return fmt.Errorf("pod %s of %s is being restarted", names[blocker.UID], key)
	}
	return nil
}

// restartable converts a pod that a resize can restart, or has restarted.
func restartable(pod *corev1.Pod) (core disruption.Pod, ok bool) {
	_, marked := pod.Annotations[convert.RestartAnnotation]
	ok = pod.DeletionTimestamp == nil && (marked || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
	}))
	if ok {
		core = convert.RunningPod(pod, nil, convert.Rules(&vpav1.VerticalPodAutoscaler{}), policy.Ranges{})
	}
	return core, ok
}

// Trim is a cache.TransformFunc that keeps only the selector of a budget.
func Trim(object any) (any, error) {
	if o, ok := object.(*policyv1.PodDisruptionBudget); ok {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: client.BoundSelector(o.Spec.Selector)}}, nil
	}
	return object, nil
}

// Limits of the work for the budgets of a namespace. Beyond maxBudgetRequirements or
// maxNamespaceRequirements, the pods of the namespace share one budget.
const (
	// maxBudgetRequirements bounds the requirements of the budgets with the same labelPair, and of
	// budgets without one, which are matched against every pod.
	maxBudgetRequirements = 2000
	// maxNamespaceRequirements allows budgets for 5,000 workloads with two labels each.
	maxNamespaceRequirements = 20000
	// maxPodBudgets is the maximum number of budgets of a pod, the first ones by name. The API
	// server evicts no pod with more than one.
	maxPodBudgets = 100
)

// labelPair is a label that a selector requires with one value.
type labelPair struct{ key, value string }

type budget struct {
	name         string
	selector     labels.Selector
	pairs        []labelPair
	requirements int
	oversized    bool // selector not evaluated, selects every pod
}

func parseBudget(o *policyv1.PodDisruptionBudget) budget {
	selector, err := client.Selector(o.Spec.Selector)
	if err != nil { // too large: the API server refuses all other errors
		selector = labels.Everything()
	}
	requirements, _ := selector.Requirements()
	b := budget{name: o.Name, selector: selector, requirements: 1 + len(requirements), oversized: errors.Is(err, client.ErrSelectorTooLarge)}
	for i := range requirements {
		switch r := &requirements[i]; r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				b.pairs = append(b.pairs, labelPair{r.Key(), values[0]})
			}
		}
	}
	return b
}

// namespaceBudgets are the parsed budgets of a namespace. Each budget is in one group, so that a
// pod is only matched against the groups of its labels and the group of the zero pair.
type namespaceBudgets struct {
	objects []*policyv1.PodDisruptionBudget // sorted by name
	budgets []budget                        // of objects
	groups  map[labelPair]*budgetGroup
	tooMany bool // a limit of requirements is exceeded
	used    time.Time
}

type budgetGroup struct {
	budgets      []int // positions in namespaceBudgets.budgets
	requirements int
}

// parseBudgets parses the budgets that have changed and groups all of them. before may be nil.
func parseBudgets(namespace string, objects []*policyv1.PodDisruptionBudget, before *namespaceBudgets) *namespaceBudgets {
	known := map[*policyv1.PodDisruptionBudget]budget{}
	if before != nil {
		for i, o := range before.objects {
			known[o] = before.budgets[i]
		}
	}
	parsed := &namespaceBudgets{objects: objects, budgets: make([]budget, len(objects)), groups: map[labelPair]*budgetGroup{}}
	total, users := 0, map[labelPair]int{}
	for i, o := range objects {
		b, unchanged := known[o]
		if !unchanged {
			b = parseBudget(o)
		}
		parsed.budgets[i] = b
		total += b.requirements
		for _, pair := range b.pairs {
			users[pair]++
		}
	}
	parsed.tooMany = total > maxNamespaceRequirements
	for i := range parsed.budgets {
		b, rarest := &parsed.budgets[i], labelPair{}
		for _, pair := range b.pairs {
			if rarest == (labelPair{}) || users[pair] < users[rarest] {
				rarest = pair
			}
		}
		g := parsed.groups[rarest]
		if g == nil {
			g = &budgetGroup{}
			parsed.groups[rarest] = g
		}
		g.budgets = append(g.budgets, i)
		g.requirements += b.requirements
		parsed.tooMany = parsed.tooMany || g.requirements > maxBudgetRequirements
	}
	if parsed.tooMany && (before == nil || !before.tooMany) {
		klog.Background().Info("Too many PodDisruptionBudgets, restarting the pods of the namespace one after the other",
			"namespace", namespace, "podDisruptionBudgets", len(objects))
	}
	return parsed
}

// namesFor returns the sorted budgets of a pod, which are all if the cache dropped its labels.
func (n *namespaceBudgets) namesFor(pod *corev1.Pod) (names []string) {
	if n == nil || n.tooMany {
		return []string{UnknownBudgets}
	}
	if client.Dropped(pod.Labels) {
		for i := range n.budgets[:min(len(n.budgets), maxPodBudgets)] {
			names = append(names, n.budgets[i].name)
		}
		return names
	}
	var selecting []int
	match := func(pair labelPair) {
		if g := n.groups[pair]; g != nil {
			for _, i := range g.budgets {
				if n.budgets[i].selector.Matches(labels.Set(pod.Labels)) {
					selecting = append(selecting, i)
				}
			}
		}
	}
	match(labelPair{})
	for key, value := range pod.Labels {
		match(labelPair{key, value})
	}
	slices.Sort(selecting)
	for _, i := range selecting[:min(len(selecting), maxPodBudgets)] {
		names = append(names, n.budgets[i].name)
	}
	return names
}
