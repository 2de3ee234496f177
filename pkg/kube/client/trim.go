package client

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// Trim is a cache.TransformFunc that keeps only fields that the programs read, within the limits in
// bound.go. Trimmed objects must only be patched, never updated. A Trimmer also shares equal parts.
func Trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return trimPod(o), nil
	case *appsv1.Deployment:
		return &appsv1.Deployment{ObjectMeta: selectableMeta(o.ObjectMeta),
			Spec: appsv1.DeploymentSpec{
				Selector: BoundSelector(o.Spec.Selector), Replicas: o.Spec.Replicas, Paused: o.Spec.Paused,
				Template: templateAnnotations(&o.Spec.Template),
			},
			Status: appsv1.DeploymentStatus{
				ObservedGeneration: o.Status.ObservedGeneration, Replicas: o.Status.Replicas, UpdatedReplicas: o.Status.UpdatedReplicas,
				AvailableReplicas: o.Status.AvailableReplicas,
				Conditions:        progressingCondition(o.Status.Conditions),
			}}, nil
	case *appsv1.ReplicaSet:
		return trimReplicaSet(o), nil
	case *ReplicaSet: // already trimmed
		return o, nil
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: selectableMeta(o.ObjectMeta),
			Spec: appsv1.StatefulSetSpec{
				Selector: BoundSelector(o.Spec.Selector), Replicas: o.Spec.Replicas, Ordinals: o.Spec.Ordinals,
				UpdateStrategy: statefulStrategy(o.Spec.UpdateStrategy), Template: templateAnnotations(&o.Spec.Template),
			},
			Status: appsv1.StatefulSetStatus{
				ObservedGeneration: o.Status.ObservedGeneration, Replicas: o.Status.Replicas, UpdatedReplicas: o.Status.UpdatedReplicas,
				AvailableReplicas: o.Status.AvailableReplicas,
				CurrentRevision:   boundString(o.Status.CurrentRevision), UpdateRevision: boundString(o.Status.UpdateRevision),
			}}, nil
	case *appsv1.DaemonSet:
		return &appsv1.DaemonSet{ObjectMeta: withTemplateGeneration(selectableMeta(o.ObjectMeta), o.Annotations),
			Spec: appsv1.DaemonSetSpec{
				Selector:       BoundSelector(o.Spec.Selector),
				UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: boundString(o.Spec.UpdateStrategy.Type)},
				Template:       templateAnnotations(&o.Spec.Template),
			},
			Status: appsv1.DaemonSetStatus{
				ObservedGeneration: o.Status.ObservedGeneration, CurrentNumberScheduled: o.Status.CurrentNumberScheduled,
				UpdatedNumberScheduled: o.Status.UpdatedNumberScheduled,
				DesiredNumberScheduled: o.Status.DesiredNumberScheduled,
				NumberReady:            o.Status.NumberReady,
				NumberAvailable:        o.Status.NumberAvailable,
			}}, nil
	case *corev1.ReplicationController:
		return &corev1.ReplicationController{ObjectMeta: identityMeta(o.ObjectMeta),
			Spec: corev1.ReplicationControllerSpec{Selector: boundLabels(o.Spec.Selector), Replicas: o.Spec.Replicas}}, nil
	case *batchv1.Job:
		return &batchv1.Job{ObjectMeta: identityMeta(o.ObjectMeta),
			Spec: batchv1.JobSpec{
				Selector: BoundSelector(o.Spec.Selector), Parallelism: o.Spec.Parallelism,
				PodFailurePolicy: disruptionRules(o.Spec.PodFailurePolicy),
			}}, nil
	case *vpav1.VerticalPodAutoscaler:
		return trimVPA(o), nil
	case *corev1.Node:
		return trimNode(o), nil
	case *autoscalingv2.HorizontalPodAutoscaler:
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: identityMeta(o.ObjectMeta),
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: boundHPATarget(o.Spec.ScaleTargetRef), Metrics: resourceMetrics(o.Spec.Metrics),
			}}, nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: boundLabels(o.Labels),
		}}, nil
	case *batchv1.CronJob:
		trimmed := &batchv1.CronJob{ObjectMeta: selectableMeta(o.ObjectMeta)}
		trimmed.Spec.JobTemplate.Spec.Template = templateAnnotations(&o.Spec.JobTemplate.Spec.Template)
		trimmed.Spec.JobTemplate.Spec.Template.Labels = boundLabels(o.Spec.JobTemplate.Spec.Template.Labels)
		return trimmed, nil
	case *corev1.LimitRange:
		return trimLimitRange(o), nil
	case *corev1.ResourceQuota:
		return trimQuota(o), nil
	}
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
		accessor.SetFinalizers(nil)
		accessor.SetOwnerReferences(fullOwners(accessor.GetOwnerReferences()))
		accessor.SetGenerateName("")
		accessor.SetSelfLink("")
		accessor.SetLabels(boundLabels(accessor.GetLabels()))
		accessor.SetAnnotations(knownAnnotations(accessor.GetAnnotations()))
	}
	return object, nil
}

