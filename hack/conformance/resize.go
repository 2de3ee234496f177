package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/boost"
)

type resizeInput struct {
	Pod             corev1.Pod
	VPA             *vpav1.VerticalPodAutoscaler
	LimitRanges     [][]corev1.LimitRangeItem
	ReadySecondsAgo *float64
	FeatureGates    gates
}

type resizeOutput struct {
	Error       bool                    `json:"error"`
	ResizePatch []client.PatchOperation `json:"resizePatch,omitempty"`
	PodPatch    []client.PatchOperation `json:"podPatch,omitempty"`
	Result      *patchedPod             `json:"result,omitempty"`
}

func resizePatch(in resizeInput) (out resizeOutput, err error) {
	in.Pod.UID = "uid" // as every pod of a cluster has one
	if in.ReadySecondsAgo != nil {
		in.Pod.Status.Conditions = append(in.Pod.Status.Conditions, readySince(*in.ReadySecondsAgo))
	}
	read := newSnapshot(in.VPA, in.LimitRanges)
	pod := read.Pod(&in.Pod)
	change := actuate.Change{Action: disruption.Action{Containers: pod.Targets()}, Object: &in.Pod, Autoscaler: *read}
	if pod.Boosted {
		verdict := boost.Judge(*read, &in.Pod, evaluationTime())
		change.Containers, change.RemovedBoosts = verdict.Targets, verdict.Expired
	}
	resize, err := actuate.ResizePatch(change)
	if err != nil {
		return resizeOutput{Error: true}, nil //nolint:nilerr // the case expects that there is an error
	}
	mark, err := actuate.MarkPatch(&in.Pod, disruption.Restart{}, change.RemovedBoosts...)
	if err != nil {
		return out, err
	}
	text, err := json.Marshal(in.Pod)
	if err != nil {
		return out, err
	}
	if text, err = patched(text, resize); err != nil {
		return out, err
	}
	if text, err = jsonpatch.MergePatch(text, mark); err != nil {
		return out, fmt.Errorf("apply %s: %w", mark, err)
	}
	result, err := resultOf(text)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(resize, &out.ResizePatch); err != nil {
		return out, err
	}
	out.Result, out.ResizePatch = &result, withoutTests(out.ResizePatch)
	out.PodPatch, err = asSteps(mark, in.Pod.Annotations)
	return out, err
}

// asSteps converts the merge patch that marks a pod to the equivalent JSON patch of the reference:
// first additions, then removals.
func asSteps(mark []byte, present map[string]string) (steps []client.PatchOperation, err error) {
	var pod struct {
		Metadata struct {
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(mark, &pod); err != nil {
		return nil, err
	}
	if present == nil {
		steps = append(steps, client.PatchOperation{Op: "add", Path: "/metadata/annotations", Value: map[string]any{}})
	}
	var gone []client.PatchOperation
	for _, key := range slices.Sorted(maps.Keys(pod.Metadata.Annotations)) {
		path := client.PatchPath("metadata", "annotations", key)
		if value := pod.Metadata.Annotations[key]; value != nil {
			steps = append(steps, client.PatchOperation{Op: "add", Path: path, Value: *value})
		} else {
			gone = append(gone, client.PatchOperation{Op: "remove", Path: path})
		}
	}
	return append(steps, gone...), nil
}
