package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

// sizing omits empty amounts.
type sizing struct {
	CPU, Memory string
}

func (s sizing) list() (list corev1.ResourceList, err error) {
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: s.CPU, corev1.ResourceMemory: s.Memory} {
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("input: quantity %q: %w", text, err)
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = q
	}
	return list, nil
}

func lists(all ...sizing) (lists []corev1.ResourceList, err error) {
	for _, s := range all {
		list, err := s.list()
		if err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	return lists, nil
}

func recommendingVPA(target corev1.ResourceList) *vpav1.VerticalPodAutoscaler {
	return &vpav1.VerticalPodAutoscaler{Status: vpav1.VerticalPodAutoscalerStatus{Recommendation: &vpav1.RecommendedPodResources{
		ContainerRecommendations: []vpav1.RecommendedContainerResources{{ContainerName: app, Target: target}}}}}
}

func requesting(name string, requests corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
}

type nodeInput struct {
	CompletedInit, Container, NativeSidecar sizing
	NodeAllocatable                         sizing
	NodePressure                            string
	Target                                  sizing
}

type nodeOutput struct {
	Reason string `json:"reason"`
	Skip   bool   `json:"skip"`
}

// nodePrecheck first runs the planner to find a change, and then Hold.
func nodePrecheck(in nodeInput) (out nodeOutput, err error) {
	l, err := lists(in.CompletedInit, in.Container, in.NativeSidecar, in.NodeAllocatable, in.Target)
	if err != nil {
		return out, err
	}
	sidecar := requesting("sidecar", l[2])
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	read := newSnapshot(recommendingVPA(l[4]), nil).Pod(&corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{requesting("init", l[0]), sidecar}, Containers: []corev1.Container{requesting(app, l[1])},
	}})
	if !read.NeedsChange() {
		return nodeOutput{"atTarget", true}, nil
	}
	w := deployment(fleet.Auto, 1)
	pod := &w.Pods[0]
	pod.TotalRequests = read.Need().After
	for k := range resources.Kind(resources.Kinds) {
		pod.Grows[k] = read.AnyObserved(func(c *disruption.Container, kind resources.Kind) bool {
			return kind == k && c.After().Requests.Value(k) > c.Spec.Requests.Value(k)
		})
	}
	pod.Node = rollout.Node{
		Known: len(l[3]) > 0, Size: convert.Resources(l[3]), MemoryPressure: in.NodePressure == string(corev1.NodeMemoryPressure),
		DiskOrPIDPressure: in.NodePressure == string(corev1.NodeDiskPressure) || in.NodePressure == string(corev1.NodePIDPressure),
	}
	answer := rollout.Hold(rollout.State{}, w, rollout.Settings{}, evaluationTime()).Pods[0]
	switch answer.Reason {
	case reason.TooLargeForNode:
		out.Reason = "allocatable"
	case reason.NodeUnknown:
		out.Reason = "nodeUnavailable"
	case reason.NodePressure:
		out.Reason = map[string]string{"MemoryPressure": "memoryPressure", "DiskPressure": "diskPressure", "PIDPressure": "pidPressure"}[in.NodePressure]
	}
	out.Skip = !answer.Free
	return out, nil
}

type quotaInput struct {
	Current    sizing
	LimitRange struct {
		MaxCPU, MaxMemory, MinCPU, MinMemory string
	}
	QuotaHeadroom, Target sizing
}

type quotaOutput struct {
	Allowed   bool   `json:"allowed"`
	BlockedBy string `json:"blockedBy"`
}

// limitRangeQuota checks the planned resources against the LimitRange and the remaining quota of
// the namespace. The system of the cases sizes only requests. The container has the maximum as its
// limit, because the API server makes it the default limit.
func limitRangeQuota(in quotaInput) (out quotaOutput, err error) {
	r := in.LimitRange
	l, err := lists(in.Current, sizing{r.MinCPU, r.MinMemory}, sizing{r.MaxCPU, r.MaxMemory}, in.QuotaHeadroom, in.Target)
	if err != nil {
		return out, err
	}
	ranges := [][]corev1.LimitRangeItem{{{Type: corev1.LimitTypeContainer, Min: l[1], Max: l[2]}}}
	vpa := recommendingVPA(l[4])
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
		{ContainerName: app, ControlledValues: new(vpav1.ContainerControlledValuesRequestsOnly)}}}
	container := requesting(app, l[0])
	container.Resources.Limits = l[2]
	pod := newSnapshot(vpa, ranges).Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}})
	left := disruption.NewCapacity(nil, map[string][]disruption.Quota{"ns": {{Requests: convert.Resources(l[3])}}})
	switch {
	case pod.ViolatesLimitRange():
		out.BlockedBy = "LimitRange"
	case left.CheckResize(pod.Need()) == disruption.RoomOverQuota:
		out.BlockedBy = "ResourceQuota"
	}
	out.Allowed = out.BlockedBy == ""
	return out, nil
}

type qosInput struct {
	QOSClass                     corev1.PodQOSClass
	TargetLimits, TargetRequests sizing
}

type qosOutput struct {
	Allowed bool `json:"allowed"`
}

