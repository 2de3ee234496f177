package recommend

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
)

// CPULimit returns the limit in millicores that is in force in a container of a
// pod, 0 if there is none; nil = there is no pod.
func CPULimit(pod *corev1.Pod, container string) resources.Amount {
	_, limits := sizes(pod, container)
	return limits.Value(resources.CPU)
}

func sizes(pod *corev1.Pod, container string) (requests, limits resources.List) {
	if pod == nil {
		return requests, limits
	}
	if c := containerOf(pod, container); c != nil {
		current := convert.Current(pod, *c)
		return convert.Resources(current.Requests), convert.Resources(current.Limits)
	}
	return requests, limits
}

// containerOf returns a container of a pod by name, nil if there is none.
func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

// Pods looks up in a cache what pods have now.
type Pods struct{ listers.PodLister }

// Limit returns the CPU limit in millicores that is in force in a container, 0 if there is
// none or the pod is gone.
func (p Pods) Limit(c usage.ContainerKey) resources.Amount {
	return CPULimit(p.pod(c), c.Container)
}

// Request returns the CPU request in millicores that is in force in a container, 0 if there is
// none or the pod is gone.
func (p Pods) Request(c usage.ContainerKey) resources.Amount {
	requests, _ := sizes(p.pod(c), c.Container)
	return requests.Value(resources.CPU)
}

// pod returns the pod of a container, nil if it is gone.
func (p Pods) pod(c usage.ContainerKey) *corev1.Pod {
	pod, err := p.Pods(c.Namespace).Get(c.Pod)
	if err != nil {
		return nil
	}
	return pod
}

// Started returns when a container began to run; the zero time if that is not known.
func (p Pods) Started(c usage.ContainerKey) time.Time {
	return client.StartOf(p.PodLister, c.Namespace, c.Pod, c.Container)
}

// Restarted reports whether a container of a pod has been restarted in it.
func (p Pods) Restarted(c usage.ContainerKey) bool {
	pod := p.pod(c)
	return pod != nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == c.Container && s.RestartCount > 0
	})
}

// running yields the running pods of a VPA with the container, by name. The container is nil in
// pods without it.
func (p Pods) running(v *model.VPA, container string) iter.Seq2[*corev1.Pod, *corev1.Container] {
	return func(yield func(*corev1.Pod, *corev1.Container) bool) {
		for _, name := range v.PodNames() {
			pod, err := p.Pods(v.Object.Namespace).Get(name)
			if err != nil || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			if !yield(pod, containerOf(pod, container)) {
				return
			}
		}
	}
}

// Requests returns the requests that are in force in the first pod by name that runs a
// container of a VPA and has some.
func (p Pods) Requests(v *model.VPA, container string) resources.List {
	for pod := range p.running(v, container) {
		if requests, _ := sizes(pod, container); !requests.Empty() {
			return requests
		}
	}
	return resources.List{}
}

// MemoryLimit returns the least memory limit in bytes of the pods that run a container of a
// VPA, 0 if none has one.
func (p Pods) MemoryLimit(v *model.VPA, container string) resources.Amount {
	least := resources.Amount(0)
	for pod := range p.running(v, container) {
		_, limits := sizes(pod, container)
		if limit := limits.Value(resources.Memory); limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// InForce returns for each kind the median request, without startup boosts, of the pods that run
// a container of a VPA, the lower one of two. One pod that was made by hand, or is the last one to change,
// does not decide for all. While none runs it is the target that was recommended last, which
// the next one gets.
func (p Pods) InForce(v *model.VPA, container string) resources.List {
	var values [resources.Kinds][]resources.Amount
	runs, sizing := false, v.Object
	if v.StatusOfOther() {
		sizing = nil
	}
	for pod, c := range p.running(v, container) {
		runs = true
		if c == nil {
			continue
		}
		requests := convert.UnboostedRequests(pod, c, sizing)
		cpu, has := requests.Get(resources.CPU)
		if asked, asks := convert.Resources(c.Resources.Requests).Get(resources.CPU); has && asks {
			// At the end of a boost the annotation is removed before the kubelet has lowered the CPU.
			requests = requests.With(resources.CPU, min(cpu, asked))
		}
		for k := range resources.Kind(resources.Kinds) {
			if request, has := requests.Get(k); has {
				values[k] = append(values[k], request)
			}
		}
	}
	var current resources.List
	for k := range resources.Kind(resources.Kinds) {
		if n := len(values[k]); n > 0 {
			slices.Sort(values[k])
			current = current.With(k, values[k][(n-1)/2])
		} else if t := v.Sketches[container]; !runs && t != nil {
			if target, _, known := t.Target(k); known {
				current = current.With(k, target)
			}
		}
	}
	return current
}
