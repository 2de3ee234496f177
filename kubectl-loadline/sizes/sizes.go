// Package sizes shows and writes recommended sizes: recommend, diff, savings, export and create.
package sizes

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

// containerSize is the request of a container of a workload, and its recommendation.
type containerSize struct {
	Namespace string              `json:"namespace"`
	Workload  string              `json:"workload"`
	VPA       string              `json:"vpa,omitempty"`
	Container string              `json:"container"`
	Pods      int                 `json:"pods"`
	Requests  corev1.ResourceList `json:"requests,omitempty"` // highest of any pod
	Limits    corev1.ResourceList `json:"limits,omitempty"`
	Target    corev1.ResourceList `json:"target,omitempty"`
	Lower     corev1.ResourceList `json:"lowerBound,omitempty"`
	Upper     corev1.ResourceList `json:"upperBound,omitempty"`
	NewLimits corev1.ResourceList `json:"targetLimits,omitempty"` // limits at the target
	From      string              `json:"from,omitempty"`         // source of the target, if any

	workload *inventory.Workload
}

// sizeList are the containers of many workloads, sorted.
type sizeList []containerSize

// sizesOf returns the recommendations for workloads, from their VPA or an estimate.
func sizesOf(all []*inventory.Workload, e *inventory.Estimator) (list sizeList) {
	for _, w := range all {
		recommendation, rules, from := map[string]resources.Bounds{}, policy.Rules{}, ""
		if w.VPA != nil {
			recommendation, rules = w.VPA.Recommendation, w.VPA.Rules
			from = "VPA " + w.VPA.Object.Name
		}
		if w.VPA == nil && e != nil {
			recommendation, from = e.Recommend(w), e.Name
		}
		slices.SortFunc(w.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		rows := map[string]*containerSize{}
		for _, pod := range w.Pods {
			running := convert.RunningPod(pod, recommendation, rules, w.Ranges)
			for i := range running.Containers {
				addSize(rows, w, pod, &running.Containers[i], requestsOf(w, pod, &pod.Spec.Containers[i]), from)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			list = append(list, *rows[name])
		}
	}
	return list
}

// requestsOf returns the requests of a container without a startup boost.
func requestsOf(w *inventory.Workload, pod *corev1.Pod, c *corev1.Container) resources.List {
	if !convert.HasBoosted(pod) {
		return convert.Resources(c.Resources.Requests)
	}
	var vpa *vpav1.VerticalPodAutoscaler
	if w.VPA != nil {
		vpa = w.VPA.Object
	}
	return convert.UnboostedRequests(pod, c, vpa)
}

// addSize adds a container of a pod to the row with its name.
func addSize(rows map[string]*containerSize, w *inventory.Workload, pod *corev1.Pod, c *disruption.Container, requests resources.List, from string) {
	name := c.Spec.Name
	row := rows[name]
	if row == nil {
		row = &containerSize{Namespace: pod.Namespace, Workload: w.Key.String(), Container: name, workload: w}
		if w.VPA != nil {
			row.VPA = w.VPA.Object.Name
		}
		if b := &c.Target.Bounds; !b.Target.Empty() {
			plain := convert.Format{}
			row.From, row.Target, row.Lower, row.Upper = from, plain.List(b.Target), plain.List(b.Lower), plain.List(b.Upper)
			row.NewLimits = plain.List(c.Target.Limits)
		}
		rows[name] = row
	}
	row.Pods++
	row.Requests, row.Limits = highest(row.Requests, requests), highest(row.Limits, c.Spec.Limits)
}

// highest returns the maximum of each kind.
func highest(current corev1.ResourceList, other resources.List) corev1.ResourceList {
	result := convert.Resources(current)
	for k := range resources.Kind(resources.Kinds) {
		if a, found := other.Get(k); found && (a > result.Value(k) || !result.Has(k)) {
			result = result.With(k, a)
		}
	}
	return convert.Format{}.List(result)
}

// change returns the current request and the target of a kind, and whether they differ.
func (c *containerSize) change(k resources.Kind) (request, target resources.Amount, changes bool) {
	target, hasTarget := convert.Resources(c.Target).Get(k)
	request, hasRequest := convert.Resources(c.Requests).Get(k)
	return request, target, hasTarget && (!hasRequest || request != target)
}
