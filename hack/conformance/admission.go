package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/admission-controller/mutate"
	"loadline.dev/loadline/admission-controller/validate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

type mutationInput struct {
	Pod                json.RawMessage
	VPA                vpav1.VerticalPodAutoscaler
	LimitRanges        [][]corev1.LimitRangeItem
	FeatureGates       map[string]bool
	MaxAllowedCPUBoost *resource.Quantity
}

type sizedContainer struct {
	Name     string              `json:"name"`
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

type mutationOutput struct {
	Allowed bool                    `json:"allowed"`
	Patch   []client.PatchOperation `json:"patch"`
	Result  patchedPod              `json:"result"`
}

type patchedPod struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Containers  []sizedContainer  `json:"containers,omitempty"`
}

// podMutation ignores the order of resources in one group and of notes in one container, which the
// vectors leave open.
func podMutation(c vectors.Case) error {
	var in mutationInput
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	var expected mutationOutput
	if err := json.Unmarshal(c.Expected, &expected); err != nil {
		return fmt.Errorf("expected output: %w", err)
	}
	out, err := mutation(in)
	if err != nil {
		return err
	}
	expected.reorder()
	out.reorder()
	want, err := json.Marshal(expected)
	if err != nil {
		return err
	}
	return vectors.Compare(want, out, c.Tolerance)
}

func mutation(in mutationInput) (out mutationOutput, err error) {
	var pod corev1.Pod
	if err := json.Unmarshal(in.Pod, &pod); err != nil {
		return out, fmt.Errorf("input: %w", err)
	}
	config := mutate.Config{Boost: in.FeatureGates["CPUStartupBoost"]}
	if in.MaxAllowedCPUBoost != nil {
		config.MaxBoost = convert.Amount(resources.CPU, *in.MaxAllowedCPUBoost)
	}
	mutation, err := config.Patch(&pod, &in.VPA, mutate.Constraints{Ranges: ranges(in.LimitRanges)})
	if err != nil {
		return out, err
	}
	raw, err := json.Marshal(mutation.Patch)
	if err != nil {
		return out, err
	}
	after, err := patched(in.Pod, raw)
	if err != nil {
		return out, err
	}
	out.Allowed, out.Patch = true, mutation.Patch
	out.Result, err = resultOf(after)
	return out, err
}

func patched(pod, patch []byte) ([]byte, error) {
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("our patch: %w", err)
	}
	after, err := decoded.Apply(pod)
	if err != nil {
		return nil, fmt.Errorf("apply %s: %w", patch, err)
	}
	return after, nil
}

// resultOf returns the compared fields of a patched pod.
func resultOf(text []byte) (r patchedPod, err error) {
	var pod corev1.Pod
	err = json.Unmarshal(text, &pod)
	r.Annotations = pod.Annotations
	for _, c := range pod.Spec.Containers {
		r.Containers = append(r.Containers, sizedContainer{c.Name, c.Resources.Requests, c.Resources.Limits})
	}
	return r, err
}

// withoutTests drops the test operations of a patch. They change nothing, and the reference sends
// none.
func withoutTests(patch []client.PatchOperation) []client.PatchOperation {
	return slices.DeleteFunc(patch, func(p client.PatchOperation) bool { return p.Op == "test" })
}

func (o *mutationOutput) reorder() {
	o.Patch = withoutTests(slices.Clone(o.Patch))
	for start := 0; start < len(o.Patch); {
		end := start + 1
		for end < len(o.Patch) && group(o.Patch[end].Path) == group(o.Patch[start].Path) {
			end++
		}
		slices.SortFunc(o.Patch[start:end], func(a, b client.PatchOperation) int { return strings.Compare(a.Path, b.Path) })
		start = end
	}
	for i, p := range o.Patch {
		if text, ok := p.Value.(string); ok && strings.HasSuffix(p.Path, "/"+convert.UpdatesAnnotation) {
			o.Patch[i].Value = sortedNotes(text)
		}
	}
	if text, ok := o.Result.Annotations[convert.UpdatesAnnotation]; ok {
		o.Result.Annotations[convert.UpdatesAnnotation] = sortedNotes(text)
	}
}

// group returns the resource list that a path adds to, or the path itself.
func group(path string) string {
	for _, list := range []string{"/resources/requests/", "/resources/limits/"} {
		if before, _, ok := strings.Cut(path, list); ok {
			return before + list
		}
	}
	return path
}

