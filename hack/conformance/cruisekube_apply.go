package main

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/admission-controller/mutate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
)

func decimal(k resources.Kind, a resources.Amount) string {
	q := convert.Quantity(k, a)
	q.Format = resource.DecimalSI
	return q.String()
}

// amountOf converts cores or megabytes. Fractions of a millicore are dropped, as in every
// recommendation.
func amountOf(k resources.Kind, a float64) resources.Amount {
	return resources.FromFloat(a * [resources.Kinds]float64{resources.CPU: perCore, resources.Memory: perMegabyte}[k])
}

type applyInput struct {
	CurrentLimits, CurrentRequests                   sizing
	Memory7DayMaxMB, NodeAllocatableCPU, OOMMemoryMB float64
	RecommendedCPU, RecommendedMemoryMB              float64
}

type applyOutput struct {
	CPUPatch      map[string]string `json:"cpuPatch"`
	MemoryPatch   map[string]string `json:"memoryPatch"`
	MemorySkipped bool              `json:"memorySkipped"`
}

// applyShare gives a share to the container of a running pod. The two calls of the cases are one
// resize.
func applyShare(in applyInput) (out applyOutput, err error) {
	l, err := lists(in.CurrentRequests, in.CurrentLimits)
	if err != nil {
		return out, err
	}
	c := policy.Container{Name: app, Requests: convert.Resources(l[0]), Limits: convert.Resources(l[1])}
	share := resources.NewList(amountOf(resources.CPU, in.RecommendedCPU), amountOf(resources.Memory, in.RecommendedMemoryMB))
	upper := share.With(resources.Memory, amountOf(resources.Memory, max(in.Memory7DayMaxMB, in.OOMMemoryMB)))
	fitted := policy.Fit(policy.Pod{Containers: []policy.Container{c}}, map[string]resources.Bounds{app: {Target: share, Upper: upper}},
		policy.Rules{Sharing: &policy.Sharing{Kinds: bothKinds, CPULimit: sharing.NodeLimit, NodeCPU: amountOf(resources.CPU, in.NodeAllocatableCPU)}}, policy.Ranges{}).Containers[0]
	container := disruption.Container{Observed: true, Actual: c, Spec: c, Target: fitted}
	patch := func(k resources.Kind) map[string]string {
		if !container.Changes(k, container.Spec) {
			return nil
		}
		sent := map[string]string{"subresource": "resize"}
		if a, ok := fitted.Requests.Get(k); ok {
			sent[k.String()+"Request"] = decimal(k, a)
		}
		if a, ok := fitted.Limits.Get(k); ok {
			sent[k.String()+"Limit"] = decimal(k, a)
		}
		return sent
	}
	return applyOutput{
		CPUPatch: patch(resources.CPU), MemoryPatch: patch(resources.Memory), MemorySkipped: !fitted.Requests.Has(resources.Memory),
	}, nil
}

type newPodInput struct {
	CPUMax10m, CPUPeak           float64
	HPAOnCPU                     bool
	Limits                       sizing
	Memory7DayMaxMB              float64
	MemoryApplicationDisabled    bool
	MemoryMax30mMB, MemoryPeakMB float64
	NewWorkload                  bool
	OOMMemoryMB                  float64
	OverrideDisabled             bool
	Requests                     sizing
	WorkloadKind                 string
}

type newPodOutput struct {
	Patches []client.PatchOperation `json:"patches"`
}

// newPod lets the webhook size a pod of a workload with a sharing policy.
func newPod(in newPodInput) (out newPodOutput, err error) {
	out.Patches = []client.PatchOperation{}
	if in.skipped() {
		return out, nil
	}
	l, err := lists(in.Requests, in.Limits)
	if err != nil {
		return out, err
	}
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{{Name: app, Resources: corev1.ResourceRequirements{Requests: l[0], Limits: l[1]}}}
	recommended, shared := in.recommended()
	vpa := &vpav1.VerticalPodAutoscaler{}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{recommended}}
	demands := mutate.Constraints{}
	if sharing.IneligibleReason(in.facts(shared)) == "" {
		demands.Sharing = &policy.Sharing{Kinds: shared, CPULimit: sharing.RemoveLimit, New: true, Daemon: in.WorkloadKind == "DaemonSet"}
	}
	mutation, err := mutate.Config{}.Patch(pod, vpa, demands)
	if err != nil {
		return out, err
	}
	out.Patches = append(out.Patches, in.asPrinted(mutation.Patch)...)
	return out, nil
}

