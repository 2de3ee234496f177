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

// KillForMemory returns the pod's status after an OOM kill and restart of one container. It returns
// false if the container does not run.
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
				ExitCode:    137, // of a process killed by SIGKILL
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

// kill writes the status after an OOM kill. After a conflict the caller retries with a newer pod.
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

// killOnRequest executes OOMAnnotation. It removes the annotation first, to avoid a second kill if
// one of the writes fails.
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
