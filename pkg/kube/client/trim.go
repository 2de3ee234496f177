package client

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// Trim is a cache.TransformFunc that keeps only what the programs read.
//
// Of every object it drops managedFields. Of pods and of the seven kinds of
// controllers it keeps the metadata that identify them, and
//
//   - pods: annotations of ours and of the VPA, names, resources and resize
//     policies of containers, the node, what tells which quotas count them, and of the status what tells phase,
//     readiness, restarts, out-of-memory kills and the state of a resize;
//   - controllers: selector, replicas, the number of pods they want, and what
//     tells whether a rollout is under way;
//   - cron jobs: the labels of the pods they make.
//
// Of nodes it keeps what they can hold and whether they take pods. Of VPAs it drops
// what kubectl has last applied. Other objects, such as LimitRanges, stay whole. A
// trimmed object must never be written back with an update; the programs only send
// patches.
func Trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return trimPod(o), nil
	case *appsv1.Deployment:
		return &appsv1.Deployment{ObjectMeta: trimMeta(o.ObjectMeta),
			Spec: appsv1.DeploymentSpec{Selector: o.Spec.Selector, Replicas: o.Spec.Replicas, Paused: o.Spec.Paused},
			Status: appsv1.DeploymentStatus{
				ObservedGeneration: o.Status.ObservedGeneration, Replicas: o.Status.Replicas, UpdatedReplicas: o.Status.UpdatedReplicas,
				Conditions: progress(o.Status.Conditions),
			}}, nil
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{ObjectMeta: trimMeta(o.ObjectMeta),
			Spec: appsv1.ReplicaSetSpec{Selector: o.Spec.Selector, Replicas: o.Spec.Replicas}}, nil
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: trimMeta(o.ObjectMeta),
			Spec: appsv1.StatefulSetSpec{Selector: o.Spec.Selector, Replicas: o.Spec.Replicas, UpdateStrategy: o.Spec.UpdateStrategy},
			Status: appsv1.StatefulSetStatus{
				ObservedGeneration: o.Status.ObservedGeneration, Replicas: o.Status.Replicas, UpdatedReplicas: o.Status.UpdatedReplicas,
				CurrentRevision: o.Status.CurrentRevision, UpdateRevision: o.Status.UpdateRevision,
			}}, nil
	case *appsv1.DaemonSet:
		return &appsv1.DaemonSet{ObjectMeta: trimMeta(o.ObjectMeta),
			Spec: appsv1.DaemonSetSpec{Selector: o.Spec.Selector, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: o.Spec.UpdateStrategy.Type}},
			Status: appsv1.DaemonSetStatus{
				ObservedGeneration: o.Status.ObservedGeneration, CurrentNumberScheduled: o.Status.CurrentNumberScheduled,
				UpdatedNumberScheduled: o.Status.UpdatedNumberScheduled,
				DesiredNumberScheduled: o.Status.DesiredNumberScheduled,
				NumberReady:            o.Status.NumberReady,
			}}, nil
	case *corev1.ReplicationController:
		return &corev1.ReplicationController{ObjectMeta: trimMeta(o.ObjectMeta),
			Spec: corev1.ReplicationControllerSpec{Selector: o.Spec.Selector, Replicas: o.Spec.Replicas}}, nil
	case *batchv1.Job:
		return &batchv1.Job{ObjectMeta: trimMeta(o.ObjectMeta),
			Spec: batchv1.JobSpec{Selector: o.Spec.Selector, Parallelism: o.Spec.Parallelism}}, nil
	case *vpav1.VerticalPodAutoscaler:
		return trimVPA(o), nil
	case *corev1.Node:
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
			Spec: corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable}, Status: corev1.NodeStatus{Allocatable: o.Status.Allocatable}}, nil
	case *batchv1.CronJob:
		trimmed := &batchv1.CronJob{ObjectMeta: trimMeta(o.ObjectMeta)}
		trimmed.Spec.JobTemplate.Spec.Template.Labels = o.Spec.JobTemplate.Spec.Template.Labels
		return trimmed, nil
	}
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	// Anything else, such as a tombstone of a deleted object, passes unchanged.
	return object, nil
}

