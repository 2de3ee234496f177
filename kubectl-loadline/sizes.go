package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/target"
)

// containerSize is what the pods of a workload request for one container, and what is recommended.
type containerSize struct {
	Namespace string              `json:"namespace"`
	Workload  string              `json:"workload"`
	VPA       string              `json:"vpa,omitempty"`
	Container string              `json:"container"`
	Pods      int                 `json:"pods"`
	Requests  corev1.ResourceList `json:"requests,omitempty"` // the highest of any pod
	Limits    corev1.ResourceList `json:"limits,omitempty"`
	Target    corev1.ResourceList `json:"target,omitempty"`
	Lower     corev1.ResourceList `json:"lowerBound,omitempty"`
	Upper     corev1.ResourceList `json:"upperBound,omitempty"`
	NewLimits corev1.ResourceList `json:"targetLimits,omitempty"` // that go with the target
	From      string              `json:"from,omitempty"`         // where the target comes from; absent: there is none

	key target.Key
}

// managed is a workload with its pods.
type managed struct {
	key  target.Key
	pods []*corev1.Pod
	vpa  *controlling // nil: none controls it

	ranges policy.Ranges // of its namespace
}

// sizesScope says of which workloads sizes are wanted.
type sizesScope struct {
	Selector labels.Selector // of pods
	Names    []string        // KIND/NAME in lower case, or NAME; none: all
	Unsized  bool            // only those without a VPA
}

// wants reports whether a workload is named, if any is.
func (s *sizesScope) wants(key target.Key) bool {
	kind := strings.ToLower(key.Kind)
	return len(s.Names) == 0 || slices.ContainsFunc(s.Names, func(name string) bool {
		return name == key.Name || strings.ToLower(name) == kind+"/"+key.Name
	})
}

// sizeList are the containers of many workloads, sorted.
type sizeList []containerSize

// workloads returns the workloads of the namespace of a question, or of all, that have pods, and
// why some are missing.
func (s *surroundings) workloads(ctx context.Context, q question, scope sizesScope) (all []*managed, problems []string, err error) {
	pods, err := livePods(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	found := map[target.Key]*managed{}
	for i := range pods {
		pod := &pods[i]
		if !scope.Selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences)
		if !owned {
			continue
		}
		top, _, err := s.owners.Topmost(ctx, owner)
		if err != nil {
			problems = append(problems, fmt.Sprintf("pod %s: %v", podName(pod), err))
			continue
		}
		if top == (target.Key{}) {
			top = owner
		}
		if !scope.wants(top) {
			continue
		}
		by, err := s.control(ctx, pod)
		if err != nil {
			problems = append(problems, fmt.Sprintf("pod %s: %v", podName(pod), err))
			continue
		}
		if scope.Unsized && by != nil {
			continue
		}
		w := found[top]
		if w == nil {
			w = &managed{key: top, vpa: by, ranges: s.rangesOf(ctx, top.Namespace)}
			found[top] = w
		}
		w.pods = append(w.pods, pod)
	}
	slices.Sort(problems)
	return slices.SortedFunc(maps.Values(found), func(a, b *managed) int { return target.CompareKeys(a.key, b.key) }), slices.Compact(problems), nil
}

// sizesOf returns what is recommended for workloads: what their VPA has, or else an estimate.
func sizesOf(all []*managed, e *estimator) (list sizeList) {
	for _, w := range all {
		recommendation, rules, from := map[string]resources.Bounds{}, policy.Rules{}, ""
		if w.vpa != nil {
			recommendation, rules = w.vpa.sizing.Recommendation, w.vpa.sizing.Rules
			from = "VPA " + w.vpa.object.Name
		}
		if w.vpa == nil && e != nil {
			recommendation, from = e.recommend(w), e.Name
		}
		slices.SortFunc(w.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		rows := map[string]*containerSize{}
		for _, pod := range w.pods {
			running := convert.RunningPod(pod, recommendation, rules, w.ranges)
			for i := range running.Containers {
				addSize(rows, w, pod, &running.Containers[i], from)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			list = append(list, *rows[name])
		}
	}
	return list
}

// addSize adds a container of a pod to the row of its name.
func addSize(rows map[string]*containerSize, w *managed, pod *corev1.Pod, c *disruption.Container, from string) {
	name := c.Asked.Name
	row := rows[name]
	if row == nil {
		row = &containerSize{Namespace: pod.Namespace, Workload: w.key.String(), Container: name, key: w.key}
		if w.vpa != nil {
			row.VPA = w.vpa.object.Name
		}
		if b := &c.Fitted.Bounds; !b.Target.Empty() {
			plain := convert.Format{}
			row.From, row.Target, row.Lower, row.Upper = from, plain.List(b.Target), plain.List(b.Lower), plain.List(b.Upper)
			row.NewLimits = plain.List(c.Fitted.Limits)
		}
		rows[name] = row
	}
	row.Pods++
	row.Requests, row.Limits = highest(row.Requests, c.Asked.Requests), highest(row.Limits, c.Asked.Limits)
}

// highest returns the higher of what is known and of what a pod has, of each kind.
func highest(known corev1.ResourceList, has resources.List) corev1.ResourceList {
	of := convert.Resources(known)
	for k := range resources.Kind(resources.Kinds) {
		if a, there := has.Get(k); there && (a > of.Value(k) || !of.Has(k)) {
			of = of.With(k, a)
		}
	}
	return convert.Format{}.List(of)
}

// change is what would change of a container and a kind.
func (c *containerSize) change(k resources.Kind) (now, then resources.Amount, changes bool) {
	then, wanted := convert.Resources(c.Target).Get(k)
	now, has := convert.Resources(c.Requests).Get(k)
	return now, then, wanted && (!has || now != then)
}
