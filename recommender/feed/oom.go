package feed

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
)

const oomKilled = "OOMKilled"

// PodOOMs returns the out-of-memory kills that show in the difference between
// two states of a pod. A kill counts when the container has just ended with it,
// or when it runs again after a restart whose cause it was; then the memory is
// the request that the killed container had, that of the older state. A
// container without memory request gives 0.
func PodOOMs(older, newer *corev1.Pod) []usage.OOM {
	var ooms []usage.OOM
	for i := range newer.Status.ContainerStatuses {
		now := &newer.Status.ContainerStatuses[i]
		before := status(older, now.Name)
		if before == nil {
			continue
		}
		restarted := now.RestartCount > before.RestartCount
		if t := now.State.Terminated; t != nil && t.Reason == oomKilled && (before.State.Terminated == nil || restarted) {
			ooms = append(ooms, oom(newer, now.Name, t))
			continue
		}
		running := now.State.Running != nil && before.State.Running != nil
		if t := now.LastTerminationState.Terminated; running && restarted && t != nil && t.Reason == oomKilled {
			ooms = append(ooms, oom(older, now.Name, t))
		}
	}
	return ooms
}

func status(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// oom describes the kill of a container with the memory request it has in pod.
func oom(pod *corev1.Pod, container string, end *corev1.ContainerStateTerminated) usage.OOM {
	report := usage.OOM{
		Container: usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: container},
		At:        end.FinishedAt.Time,
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			requests := convert.Current(pod, pod.Spec.Containers[i]).Requests
			report.Memory = convert.Resources(requests).Value(amount.Memory)
		}
	}
	return report
}

// Annotations with which the kubelet tells why it evicted a pod.
const (
	offenders      = "offending_containers"
	offendersUsage = "offending_containers_usage"
	starved        = "starved_resource"
)

// EvictionOOMs returns the out-of-memory evictions that an event reports: one for
// each container listed as short of memory, with the memory it used. Lists of
// different lengths are not trusted, entries that cannot be read are left out.
func EvictionOOMs(event *corev1.Event) []usage.OOM {
	if event.Reason != "Evicted" || event.InvolvedObject.Kind != "Pod" {
		return nil
	}
	containers := strings.Split(event.Annotations[offenders], ",")
	used := strings.Split(event.Annotations[offendersUsage], ",")
	resources := strings.Split(event.Annotations[starved], ",")
	if len(containers) != len(used) || len(containers) != len(resources) {
		return nil
	}
	var ooms []usage.OOM
	for i, container := range containers {
		if resources[i] != string(corev1.ResourceMemory) {
			continue
		}
		q, err := resource.ParseQuantity(used[i])
		if err != nil || q.Sign() < 0 {
			continue
		}
		ooms = append(ooms, usage.OOM{
			Container: usage.ContainerKey{Namespace: event.InvolvedObject.Namespace, Pod: event.InvolvedObject.Name, Container: container},
			At:        event.CreationTimestamp.Time,
			Memory:    convert.Amount(amount.Memory, q),
		})
	}
	return ooms
}
