package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/updater/boost"
)

type budgetPod struct {
	Name            string
	Phase           corev1.PodPhase
	ResizeCondition *struct {
		Type            corev1.PodConditionType
		Reason, Message string
		Status          corev1.ConditionStatus
	}
	FirstSeenResizing   *float64 `json:"firstSeenResizingSecondsAgo"`
	Boosted             bool
	ReadySecondsAgo     *float64
	ResizeRestartPolicy corev1.ResourceResizeRestartPolicy
	LastInfeasible      corev1.ResourceList `json:"lastInfeasibleTarget"`
}

type budgetOp struct {
	Op  string `json:"op"`
	Pod string `json:"pod"`
}

type budgetInput struct {
	OwnerKind          string
	ConfiguredReplicas int
	Pods               []budgetPod
	MinReplicasFlag    int
	VPAMinReplicas     *int32
	EvictionTolerance  float64
	UpdateMode         vpav1.UpdateMode
	SkipBudget         bool `json:"inPlaceSkipDisruptionBudget"`
	Target             corev1.ResourceList
	Ops                []budgetOp
	FeatureGates       gates
}

type budgetResult struct {
	budgetOp
	Done     *bool  `json:"done,omitempty"`
	Decision string `json:"decision,omitempty"`
}

type budgetOutput struct {
	Results []budgetResult `json:"results"`
	Evicted int            `json:"evictedCount"`
}

// evaluationTime is the reference of all relative times in the cases.
func evaluationTime() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func ago(s float64) time.Time { return evaluationTime().Add(-vectors.Seconds(s)) }

const budgetContainer = "c"

func (p budgetPod) object() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.Name, UID: types.UID(p.Name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: budgetContainer, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("100Mi")}}}}},
		Status: corev1.PodStatus{Phase: p.Phase, StartTime: &metav1.Time{Time: evaluationTime().Add(-24 * time.Hour)}},
	}
	if p.Phase == "" {
		pod.Status.Phase = corev1.PodRunning
	}
	if p.ResizeRestartPolicy != "" {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			pod.Spec.Containers[0].ResizePolicy = append(pod.Spec.Containers[0].ResizePolicy,
				corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: p.ResizeRestartPolicy})
		}
	}
	if c := p.ResizeCondition; c != nil {
		condition := corev1.PodCondition{Type: c.Type, Reason: c.Reason, Message: c.Message, Status: c.Status}
		if c.Status == "" {
			condition.Status = corev1.ConditionTrue
		}
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
	}
	if p.ReadySecondsAgo != nil {
		pod.Status.Conditions = append(pod.Status.Conditions, readySince(*p.ReadySecondsAgo))
	}
	if p.Boosted {
		pod.Annotations = map[string]string{convert.BoostAnnotationPrefix + budgetContainer: `{"requests":{"cpu":"50m","memory":"100Mi"},"limits":{}}`}
	}
	return pod
}

func readySince(secondsAgo float64) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(secondsAgo))}
}

func (in *budgetInput) vpa() *vpav1.VerticalPodAutoscaler {
	if in.Target == nil {
		in.Target = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("200Mi")}
	}
	return &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "v"},
		Spec:       vpav1.VerticalPodAutoscalerSpec{UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &in.UpdateMode, MinReplicas: in.VPAMinReplicas}},
		Status: vpav1.VerticalPodAutoscalerStatus{Recommendation: &vpav1.RecommendedPodResources{
			ContainerRecommendations: []vpav1.RecommendedContainerResources{{ContainerName: budgetContainer, Target: in.Target}}}},
	}
}

// replicas returns the replicas that the view reads from the owner.
func (in *budgetInput) replicas() int {
	switch in.OwnerKind {
	case "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet":
		return in.ConfiguredReplicas
	}
	return disruption.Unknown
}

func disruptionBudget(in budgetInput) (out budgetOutput, err error) {
	read := newSnapshot(in.vpa(), nil)
	v := read.Core(false)
	v.Groups = []disruption.Group{{Replicas: in.replicas()}}
	memory := disruption.State{Recommended: disruption.PodStates{Resizing: map[string]time.Time{}}}
	byName, objects := map[string]int{}, []*corev1.Pod{}
	for i, p := range in.Pods {
		byName[p.Name] = i
		objects = append(objects, p.object())
		v.Pods = append(v.Pods, read.Pod(objects[i]))
		if p.FirstSeenResizing != nil {
			memory.Recommended.Resizing[p.Name] = ago(*p.FirstSeenResizing)
		}
		if p.LastInfeasible != nil {
			refused := v.Pods[i].Targets()
			refused[0].Requests = convert.Resources(p.LastInfeasible)
			memory.Record(disruption.Action{Subject: disruption.Subject{UID: p.Name}, Containers: refused}, disruption.Infeasible, evaluationTime())
		}
	}
	ops := in.Ops
	if ops == nil {
		for _, p := range in.Pods {
			ops = append(ops, budgetOp{"evict", p.Name})
		}
	}
	config := disruption.Config{MinReplicas: in.MinReplicasFlag, Tolerance: in.EvictionTolerance, FreeResizes: in.SkipBudget, InPlaceMode: in.FeatureGates["InPlace"]}
	s := disruption.DecisionInput{Mode: v.Mode, Budget: disruption.NewBudget(&v, config), State: memory.Recommended, Config: config, Now: evaluationTime()}
	for _, op := range ops {
		pod := &v.Pods[byName[op.Pod]]
		result := budgetResult{budgetOp: op}
		switch op.Op {
		case "evict":
			result.Done = new(s.Evictable(pod) == "")
			if *result.Done {
				s.Budget.Spend(pod)
				out.Evicted++
			}
		case "inplace":
			decision, _ := s.Decide(pod)
			if decision == disruption.Proceed {
				s.Budget.Spend(pod)
			}
			result.Decision = decisionName(decision)
		case "unboost":
			verdict := boost.Judge(*read, objects[byName[op.Pod]], evaluationTime())
			result.Done = new(len(verdict.Expired) > 0 && !pod.Pending && pod.Resize == disruption.NotResizing)
		default:
			return out, fmt.Errorf("unknown op %q", op.Op)
		}
		out.Results = append(out.Results, result)
	}
	return out, nil
}

func decisionName(d disruption.Decision) string {
	switch d {
	case disruption.Proceed:
		return "InPlaceApproved"
	case disruption.JustRefused:
		return "InPlaceInfeasible"
	case disruption.StillRefused:
		return "InPlaceInfeasibleCached"
	case disruption.Evict:
		return "InPlaceEvict"
	}
	return "InPlaceDeferred"
}