// qos checks whether a change of a pod with twice the target requests changes its QoS class.
func qos(in qosInput) (out qosOutput, err error) {
	l, err := lists(in.TargetRequests, in.TargetLimits)
	if err != nil {
		return out, err
	}
	target := policy.ContainerTarget{Name: app, Requests: convert.Resources(l[0]), Limits: convert.Resources(l[1])}
	current := policy.Container{Name: app}
	for k := range resources.Kind(resources.Kinds) {
		current.Requests = current.Requests.With(k, 2*target.Requests.Value(k))
	}
	if in.QOSClass == corev1.PodQOSGuaranteed {
		current.Limits = current.Requests
	}
	pod := disruption.Pod{Containers: []disruption.Container{{Observed: true, Spec: current, Actual: current, Target: target}}}
	return qosOutput{!pod.ChangesClass()}, nil
}

type limitInput struct {
	CurrentLimit, CurrentRequest, NewRequest string
}

type limitOutput struct {
	Limit string           `json:"limit"`
	Milli resources.Amount `json:"milli"`
}

// scaleLimits returns the limit for a new request, of memory if the limit has a binary unit.
func scaleLimits(in limitInput) (out limitOutput, err error) {
	k := resources.CPU
	if strings.HasSuffix(in.CurrentLimit, "i") {
		k = resources.Memory
	}
	a, err := amounts(k, in.CurrentLimit, in.CurrentRequest, in.NewRequest)
	if err != nil {
		return out, err
	}
	c := policy.Container{Name: app}
	if a[0] > 0 {
		c.Limits = c.Limits.With(k, a[0])
	}
	if a[1] > 0 {
		c.Requests = c.Requests.With(k, a[1])
	}
	result := policy.Fit(policy.Pod{Containers: []policy.Container{c}},
		map[string]resources.Bounds{app: {Target: resources.List{}.With(k, a[2])}}, policy.Rules{}, policy.Ranges{})
	limit := result.Containers[0].Limits.Value(k)
	out = limitOutput{printAmount(k, limit).Quantity, limit}
	if k == resources.Memory {
		out.Milli *= 1000
	}
	return out, nil
}

type floorInput struct {
	CurrentLimit                            string
	MarginPercent                           int
	RecentUsage, TargetLimit, TargetRequest string
}

type floorOutput struct {
	Applied      bool             `json:"applied"`
	LimitBytes   resources.Amount `json:"limitBytes"`
	RequestBytes resources.Amount `json:"requestBytes"`
}

func memoryLimitFloor(in floorInput) (out floorOutput, err error) {
	k := resources.Memory
	a, err := amounts(k, in.CurrentLimit, in.RecentUsage, in.TargetLimit, in.TargetRequest)
	if err != nil {
		return out, err
	}
	current := policy.Container{Limits: resources.List{}.With(k, a[0])}
	target := policy.ContainerTarget{Requests: resources.List{}.With(k, a[3]), Limits: resources.List{}.With(k, a[2])}
	got := rollout.ClampMemoryLimit(current, target, a[1], in.MarginPercent)
	return floorOutput{got.Limits != target.Limits, got.Limits.Value(k), got.Requests.Value(k)}, nil
}

type savingsInput struct {
	CurrentCPU, CurrentMemory, RecommendedCPU string
	RecommendedMemory                         string
}

type savingsOutput struct {
	CPUTotal        string `json:"cpuRequestTotal"`
	MemoryTotal     string `json:"memoryRequestTotal"`
	CPULess         string `json:"cpuRequestReduction,omitempty"`
	MemoryLess      string `json:"memoryRequestReduction,omitempty"`
	CPUMore         string `json:"cpuRequestIncrease,omitempty"`
	MemoryMore      string `json:"memoryRequestIncrease,omitempty"`
	CPUReclaimed    string `json:"reclaimedCpuRequest,omitempty"`
	MemoryReclaimed string `json:"reclaimedMemoryRequest,omitempty"`
	Saves           string `json:"estimatedMonthlySavings,omitempty"`
	Costs           string `json:"estimatedMonthlyCostIncrease,omitempty"`
}

// savings computes the savings of one pod. The reclaimed values of the cases are the same amounts.
func savings(in savingsInput) (out savingsOutput, err error) {
	l, err := lists(sizing{in.CurrentCPU, in.CurrentMemory}, sizing{in.RecommendedCPU, in.RecommendedMemory})
	if err != nil {
		return out, err
	}
	s := rollout.Savings{}.Add(convert.Resources(l[0]), convert.Resources(l[1]), 1)
	amount := func(list resources.List, k resources.Kind) string {
		if a := list.Value(k); a > 0 {
			return printAmount(k, a).Quantity
		}
		return ""
	}
	money := func(list resources.List) string {
		if list.Empty() {
			return ""
		}
		return fmt.Sprintf("$%.2f", rollout.DefaultPrices.Monthly(list))
	}
	cpu, memory := resources.CPU, resources.Memory
	return savingsOutput{
		CPUTotal: amount(s.Requested, cpu), MemoryTotal: amount(s.Requested, memory),
		CPULess: amount(s.Less, cpu), MemoryLess: amount(s.Less, memory), CPUReclaimed: amount(s.Less, cpu), MemoryReclaimed: amount(s.Less, memory),
		CPUMore: amount(s.More, cpu), MemoryMore: amount(s.More, memory), Saves: money(s.Less), Costs: money(s.More),
	}, nil
}
