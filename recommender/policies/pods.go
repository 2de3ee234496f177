package policies

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/status"
)

// near is by which part of it a request may differ from what is recommended and still count as
// that: recommendations move a little all the time, and the updater leaves pods alone for it.
const near = 0.1

// inUse is what the running pods of a workload request, against what is recommended.
type inUse struct {
	savings              rollout.Savings
	sized, differs       bool // some container has, or has not, what is recommended
	deferred, infeasible bool // the change of some pod waits for its node, or never gets there

	targets map[string]resources.List // by container; nil: not read yet
}

// survey goes over the running pods once. It returns what those of each workload request that
// has a recommendation, in the order of the workloads.
func (k *Keeper) survey(o *overview) ([]inUse, error) {
	all, index := make([]inUse, len(o.workloads)), map[target.Key]int{}
	for i := range o.workloads {
		w := &o.workloads[i]
		if vpa := w.vpa(); w.Policy != nil && k.mine(w.Policy) && vpa != nil && status.Provided(vpa) {
			index[w.Key] = i
		}
	}
	if len(index) == 0 {
		return all, nil
	}
	err := client.EachPod(k.Pods, func(pod *corev1.Pod) {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return
		}
		if i, found := k.workloadOf(pod, index); found {
			all[i].add(pod, &o.workloads[i])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list cached pods: %w", err)
	}
	return all, nil
}

// workloadOf returns the workload of a pod: its controller, or one above that.
func (k *Keeper) workloadOf(pod *corev1.Pod, index map[target.Key]int) (i int, found bool) {
	for owner := range k.Workloads.Above(pod) {
		if i, found = index[owner]; found {
			return i, true
		}
	}
	return 0, false
}

// add takes a pod of a workload.
func (u *inUse) add(pod *corev1.Pod, w *workload) {
	if u.targets == nil {
		u.targets = map[string]resources.List{}
		for name, bounds := range convert.Recommendation(w.vpa().Status.Recommendation) {
			u.targets[name] = bounds.Target
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if recommended := u.targets[c.Name]; !recommended.Empty() {
			u.compare(convert.UnboostedRequests(pod, c, w.vpa()), recommended)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			u.deferred = u.deferred || c.Reason == corev1.PodReasonDeferred
			u.infeasible = u.infeasible || c.Reason == corev1.PodReasonInfeasible
		}
	}
}

func (u *inUse) compare(requests, recommended resources.List) {
	u.savings = u.savings.Add(requests, recommended, 1)
	for k := range resources.Kind(resources.Kinds) {
		wanted, has := recommended.Get(k)
		if !has {
			continue
		}
		request := requests.Value(k)
		if least, most := wanted.Scale(1-near), wanted.Scale(1+near); least <= request && request <= most {
			u.sized = true
		} else {
			u.differs = true
		}
	}
}

// applied reports whether all pods have what is recommended, and there is one.
func (u *inUse) applied() bool { return u.sized && !u.differs }

// change returns how much of what the pods request would change, in percent: of CPU or of
// memory, whichever is more.
func (u *inUse) change() (most int) {
	for k := range resources.Kind(resources.Kinds) {
		changed := u.savings.Less.Value(k).Add(u.savings.More.Value(k))
		percent, _ := changed.Proportion(100, max(u.savings.Requested.Value(k), 1))
		most = max(most, int(percent))
	}
	return most
}
