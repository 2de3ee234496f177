package play

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// KillForMemory returns the pod's status after the kernel killed one container
// for lack of memory and the kubelet restarted it at once. It is false when the
// pod has no such running container.
func KillForMemory(pod *corev1.Pod, container string, now time.Time) (corev1.PodStatus, bool) {
	status := *pod.Status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.Name != container || c.State.Running == nil {
				continue
			}
			c.RestartCount++
			c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode:    137, // of a process that got SIGKILL
				Reason:      "OOMKilled",
				ContainerID: c.ContainerID,
				StartedAt:   c.State.Running.StartedAt,
				FinishedAt:  metav1.NewTime(now),
			}}
			c.ContainerID = fmt.Sprintf("sim://%s/%s/%d", pod.UID, container, c.RestartCount)
			c.State.Running.StartedAt = metav1.NewTime(now)
			return status, true
		}
	}
	return status, false
}

// kill writes the killed container to the API server. A conflict is an error
// like any other: the caller comes back with a newer pod.
func kill(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container string, now time.Time) error {
	status, ok := KillForMemory(pod, container, now)
	if !ok {
		return nil
	}
	killed := pod.DeepCopy()
	killed.Status = status
	_, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, killed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("kill container %s of pod %s/%s: %w", container, pod.Namespace, pod.Name, err)
	}
	return nil
}

// killOnRequest carries out OOMAnnotation. The annotation goes first: if only
// one of the two writes succeeds, there is no second kill.
func killOnRequest(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, now time.Time) error {
	container := pod.Annotations[OOMAnnotation]
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:null}}}`, pod.ResourceVersion, OOMAnnotation)
	fresh, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("remove annotation %s of pod %s/%s: %w", OOMAnnotation, pod.Namespace, pod.Name, err)
	}
	if _, ok := KillForMemory(fresh, container, now); !ok {
		return fmt.Errorf("annotation %s of pod %s/%s: want the name of a running container, got %q", OOMAnnotation, pod.Namespace, pod.Name, container)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := kill(ctx, client, fresh, container, now)
		if apierrors.IsConflict(err) {
			if latest, getErr := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); getErr == nil {
				fresh = latest
			}
		}
		return err
	})
}