// skipped reports whether an annotation excludes the workload from its policy.
func (in newPodInput) skipped() bool {
	w := fleet.Workload{Kind: in.WorkloadKind, Namespace: "default", VPA: fleet.VPA{Origin: fleet.GeneratedVPA}}
	if in.OverrideDisabled {
		w.Annotations = map[string]string{fleet.SkipAnnotation: "true"}
	}
	set := fleet.NewSet([]fleet.Policy{{
		Mode: fleet.Auto, Namespaces: fleet.Namespaces{Names: []string{fleet.AllNamespaces}}, Workloads: []fleet.Match{{Kind: in.WorkloadKind}},
	}}, fleet.Options{})
	return set.Decide(w).NewPodSkipReason(fleet.GeneratedVPA, true) != ""
}

func (in newPodInput) facts(shared [resources.Kinds]bool) sharing.PodFacts {
	f := sharingFacts()
	f.Shared, f.HPA[resources.CPU] = shared, in.HPAOnCPU
	if in.NewWorkload {
		f.Age = 0
	}
	return f
}

// recommended returns the published recommendation, with the values that the recipe merges into the
// target, and its resources. The webhook omits resources that an HPA depends on.
func (in newPodInput) recommended() (r vpav1.RecommendedContainerResources, kinds [resources.Kinds]bool) {
	kinds = [resources.Kinds]bool{resources.CPU: true, resources.Memory: !in.MemoryApplicationDisabled}
	target := resources.List{}.With(resources.CPU, amountOf(resources.CPU, cmp.Or(in.CPUPeak, in.CPUMax10m)))
	upper := target
	if kinds[resources.Memory] {
		target = target.With(resources.Memory, amountOf(resources.Memory, max(in.MemoryPeakMB, in.MemoryMax30mMB, in.OOMMemoryMB)))
		upper = upper.With(resources.Memory, amountOf(resources.Memory, max(in.Memory7DayMaxMB, in.OOMMemoryMB)))
	}
	if in.HPAOnCPU {
		target, upper = target.Without(resources.CPU), upper.Without(resources.CPU)
	}
	format := convert.Format{}
	return vpav1.RecommendedContainerResources{ContainerName: app, LowerBound: format.List(target), Target: format.List(target), UpperBound: format.List(upper)}, kinds
}

// asPrinted returns the resource operations of a patch in the order and format of the cases. They
// replace existing values, which is equivalent to add.
func (in newPodInput) asPrinted(patch []client.PatchOperation) (steps []client.PatchOperation) {
	const own = "/spec/containers/0/resources/"
	for _, s := range patch {
		list, name, found := strings.Cut(strings.TrimPrefix(s.Path, own), "/")
		if !strings.HasPrefix(s.Path, own) {
			continue
		}
		if found && s.Op == "add" {
			there := map[string]sizing{"requests": in.Requests, "limits": in.Limits}[list]
			k, has := resources.CPU, there.CPU
			if name == resources.Memory.String() {
				k, has = resources.Memory, there.Memory
			}
			text, _ := s.Value.(string)
			gets := convert.Amount(k, resource.MustParse(text))
			s.Value = decimal(k, gets)
			if has != "" {
				s.Op = "replace"
				if convert.Amount(k, resource.MustParse(has)) == gets {
					s.Value = has
				}
			}
		}
		steps = append(steps, s)
	}
	rank := func(s client.PatchOperation) int {
		switch {
		case s.Value != nil && !isText(s.Value):
			return 0 // an object that holds the later values
		case s.Op == "remove":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(steps, func(a, b client.PatchOperation) int { return cmp.Compare(rank(a), rank(b)) })
	return steps
}

func isText(v any) bool {
	_, is := v.(string)
	return is
}
