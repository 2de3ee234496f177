package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
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

	of *managed
}

// managed is a workload with its pods.
type managed struct {
	key  target.Key
	pods []*corev1.Pod
	vpa  *controlling // nil: none controls it

	ranges   policy.Ranges // of its namespace
	template []string      // names of the containers of its pod template
	fixed    string        // why its pod template cannot be changed; empty: it can
}

// sizesScope says of which workloads sizes are wanted.
type sizesScope struct {
	Selector labels.Selector // of pods
	Names    []string        // KIND/NAME in lower case, or NAME; none: all
	Unsized  bool            // only those without a VPA
}

// wants reports whether a workload is named, if any is, and adds the names that fit it.
func (s *sizesScope) wants(key target.Key, named map[string]bool) bool {
	wanted := len(s.Names) == 0
	for _, name := range s.Names {
		if name == key.Name || strings.ToLower(name) == strings.ToLower(key.Kind)+"/"+key.Name {
			wanted, named[name] = true, true
		}
	}
	return wanted
}

// sizeList are the containers of many workloads, sorted.
type sizeList []containerSize

// bare is the kind of the key of a pod without a controller.
const bare = "Pod"

// uncontrolled returns why a pod without a controller is left out.
func uncontrolled(pod *corev1.Pod) string {
	why := "no controller owns it"
	if len(pod.OwnerReferences) > 0 && pod.OwnerReferences[0].Kind == "Node" {
		why = "it is a static pod, which a file of its node defines"
	}
	return fmt.Sprintf("pod %s is left out: %s", podName(pod), why)
}

// workloads returns the workloads of the namespace of a question, or of all, that have pods, which of
// the names in the scope were found, and why some workloads are missing.
func (s *surroundings) workloads(
	ctx context.Context, q question, scope sizesScope,
) (all []*managed, named map[string]bool, problems []string, err error) {
	pods, err := livePods(ctx, q)
	if err != nil {
		return nil, nil, nil, err
	}
	found := map[target.Key]*managed{}
	named = map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		if !scope.Selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences)
		if !owned {
			if scope.wants(target.Key{Kind: bare, Name: pod.Name}, named) {
				problems = append(problems, uncontrolled(pod))
			}
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
		if !scope.wants(top, named) {
			continue
		}
		by, err := s.control(ctx, pod)
		if err != nil {
			problems = append(problems, fmt.Sprintf("pod %s: %v", podName(pod), err))
			continue
		}
		if scope.Unsized && by != nil {
			if len(scope.Names) > 0 {
				problems = append(problems, fmt.Sprintf("%s in namespace %s is left out: VPA %s controls it", top, top.Namespace, by.object.Name))
			}
			continue
		}
		w := found[top]
		if w == nil {
			w = &managed{key: top, vpa: by, ranges: s.rangesOf(ctx, top.Namespace)}
			w.template, w.fixed = s.templateOf(ctx, top)
			found[top] = w
		}
		w.pods = append(w.pods, pod)
	}
	slices.Sort(problems)
	all = slices.SortedFunc(maps.Values(found), func(a, b *managed) int { return target.CompareKeys(a.key, b.key) })
	return all, named, slices.Compact(problems), nil
}

// templateOf returns the names of the containers of the pod template of a workload, or why that cannot
// be changed.
func (s *surroundings) templateOf(ctx context.Context, key target.Key) (containers []string, fixed string) {
	template, owner, owned, err := s.owners.Template(ctx, key)
	switch {
	case err != nil:
		return nil, err.Error()
	case template == nil:
		return nil, "the form of its kind is unknown, set the resources in its manifest"
	case owned:
		return nil, fmt.Sprintf("%s owns it and would undo a change, set the resources there", owner)
	case isJob(key):
		return nil, "the pod template of a Job is immutable, set the resources in the manifest that creates it"
	}
	for i := range template.Spec.Containers {
		containers = append(containers, template.Spec.Containers[i].Name)
	}
	return containers, ""
}

// isJob reports whether a workload is one run, and not the CronJob of many.
func isJob(key target.Key) bool {
	of := key.GroupKind()
	return of.Group == "batch" && of.Kind == "Job"
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
				addSize(rows, w, pod, &running.Containers[i], requestsOf(w, pod, &pod.Spec.Containers[i]), from)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			list = append(list, *rows[name])
		}
	}
	return list
}

// requestsOf returns the requests in the spec of a container, without a startup boost.
func requestsOf(w *managed, pod *corev1.Pod, c *corev1.Container) resources.List {
	if !convert.HasBoosted(pod) {
		return convert.Resources(c.Resources.Requests)
	}
	var vpa *vpav1.VerticalPodAutoscaler
	if w.vpa != nil {
		vpa = w.vpa.object
	}
	return convert.UnboostedRequests(pod, c, vpa)
}

// addSize adds a container of a pod to the row of its name.
func addSize(rows map[string]*containerSize, w *managed, pod *corev1.Pod, c *disruption.Container, requests resources.List, from string) {
	name := c.Asked.Name
	row := rows[name]
	if row == nil {
		row = &containerSize{Namespace: pod.Namespace, Workload: w.key.String(), Container: name, of: w}
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
	row.Requests, row.Limits = highest(row.Requests, requests), highest(row.Limits, c.Asked.Limits)
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
