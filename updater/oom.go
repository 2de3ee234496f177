package updater

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	vpainformers "loadline.dev/loadline/pkg/generated/informers/externalversions/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/shares"
)

// memoryIncreases collects VPAs whose memory recommendation rose, and VPAs that recommend more than
// a pod requests that was just killed, because an earlier kill may have raised the recommendation.
// It is safe for concurrent use.
type memoryIncreases struct {
	wake chan struct{}

	mu   sync.Mutex
	vpas map[cache.ObjectName]struct{}
}

func watchMemoryIncreases(vpas vpainformers.VerticalPodAutoscalerInformer, targets *target.Resolver, pods cache.SharedInformer) (*memoryIncreases, error) {
	r := &memoryIncreases{wake: make(chan struct{}, 1), vpas: map[cache.ObjectName]struct{}{}}
	_, err := vpas.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		previous, ok := before.(*vpav1.VerticalPodAutoscaler)
		if current, same := after.(*vpav1.VerticalPodAutoscaler); ok && same && previous.Status.Recommendation != current.Status.Recommendation && convert.RaisesMemory(&previous.Status, &current.Status) {
			r.add(cache.MetaObjectToName(current))
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch recommendations: %w", err)
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		current, ok := client.PodOf(after)
		if !ok || len(newlyKilled(&corev1.Pod{}, current)) == 0 {
			return // nearly all events
		}
		if previous, same := client.PodOf(before); same {
			r.addKilled(vpas.Informer().GetIndexer(), targets, current, newlyKilled(previous, current))
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watch kills: %w", err)
	}
	return r, nil
}

// addKilled adds the VPAs that target the workload of a pod and recommend more memory for a killed
// container than the pod requests. The iteration acts only for the one that controls the pod.
func (r *memoryIncreases) addKilled(vpas cache.Indexer, targets *target.Resolver, pod *corev1.Pod, killed []string) {
	owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !owned || len(killed) == 0 {
		return
	}
	top, known := targets.Top(owner)
	if !known {
		return // it is read in the background
	}
	found, err := target.VPAsOf(vpas, top)
	if err != nil {
		return
	}
	for _, vpa := range found {
		if recommendsMore(vpa, pod, killed) {
			r.add(cache.MetaObjectToName(vpa))
		}
	}
}

// newlyKilled returns the containers with an OOM kill that the old status does not show.
func newlyKilled(previous, current *corev1.Pod) (names []string) {
	lastKill := func(pod *corev1.Pod, name string) (at metav1.Time) {
		for i := range pod.Status.ContainerStatuses {
			s := &pod.Status.ContainerStatuses[i]
			if t := s.LastTerminationState.Terminated; s.Name == name && t != nil && t.Reason == convert.OOMKilled {
				at = t.FinishedAt
			}
		}
		return at
	}
	for i := range current.Status.ContainerStatuses {
		name := current.Status.ContainerStatuses[i].Name
		if at := lastKill(current, name); !at.IsZero() && !at.Equal(new(lastKill(previous, name))) {
			names = append(names, name)
		}
	}
	return names
}

// recommendsMore also compares limits if memory limits do not follow requests.
func recommendsMore(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, names []string) bool {
	if vpa.Status.Recommendation == nil {
		return false
	}
	separate := convert.HasSeparateMemoryLimit(&vpa.Status)
	recommended := convert.Recommendation(vpa.Status.Recommendation)
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		bounds, found := recommended[c.Name]
		if !found || !slices.Contains(names, c.Name) {
			return false
		}
		return int64(bounds.Target.Value(resources.Memory)) > c.Resources.Requests.Memory().Value() ||
			separate && int64(bounds.Upper.Value(resources.Memory)) > c.Resources.Limits.Memory().Value()
	})
}

// Wake returns a channel that receives when VPAs are pending. It buffers one signal.
func (r *memoryIncreases) Wake() <-chan struct{} { return r.wake }

func (r *memoryIncreases) Pending() []cache.ObjectName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sorted()
}

// Drain returns the VPAs collected since the last call, by namespace and name.
func (r *memoryIncreases) Drain() []cache.ObjectName {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.sorted()
	clear(r.vpas)
	return names
}

func (r *memoryIncreases) sorted() []cache.ObjectName {
	return slices.SortedFunc(maps.Keys(r.vpas), func(a, b cache.ObjectName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (r *memoryIncreases) add(name cache.ObjectName) {
	r.mu.Lock()
	r.vpas[name] = struct{}{}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // already signaled
	}
}

// RunEarly makes an early iteration for OOM kills, and repeats an iteration interrupted for it.
// serving.RunEvery calls it a second after memoryIncreases.Wake, at most every five seconds.
func (l *Loop) RunEarly(ctx context.Context, now time.Time, increased []cache.ObjectName) {
	l.RunOOM(ctx, now, increased)
	if l.interrupted {
		l.RunOnce(ctx, time.Now())
	}
}

// RunOOM resizes pods that ran out of memory to their new targets, whether they are ready again or
// not. Besides these resizes it writes only backoffs. It needs no admission controller because the
// pods stay.
func (l *Loop) RunOOM(ctx context.Context, now time.Time, increased []cache.ObjectName) {
	if !l.HasOOMKilled(ctx, increased, now) {
		return
	}
	it, err := l.read(ctx, now, func(string) {})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Skipping early iteration: failed to read the caches")
		return
	}
	l.decide(ctx, it, now)
	it.plan = it.plan.OnlyOOM() // disruption.Pod.IsOOMResize lists the checks that these resizes skip
	// The next iteration ends shares. Nil: no kill interrupts this run.
	l.run(ctx, it, &shares.Result{Moves: it.shares.Moves}, nil, now)
}

// HasPendingOOM reports whether an early iteration has a pod to resize.
func (l *Loop) HasPendingOOM(ctx context.Context) bool {
	return l.HasOOMKilled(ctx, l.memoryIncreases.Pending(), time.Now())
}

// recentOOMWindow is the time that a container that is ready again still counts as killed for
// HasOOMKilled. The next regular iteration resizes pods that were killed earlier.
const recentOOMWindow = 10 * time.Minute

// HasOOMKilled reports whether one of the VPAs may resize a pod with an OOM-killed container that
// is not ready or was killed within recentOOMWindow.
func (l *Loop) HasOOMKilled(ctx context.Context, vpas []cache.ObjectName, now time.Time) bool {
	resizing := map[string]map[string]bool{} // names of VPAs by namespace
	for _, name := range vpas {
		vpa := l.vpa(name)
		if vpa == nil || !l.reader.Namespaces.Includes(name.Namespace) {
			continue
		}
		if e := l.policies.Permitted(vpa); !e.Update.Resizes() || e.Skip != "" {
			continue
		}
		if resizing[name.Namespace] == nil {
			resizing[name.Namespace] = map[string]bool{}
		}
		resizing[name.Namespace][name.Name] = true
	}
	return slices.ContainsFunc(slices.Sorted(maps.Keys(resizing)), func(namespace string) bool {
		return l.reader.ControlsAny(ctx, namespace, resizing[namespace], func(pod *corev1.Pod) bool { return oomKilled(pod, now) })
	})
}

func oomKilled(p *corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		t := s.LastTerminationState.Terminated
		return t != nil && t.Reason == convert.OOMKilled && (!s.Ready || now.Sub(t.FinishedAt.Time) < recentOOMWindow)
	})
}