// sortedNotes sorts the notes of each container in the value of vpaUpdates.
func sortedNotes(text string) string {
	containers := strings.Split(text, "; ")
	for i, c := range containers {
		at := strings.LastIndex(c, "container ")
		head, notes, ok := strings.Cut(c[at:], ": ")
		if !ok {
			continue
		}
		sorted := strings.Split(notes, ", ")
		slices.Sort(sorted)
		containers[i] = c[:at] + head + ": " + strings.Join(sorted, ", ")
	}
	return strings.Join(containers, "; ")
}

type validationInput struct {
	Operation         string
	Object, OldObject json.RawMessage
	FeatureGates      map[string]bool
}

type cause struct {
	Field string `json:"field"`
	Type  string `json:"type"`
}

type validationOutput struct {
	Allowed      bool                    `json:"allowed"`
	Patch        []client.PatchOperation `json:"patch"`
	WarningCount int                     `json:"warningCount"`
	Code         int32                   `json:"code,omitempty"`
	Reason       metav1.StatusReason     `json:"reason,omitempty"`
	Causes       []cause                 `json:"causes,omitempty"`
}

func vpaValidation(in validationInput) (validationOutput, error) {
	config := validate.Config{
		InPlace:      in.FeatureGates["InPlace"],
		PerVPAConfig: in.FeatureGates["PerVPAConfig"],
		Boost:        in.FeatureGates["CPUStartupBoost"],
	}
	if in.Operation != "UPDATE" {
		in.OldObject = nil
	}
	verdict := config.Check(in.Object, in.OldObject)
	out := validationOutput{Allowed: true, Patch: append([]client.PatchOperation{}, verdict.Patch...), WarningCount: len(verdict.Warnings)}
	if refusal := verdict.Status(""); refusal != nil {
		out.Allowed, out.Code, out.Reason = false, refusal.Code, refusal.Reason
		for _, c := range refusal.Details.Causes {
			out.Causes = append(out.Causes, cause{c.Field, string(c.Type)})
		}
		slices.SortFunc(out.Causes, func(a, b cause) int { return strings.Compare(a.Field, b.Field) })
	}
	return out, nil
}

type reference struct {
	Kind, Name string
}

type matchingInput struct {
	PodNamespace      string
	PodLabels         map[string]string
	TopmostController *reference
	VPAs              []struct {
		Name, Namespace             string
		Target                      reference
		UpdateMode                  *vpav1.UpdateMode
		CreationTimestamp           time.Time
		Selector                    map[string]string
		SelectorError, StartupBoost bool
	}
}

type matchingOutput struct {
	VPA *string `json:"vpa"`
}

func vpaMatching(in matchingInput) (matchingOutput, error) {
	targets := givenTargets{selectors: map[string]labels.Selector{}}
	if top := in.TopmostController; top != nil {
		targets.top = new(target.NewKey(in.PodNamespace, "apps/v1", top.Kind, top.Name))
	}
	finder := target.NewFinder(context.Background(), targets)
	for _, v := range in.VPAs {
		vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, CreationTimestamp: metav1.NewTime(v.CreationTimestamp)}}
		id := "apps/" + v.Name + "." + v.Namespace // a separate version, so that its selector may differ
		if v.SelectorError {
			id = v.Name + "." + v.Namespace + "/v1" // VPAs of one target share its selector, so this one has another API group
		}
		vpa.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: id, Kind: v.Target.Kind, Name: v.Target.Name}
		vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: v.UpdateMode}
		if v.StartupBoost {
			vpa.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{}}
		}
		if !v.SelectorError {
			targets.selectors[id] = labels.SelectorFromSet(v.Selector)
		}
		finder.Put(vpa)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:          in.PodLabels,
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "any", Controller: new(true)}},
	}}
	vpa, err := finder.Find(context.Background(), in.PodNamespace, pod)
	if err != nil || vpa == nil {
		return matchingOutput{}, err
	}
	return matchingOutput{&vpa.Name}, nil
}

// givenTargets is a target.TopmostResolver with the data of a case. It distinguishes the VPAs of
// one target by the apiVersion of their reference, which the choice of the VPA ignores.
type givenTargets struct {
	top       *target.Key
	selectors map[string]labels.Selector
}

// Topmost returns the given controller.
func (g givenTargets) Topmost(context.Context, target.Key) (target.Key, bool, error) {
	if g.top == nil {
		return target.Key{}, false, nil
	}
	return *g.top, true, nil
}

var errNoSelector = errors.New("the target has no selector")

// Select returns the given selector.
func (g givenTargets) Select(_ context.Context, _ string, ref *autoscalingv1.CrossVersionObjectReference, _ *target.Selection) (*target.Selection, error) {
	if s, ok := g.selectors[ref.APIVersion]; ok {
		return &target.Selection{Selector: s}, nil
	}
	return nil, errNoSelector
}