// progress keeps the condition that tells whether a rollout still moves.
func progress(conditions []appsv1.DeploymentCondition) []appsv1.DeploymentCondition {
	for _, c := range conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return []appsv1.DeploymentCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// trimMeta keeps what identifies an object, its labels, its owners, and the
// annotations that concern us.
func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		Generation:        m.Generation,
		Labels:            m.Labels,
		Annotations:       ours(m.Annotations),
		OwnerReferences:   m.OwnerReferences,
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
	}
}

// ours keeps the annotations whose key starts with "vpa" or with our prefix. An
// object that had others only keeps an empty map: whether a patch must add the
// map first depends on it.
func ours(annotations map[string]string) map[string]string {
	if annotations == nil {
		return nil
	}
	kept := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, "vpa") || strings.HasPrefix(key, "loadline.dev/") {
			kept[key] = value
		}
	}
	return kept
}

// trimVPA lets equal lists of a recommendation be one: where nothing was capped,
// the uncapped target is the target. These maps are most of what a VPA takes.
func trimVPA(v *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	trimmed := &vpav1.VerticalPodAutoscaler{TypeMeta: v.TypeMeta, ObjectMeta: v.ObjectMeta, Spec: v.Spec, Status: v.Status}
	trimmed.ManagedFields = nil
	trimmed.Annotations = maps.Clone(v.Annotations)
	delete(trimmed.Annotations, corev1.LastAppliedConfigAnnotation)
	if v.Status.Recommendation == nil {
		return trimmed
	}
	list := slices.Clone(v.Status.Recommendation.ContainerRecommendations)
	for i := range list {
		if apiequality.Semantic.DeepEqual(list[i].UncappedTarget, list[i].Target) {
			list[i].UncappedTarget = list[i].Target
		}
	}
	trimmed.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: list}
	return trimmed
}

func trimPod(p *corev1.Pod) *corev1.Pod {
	trimmed := &corev1.Pod{
		ObjectMeta: trimMeta(p.ObjectMeta),
		Spec: corev1.PodSpec{
			Containers:     trimContainers(p.Spec.Containers),
			InitContainers: trimContainers(p.Spec.InitContainers),
			NodeName:       p.Spec.NodeName,
			Resources:      p.Spec.Resources,
			Overhead:       p.Spec.Overhead,

			ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds,
			PriorityClassName:     p.Spec.PriorityClassName,
		},
		Status: corev1.PodStatus{
			Phase:                 p.Status.Phase,
			Reason:                p.Status.Reason,
			Conditions:            p.Status.Conditions,
			ContainerStatuses:     trimStatuses(p.Status.ContainerStatuses),
			InitContainerStatuses: trimStatuses(p.Status.InitContainerStatuses),
			StartTime:             p.Status.StartTime,
			QOSClass:              p.Status.QOSClass,
			Resize:                p.Status.Resize,
			ObservedGeneration:    p.Status.ObservedGeneration,
		},
	}
	if convert.Traits(p).CrossNamespace {
		trimmed.Spec.Affinity = p.Spec.Affinity
	}
	return trimmed
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	trimmed := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		trimmed[i] = corev1.Container{
			Name:          c.Name,
			Resources:     c.Resources,
			ResizePolicy:  c.ResizePolicy,
			RestartPolicy: c.RestartPolicy,
		}
	}
	return trimmed
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	trimmed := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		s := &statuses[i]
		trimmed[i] = corev1.ContainerStatus{
			Name:                 s.Name,
			State:                trimState(s.State),
			LastTerminationState: trimState(s.LastTerminationState),
			Ready:                s.Ready,
			RestartCount:         s.RestartCount,
			ContainerID:          s.ContainerID,
			Started:              s.Started,
			AllocatedResources:   s.AllocatedResources,
			Resources:            s.Resources,
		}
	}
	return trimmed
}

// trimState drops the messages, which may be long.
func trimState(s corev1.ContainerState) corev1.ContainerState {
	if s.Waiting != nil {
		s.Waiting = &corev1.ContainerStateWaiting{Reason: s.Waiting.Reason}
	}
	if t := s.Terminated; t != nil {
		s.Terminated = &corev1.ContainerStateTerminated{
			ExitCode:    t.ExitCode,
			Signal:      t.Signal,
			Reason:      t.Reason,
			StartedAt:   t.StartedAt,
			FinishedAt:  t.FinishedAt,
			ContainerID: t.ContainerID,
		}
	}
	return s
}