func trimNode(o *corev1.Node) *corev1.Node {
	labels, taints := convert.VirtualNodeMarks(o)
	taints = firstN(taints, maxEntries)
	for i := range taints {
		taints[i] = corev1.Taint{Key: boundString(taints[i].Key), Value: boundString(taints[i].Value), Effect: boundString(taints[i].Effect)}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: addAutoscalerLabels(o.Labels, labels)},
		Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: taints},
		Status: corev1.NodeStatus{
			Allocatable: boundAllocatable(o.Status.Allocatable), Conditions: healthConditions(o.Status.Conditions),
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: boundString(o.Status.NodeInfo.KubeletVersion)},
		},
	}
}

func addAutoscalerLabels(labels, kept map[string]string) map[string]string {
	for _, key := range NodeAutoscalerLabels() {
		if value, has := labels[key]; has {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = boundString(value)
		}
	}
	return kept
}

func healthConditions(conditions []corev1.NodeCondition) (kept []corev1.NodeCondition) {
	for _, c := range conditions {
		switch c.Type {
		case corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if !slices.ContainsFunc(kept, func(k corev1.NodeCondition) bool { return k.Type == c.Type }) {
				kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: boundString(c.Status)})
			}
		}
	}
	return kept
}

// boundAllocatable keeps CPU, memory and one kind of GPU if a list is too long.
func boundAllocatable(list corev1.ResourceList) corev1.ResourceList {
	kept := boundListTo(list, maxNodeResources)
	if len(kept) == len(list) {
		return kept
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; convert.IsGPU(name) && len(name) <= maxReference && !q.IsZero() {
			kept[name] = q
			break
		}
	}
	return kept
}

const maxNodeResources = 64

func statefulStrategy(s appsv1.StatefulSetUpdateStrategy) appsv1.StatefulSetUpdateStrategy {
	kept := appsv1.StatefulSetUpdateStrategy{Type: boundString(s.Type)}
	if s.RollingUpdate != nil {
		kept.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: s.RollingUpdate.Partition}
	}
	return kept
}

// trimLimitRange keeps CPU and memory. The API server accepts one item of each type.
func trimLimitRange(o *corev1.LimitRange) *corev1.LimitRange {
	trimmed := &corev1.LimitRange{ObjectMeta: identityMeta(o.ObjectMeta)}
	for _, limitType := range [...]corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer} {
		if i := slices.IndexFunc(o.Spec.Limits, func(item corev1.LimitRangeItem) bool { return item.Type == limitType }); i >= 0 {
			item := &o.Spec.Limits[i]
			trimmed.Spec.Limits = append(trimmed.Spec.Limits, corev1.LimitRangeItem{Type: limitType,
				Min: mainResources(item.Min), Max: mainResources(item.Max), Default: mainResources(item.Default),
				DefaultRequest: mainResources(item.DefaultRequest), MaxLimitRequestRatio: mainResources(item.MaxLimitRequestRatio)})
		}
	}
	return trimmed
}

// trimQuota drops an oversized scope selector, so that the quota counts more pods.
func trimQuota(o *corev1.ResourceQuota) *corev1.ResourceQuota {
	trimmed := &corev1.ResourceQuota{ObjectMeta: identityMeta(o.ObjectMeta)}
	trimmed.Status.Hard, trimmed.Status.Used = convert.QuotaResources(o.Status.Hard), convert.QuotaResources(o.Status.Used)
	trimmed.Spec.Scopes = boundStrings(o.Spec.Scopes, maxEntries)
	if s := o.Spec.ScopeSelector; s != nil && len(s.MatchExpressions) <= maxEntries && s.Size() <= maxSelector {
		trimmed.Spec.ScopeSelector = s
	}
	return trimmed
}

