package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

// NewNote returns the old and new resources, the restarts and the readiness before a change. If an
// earlier change is under observation, it keeps the original resources of its note.
func NewNote(c Change, now time.Time) rollout.Change {
	note := rollout.Change{At: now.UTC().Truncate(time.Second), Generation: c.Object.Generation}
	note.Ready, _ = convert.Ready(c.Object)
	core := c.Autoscaler.Pod(c.Object)
	for i := range core.Containers {
		has := core.Containers[i].Spec
		at := slices.IndexFunc(c.Containers, func(f policy.ContainerTarget) bool { return f.Name == has.Name })
		if at < 0 {
			continue
		}
		f := c.Containers[at]
		restarts := restartsOf(c.Object, has.Name)
		if core.Containers[i].RestartsFor(f) {
			restarts++ // the resize itself, by the resize policy of the container
		}
		note.Containers = append(note.Containers, rollout.ContainerChange{
			From: has, To: policy.Container{Name: has.Name, Requests: f.Requests, Limits: f.Limits}, Restarts: restarts,
		})
	}
	slices.SortFunc(note.Containers, func(a, b rollout.ContainerChange) int { return strings.Compare(a.From.Name, b.From.Name) })
	if before, err := convert.ParseChange(c.Object); err == nil {
		note = before.Renewed(note)
	}
	return note
}

func restartsOf(pod *corev1.Pod, container string) int {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			return int(s.RestartCount)
		}
	}
	return 0
}

const noteAttempts = 3

// noteChange replaces the note that the change was planned with, and no newer one.
func (c *Cluster) noteChange(ctx context.Context, change Change) (note rollout.Change, err error) {
	cached := change.Object
	other := func(key string) bool { return change.Object.Annotations[key] != cached.Annotations[key] }
	for range noteAttempts {
		if change.Object, err = c.readLive(ctx, cached); err != nil {
			return rollout.Change{}, err
		}
		if slices.ContainsFunc(convert.ChangeAnnotations, other) {
			return rollout.Change{}, snapshot.ErrStale
		}
		note = NewNote(change, Now(c.Clock))
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // strings never fail
			"uid": change.Object.UID, "resourceVersion": change.Object.ResourceVersion, "annotations": convert.FormatChange(note),
		}})
		if err = c.patchAnnotations(ctx, change.Object, patch); !apierrors.IsConflict(err) {
			break
		}
	}
	return note, err
}

// ErrNotRecordable is the error of a change too large for its annotation, which reverts need.
var ErrNotRecordable = errors.New("the change exceeds the size of its annotation")

// recordable returns a change of as many containers as the note can hold. The others follow after
// the verdict. If nothing fits, an OOM resize is made without observation.
func recordable(c Change, now time.Time) (Change, error) {
	all := c.Containers
	for len(c.Containers) > 0 && !convert.FitsAnnotation(NewNote(c, now)) {
		c.Containers = c.Containers[:len(c.Containers)*9/10]
	}
	switch {
	case len(c.Containers) > 0 || len(all) == 0:
		return c, nil
	case c.OOMResize:
		c.Containers, c.Observed = all, false
		return c, nil
	}
	return c, ErrNotRecordable
}

// Note writes a change on its pod.
func (c *Cluster) Note(ctx context.Context, pod *corev1.Pod, note rollout.Change) error {
	annotations := map[string]any{}
	for key, value := range convert.FormatChange(note) {
		annotations[key] = value
	}
	return c.setAnnotations(ctx, pod, annotations)
}

// RemoveNote removes the note of a change from its pod. It ignores a deleted pod.
func (c *Cluster) RemoveNote(ctx context.Context, pod *corev1.Pod) error {
	err := c.setAnnotations(ctx, pod, map[string]any{convert.ResizedAtAnnotation: nil, convert.OriginalAnnotation: nil})
	if IsGone(err) {
		return nil
	}
	return err
}

