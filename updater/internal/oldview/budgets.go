package oldview

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/serving"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// unknownBudgets is the budget of all pods of a namespace while its PodDisruptionBudgets are unknown.
const unknownBudgets = "*"

// Budgets lists the PodDisruptionBudgets that select a pod.
type Budgets struct {
	Pods    corelisters.PodLister
	Budgets policylisters.PodDisruptionBudgetLister
	Synced  cache.InformerSynced

	parsed map[string]*namespaceBudgets // by namespace
}

// of returns the budgets of a namespace, nil if they are unknown.
func (b *Budgets) of(namespace string, now time.Time) *namespaceBudgets {
	if !b.Synced() {
		return nil
	}
	objects, err := b.Budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	slices.SortFunc(objects, func(x, y *policyv1.PodDisruptionBudget) int { return strings.Compare(x.Name, y.Name) })
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

// Mark adds the budgets of pods to a view, in the namespaces of planned disruptions, and other pods there that may be
// restarting.
func (b *Budgets) Mark(v *disruption.View, plan []disruption.Action, now time.Time) {
	namespaces := map[string]bool{}
	for i := range plan {
		if a := &plan[i]; a.Evict || a.MayEvict || a.Restarts {
			namespaces[a.Namespace] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		budgets := b.of(namespace, now)
		// A lister fails only without its index.
		pods, _ := b.Pods.Pods(namespace).List(labels.Everything())
		unplanned := make(map[string]*corev1.Pod, len(pods))
		for _, pod := range pods {
			unplanned[string(pod.UID)] = pod
		}
		for i := range v.VPAs {
			for j := range v.VPAs[i].Pods {
				p := &v.VPAs[i].Pods[j]
				if pod := unplanned[p.UID]; pod != nil && p.Namespace == namespace {
					p.Budgets = budgets.selecting(pod)
					delete(unplanned, p.UID)
				}
			}
		}
		for _, pod := range unplanned {
			_ = serving.Guard(func() error { // a panic must not stop the others
				if core, is := restartable(pod); is {
					core.Budgets = budgets.selecting(pod)
					v.Others = append(v.Others, core)
				}
				return nil
			})
		}
	}
}

// restartable converts a pod that a resize can restart, or has restarted. It returns false for other pods.
func restartable(pod *corev1.Pod) (core disruption.Pod, is bool) {
	_, marked := pod.Annotations[convert.RestartAnnotation]
	is = pod.DeletionTimestamp == nil && (marked || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
	}))
	if is {
		core = runningPod(pod, nil, convert.Rules(&vpav1.VerticalPodAutoscaler{}), policy.Ranges{})
	}
	return core, is
}