// resourceMetrics keeps resource metrics and their target types. The result is not nil if metrics
// were dropped, because the API server defaults to CPU without any metric. More than maxMetrics
// metrics become CPU and memory metrics of all containers.
func resourceMetrics(metrics []autoscalingv2.MetricSpec) (kept []autoscalingv2.MetricSpec) {
	if len(metrics) > 0 {
		kept = []autoscalingv2.MetricSpec{}
	}
	for _, m := range metrics {
		switch {
		case len(kept) >= maxMetrics:
			kept = kept[:0:maxMetrics]
			for _, name := range mainNames {
				kept = append(kept, autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType}}})
			}
			return kept
		case m.Resource != nil:
			kept = append(kept, autoscalingv2.MetricSpec{Type: boundString(m.Type), Resource: &autoscalingv2.ResourceMetricSource{
				Name: boundString(m.Resource.Name), Target: autoscalingv2.MetricTarget{Type: boundString(m.Resource.Target.Type)}}})
		case m.ContainerResource != nil:
			c := m.ContainerResource
			kept = append(kept, autoscalingv2.MetricSpec{Type: boundString(m.Type), ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
				Name: boundString(c.Name), Container: boundString(c.Container), Target: autoscalingv2.MetricTarget{Type: boundString(c.Target.Type)}}})
		}
	}
	return kept
}

const maxMetrics = 50

func progressingCondition(conditions []appsv1.DeploymentCondition) []appsv1.DeploymentCondition {
	for _, c := range conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return []appsv1.DeploymentCondition{{Type: c.Type, Status: boundString(c.Status)}}
		}
	}
	return nil
}

func identityMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		Generation:        m.Generation,
		OwnerReferences:   BoundOwners(m.OwnerReferences),
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
	}
}

func selectableMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := identityMeta(m)
	kept.Labels, kept.Annotations = internLabels(boundLabels(m.Labels)), policyAnnotations(m.Annotations)
	return kept
}

func templateAnnotations(template *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: policyAnnotations(template.Annotations)}}
}

func trimPod(p *corev1.Pod) *corev1.Pod {
	trimmed := &corev1.Pod{
		ObjectMeta: identityMeta(p.ObjectMeta),
		Spec: corev1.PodSpec{
			Containers:     trimContainers(p.Spec.Containers),
			InitContainers: trimContainers(p.Spec.InitContainers),
			NodeName:       boundString(p.Spec.NodeName),
			Resources:      boundPodResources(p.Spec.Resources, maxResources),
			Overhead:       boundList(p.Spec.Overhead),

			ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds,
			RestartPolicy:         boundString(p.Spec.RestartPolicy),
			PriorityClassName:     boundString(p.Spec.PriorityClassName),
		},
		Status: corev1.PodStatus{
			Phase:                 boundString(p.Status.Phase),
			Conditions:            trimConditions(p.Status.Conditions),
			ContainerStatuses:     trimStatuses(p.Status.ContainerStatuses),
			InitContainerStatuses: trimStatuses(p.Status.InitContainerStatuses),
			StartTime:             p.Status.StartTime,
			QOSClass:              boundString(p.Status.QOSClass),
			ObservedGeneration:    p.Status.ObservedGeneration,
		},
	}
	if convert.EvictedByKubelet(p) {
		trimmed.Status.Reason = convert.ReasonEvicted
	}
	trimmed.Labels, trimmed.Annotations = boundLabels(p.Labels), knownAnnotations(p.Annotations)
	if TooLargeReason(p) != "" {
		trimmed.Labels = droppedLabels
	}
	if p.Spec.Resources != nil { // otherwise the containers have the same
		trimmed.Status.Resources = boundPodResources(p.Status.Resources, maxResources)
		trimmed.Status.AllocatedResources = boundList(p.Status.AllocatedResources)
	}
	if convert.Traits(p).CrossNamespace {
		trimmed.Spec.Affinity = crossNamespace
	}
	return trimmed
}

// TooLargeReason returns why no VPA can select an oversized pod, or an empty string.
func TooLargeReason(p *corev1.Pod) string {
	switch {
	case LabelsTooLarge(p.Labels):
		return "its labels exceed " + MaxLabels
	case len(p.Spec.Containers) > maxContainers || len(p.Spec.InitContainers) > maxContainers:
		return fmt.Sprintf("it has more than %d containers", maxContainers)
	}
	return ""
}