func (c *Cluster) setAnnotations(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error {
	patch, err := annotationPatch(pod, annotations)
	if err != nil {
		return err
	}
	return c.patchAnnotations(ctx, pod, patch)
}

func (c *Cluster) restoreNote(ctx context.Context, change Change) {
	before := map[string]any{convert.ResizedAtAnnotation: nil, convert.OriginalAnnotation: nil}
	for key := range before {
		if value, there := change.Object.Annotations[key]; there {
			before[key] = value
		}
	}
	if err := c.setAnnotations(ctx, change.Object, before); err != nil && !IsGone(err) {
		klog.FromContext(ctx).Error(err, "Failed to remove the note of a refused change from its pod, the end of its observation removes it", "pod", klog.KObj(change.Object))
	}
}

const revertAttempts = 3

// Revert restores previous resources without rate limit and budget. It ignores a deleted pod.
func (c *Cluster) Revert(ctx context.Context, pod *corev1.Pod, gets []policy.ContainerTarget) error {
	patch, err := revertPatch(pod, gets)
	if err != nil {
		return fmt.Errorf("revert pod %s: %w", klog.KObj(pod), err)
	}
	for try := 1; ; try++ {
		_, err = c.Kube.CoreV1().Pods(pod.Namespace).Patch(client.Unlimited(ctx), pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "resize")
		if !apierrors.IsConflict(err) || try >= revertAttempts {
			break
		}
	}
	// If the result is unknown, a later iteration reads it from the pod.
	if err = c.resolveResult(ctx, pod, err, func(*corev1.Pod) bool { return false }); err != nil && !IsGone(err) {
		return fmt.Errorf("revert pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

func revertPatch(pod *corev1.Pod, gets []policy.ContainerTarget) ([]byte, error) {
	steps := []client.PatchOperation{client.PatchTest("/metadata/uid", string(pod.UID))}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		for _, f := range gets {
			if f.Name == container.Name {
				steps = append(append(steps, client.PatchTestName(i, container)), testAmounts(i, container, printed(f))...)
				steps = client.AppendResources(steps, i, container, printed(f))
			}
		}
	}
	return json.Marshal(steps)
}

func printed(f policy.ContainerTarget) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: convert.Format{}.List(f.Requests), Limits: convert.Format{}.List(f.Limits)}
}

// Judged emits an event on the pod and the VPA about a harmful or failed change.
func (c *Cluster) Judged(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget) {
	reason, message, sizes := describeVerdict(pod, v, gets)
	if reason == report.EventReverted && c.Reverts != nil {
		c.Reverts.Reverted(cache.MetaObjectToName(vpa), v.Harm)
	}
	details := detailsOf(pod, sizes)
	c.Event(pod, reason, message, details)
	c.Event(vpa, reason, "A pod: "+message, details)
}

// RevertFailed emits events on the pod and the VPA about a harmful change that is not reverted yet.
func (c *Cluster) RevertFailed(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, err error) {
	message := fmt.Sprintf("Failed to revert a harmful change (%s), retrying: %s", harmTexts[v.Harm], withoutPodName(err, pod.Name))
	details := withError(detailsOf(pod, ""), err)
	c.Event(pod, report.EventResizeFailed, message, details)
	c.Event(vpa, report.EventResizeFailed, "A pod: "+message, details)
}

func describeVerdict(pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget) (reason, message, restored string) {
	// Not the spec: the node may not have made the change.
	restored = describeResources(convert.NewPod(pod).Containers, gets, func(_ int, f policy.ContainerTarget) corev1.ResourceRequirements { return printed(f) })
	switch {
	case v.Outcome == rollout.Reverted:
		return report.EventReverted, "Change reverted, " + harmTexts[v.Harm], restored
	case v.Outcome == rollout.RevertDeferred:
		return report.EventRevertDeferred, fmt.Sprintf("Change not reverted in time, %s: the node has no capacity. The revert is retried", harmTexts[v.Harm]), restored
	case v.Harm == rollout.InfeasibleResize:
		return report.EventResizeWithdrawn, "Resize withdrawn, its node can never grant it", restored
	case v.Harm == rollout.UnfinishedResize:
		return report.EventResizeFailed, "Resize not finished by its node within an hour", ""
	}
	return report.EventResizeFailed, fmt.Sprintf("Change did harm, %s. It is not reverted because spec.safety.autoRevert of the policy is false", harmTexts[v.Harm]), ""
}

var harmTexts = map[rollout.Harm]string{
	rollout.OOMKill:  "a container ran out of memory",
	rollout.Restart:  "a container restarts repeatedly",
	rollout.Throttle: "a container is throttled at its CPU limit",
	rollout.Pressure: "a container waits for CPU",
	rollout.NotReady: "the pod is no longer ready",
}