func wasOOMKilled(s corev1.ContainerStatus) bool {
	killed := func(end *corev1.ContainerStateTerminated) bool { return end != nil && end.Reason == convert.OOMKilled }
	return killed(s.State.Terminated) || killed(s.LastTerminationState.Terminated)
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	containers = boundContainers(containers)
	limit := resourcesEach(len(containers))
	trimmed := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		trimmed[i] = corev1.Container{
			Name:          boundString(c.Name),
			Resources:     boundResources(c.Resources, limit),
			ResizePolicy:  boundResizePolicy(c.ResizePolicy),
			RestartPolicy: boundOptionalString(c.RestartPolicy),
		}
	}
	return trimmed
}

func trimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	trimmed := make([]corev1.PodCondition, 0, 1) // enough for most pods
	for i := range conditions {
		c := &conditions[i]
		kept := corev1.PodCondition{Type: c.Type, Status: boundString(c.Status), LastTransitionTime: c.LastTransitionTime}
		switch c.Type {
		case corev1.PodReady:
		case corev1.PodResizePending, corev1.PodResizeInProgress:
			kept.Message, kept.Reason = truncate(c.Message, maxMessage), boundString(c.Reason)
			kept.LastProbeTime, kept.ObservedGeneration = c.LastProbeTime, c.ObservedGeneration
		default:
			continue
		}
		if !slices.ContainsFunc(trimmed, func(k corev1.PodCondition) bool { return k.Type == kept.Type }) {
			trimmed = append(trimmed, kept)
		}
	}
	return trimmed
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(statuses) == 0 {
		return nil
	}
	statuses = statuses[:min(len(statuses), maxContainers)]
	limit := resourcesEach(len(statuses))
	trimmed := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		s := &statuses[i]
		trimmed[i] = corev1.ContainerStatus{
			Name:                 boundString(s.Name),
			State:                trimState(s.State),
			LastTerminationState: trimState(s.LastTerminationState),
			Ready:                s.Ready,
			RestartCount:         s.RestartCount,
		}
		if s.Resources != nil {
			trimmed[i].Resources = boundPodResources(s.Resources, limit)
		}
	}
	return trimmed
}

// trimState keeps state and reason, and times and ID only after an OOM kill. Without times and
// messages most states are equal.
func trimState(s corev1.ContainerState) corev1.ContainerState {
	if s.Waiting != nil {
		s.Waiting = &corev1.ContainerStateWaiting{Reason: boundString(s.Waiting.Reason)}
	}
	if s.Running != nil {
		s.Running = &running
	}
	if end := s.Terminated; end != nil {
		s.Terminated = &corev1.ContainerStateTerminated{Reason: boundString(end.Reason)}
		if end.Reason == convert.OOMKilled {
			s.Terminated.StartedAt, s.Terminated.FinishedAt, s.Terminated.ContainerID = end.StartedAt, end.FinishedAt, boundString(end.ContainerID)
		}
	}
	return s
}

// running is shared and must not be changed.
var running corev1.ContainerStateRunning

func intern[T ~string](word T) T {
	if known, found := internedStrings[string(word)]; found {
		return T(known)
	}
	return word
}

var internedStrings = func() map[string]string {
	known := map[string]string{}
	for _, word := range []string{
		string(corev1.PodRunning), string(corev1.PodPending), string(corev1.PodSucceeded), string(corev1.PodFailed),
		string(corev1.RestartPolicyAlways), string(corev1.RestartPolicyNever), string(corev1.RestartPolicyOnFailure),
		string(corev1.PodQOSBurstable), string(corev1.PodQOSGuaranteed), string(corev1.PodQOSBestEffort),
		string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown),
		"system-node-critical", "system-cluster-critical", appsv1.SchemeGroupVersion.String(), "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job",
		"VerticalPodAutoscaler", vpav1.SchemeGroupVersion.String(),
		"app", "k8s-app", "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/component",
		"app.kubernetes.io/part-of", "app.kubernetes.io/managed-by", "helm.sh/chart", "Helm",
		appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey, appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel,
	} {
		known[word] = word
	}
	return known
}()
