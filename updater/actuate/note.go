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

// NoteOf returns what is to be noted on a pod before a change at now: what each container has, what it gets, and how it
// did so far. Where an earlier change is observed, what would be given back stays that of before.
func NoteOf(c Change, now time.Time) rollout.Change {
	note := rollout.Change{At: now.UTC().Truncate(time.Second), Generation: c.Target.Generation}
	note.Ready, _ = convert.Ready(c.Target)
	core := c.Autoscaler.Pod(c.Target)
	for i := range core.Containers {
		has := core.Containers[i].Spec
		at := slices.IndexFunc(c.Containers, func(f policy.ContainerTarget) bool { return f.Name == has.Name })
		if at < 0 {
			continue
		}
		f := c.Containers[at]
		restarts := restartsOf(c.Target, has.Name)
		if core.Containers[i].RestartsFor(f) {
			restarts++ // the resize itself, by the resize policy of the container
		}
		note.Containers = append(note.Containers, rollout.Sizing{
			From: has, To: policy.Container{Name: has.Name, Requests: f.Requests, Limits: f.Limits}, Restarts: restarts,
		})
	}
	slices.SortFunc(note.Containers, func(a, b rollout.Sizing) int { return strings.Compare(a.From.Name, b.From.Name) })
	if before, err := convert.NotedChange(c.Target); err == nil {
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

// noteAttempts is how often a note is written when the pod changes at the same moment.
const noteAttempts = 3

// noteChange writes the note of a change on its pod before the change is made. It replaces the note that
// the change was planned with, and no newer one.
func (c *Cluster) noteChange(ctx context.Context, change Change) (note rollout.Change, err error) {
	cached := change.Target
	other := func(key string) bool { return change.Target.Annotations[key] != cached.Annotations[key] }
	for range noteAttempts {
		if change.Target, err = c.live(ctx, cached); err != nil {
			return rollout.Change{}, err
		}
		if slices.ContainsFunc(convert.NoteAnnotations, other) {
			return rollout.Change{}, snapshot.ErrStale
		}
		note = NoteOf(change, Now(c.Clock))
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // texts never fail
			"uid": change.Target.UID, "resourceVersion": change.Target.ResourceVersion, "annotations": convert.ChangeNotes(note),
		}})
		if err = c.annotate(ctx, change.Target, patch); !apierrors.IsConflict(err) {
			break
		}
	}
	return note, err
}

// ErrNotRecordable is the error of a change that does not fit into the annotation from which it would be
// judged and taken back.
var ErrNotRecordable = errors.New("the change has more containers than its annotation has room for")

// recordable returns a change of as many containers as can be noted on the pod. The others follow when it
// has been judged. Memory after an out-of-memory kill does not wait for that: it is not judged then.
func recordable(c Change, now time.Time) (Change, error) {
	all := c.Containers
	for len(c.Containers) > 0 && !convert.Recordable(NoteOf(c, now)) {
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
	for key, value := range convert.ChangeNotes(note) {
		annotations[key] = value
	}
	return c.annotated(ctx, pod, annotations)
}

// RemoveNote takes the note of a change off its pod. A pod that is gone is no error.
func (c *Cluster) RemoveNote(ctx context.Context, pod *corev1.Pod) error {
	err := c.annotated(ctx, pod, map[string]any{convert.ResizedAtAnnotation: nil, convert.OriginalAnnotation: nil})
	if Gone(err) {
		return nil
	}
	return err
}

func (c *Cluster) annotated(ctx context.Context, pod *corev1.Pod, annotations map[string]any) error {
	patch, err := annotate(pod, annotations)
	if err != nil {
		return err
	}
	return c.annotate(ctx, pod, patch)
}

// withdraw takes back the note of a change that was refused: what was noted before, if anything, still holds.
func (c *Cluster) withdraw(ctx context.Context, change Change) {
	before := map[string]any{convert.ResizedAtAnnotation: nil, convert.OriginalAnnotation: nil}
	for key := range before {
		if value, there := change.Target.Annotations[key]; there {
			before[key] = value
		}
	}
	if err := c.annotated(ctx, change.Target, before); err != nil && !Gone(err) {
		klog.FromContext(ctx).Error(err, "The note of a change that was refused is left on its pod; it is taken off when the observation ends", "pod", klog.KObj(change.Target))
	}
}

// reverts is how often a resize that gives back is tried at once when somebody else changes the pod at the same moment.
const reverts = 3

// Revert resizes a pod to the sizes that its containers had before. It uses no rate limit and no budget. A pod that is gone is no error.
func (c *Cluster) Revert(ctx context.Context, pod *corev1.Pod, gets []policy.ContainerTarget) error {
	patch, err := givingBack(pod, gets)
	if err != nil {
		return fmt.Errorf("give back to pod %s: %w", klog.KObj(pod), err)
	}
	for try := 1; ; try++ {
		_, err = c.Kube.CoreV1().Pods(pod.Namespace).Patch(client.Unlimited(ctx), pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "resize")
		if !apierrors.IsConflict(err) || try >= reverts {
			break
		}
	}
	// A later iteration finds out by itself that the pod has its sizes again.
	if err = c.settle(ctx, pod, err, func(*corev1.Pod) bool { return false }); err != nil && !Gone(err) {
		return fmt.Errorf("give back to pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

func givingBack(pod *corev1.Pod, gets []policy.ContainerTarget) ([]byte, error) {
	steps := []client.PatchOperation{client.PatchTest("/metadata/uid", string(pod.UID))}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		for _, f := range gets {
			if f.Name == container.Name {
				steps = append(append(steps, client.PatchName(i, container)), testAmounts(i, container, printed(f))...)
				steps = client.AppendSizes(steps, i, container, printed(f))
			}
		}
	}
	return json.Marshal(steps)
}

// printed are the amounts of a container as people write them.
func printed(f policy.ContainerTarget) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: convert.Format{}.List(f.Requests), Limits: convert.Format{}.List(f.Limits)}
}

// Judged puts an event on pod and VPA when a change did harm, or came to nothing.
func (c *Cluster) Judged(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget) {
	reason, message, sizes := judged(pod, v, gets)
	if reason == report.EventReverted && c.Reverts != nil {
		c.Reverts.Reverted(cache.MetaObjectToName(vpa), v.Harm)
	}
	details := detailsOf(pod, sizes)
	c.Event(pod, reason, message, details)
	c.Event(vpa, reason, "A pod: "+message, details)
}

// RevertFailed writes events on pod and VPA about a harmful change that is not reverted yet.
func (c *Cluster) RevertFailed(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, err error) {
	message := fmt.Sprintf("Change did harm, %s, and could not be taken back yet; that is tried again: %s", harms[v.Harm], sameForAll(err, pod.Name))
	details := withError(detailsOf(pod, ""), err)
	c.Event(pod, report.EventResizeFailed, message, details)
	c.Event(vpa, report.EventResizeFailed, "A pod: "+message, details)
}

func judged(pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget) (reason, message, back string) {
	// What its spec asks for may not have been carried out.
	back = sizes(convert.NewPod(pod).Containers, gets, func(_ int, f policy.ContainerTarget) corev1.ResourceRequirements { return printed(f) })
	switch {
	case v.Outcome == rollout.Reverted:
		return report.EventReverted, "Change taken back, " + harms[v.Harm], back
	case v.Outcome == rollout.RevertDeferred:
		return report.EventRevertDeferred, fmt.Sprintf("Change not taken back in time, %s: the node has no room for it. It is asked for until there is some", harms[v.Harm]), back
	case v.Harm == rollout.InfeasibleResize:
		return report.EventResizeWithdrawn, "Resize withdrawn, its node can never do it", back
	case v.Harm == rollout.UnfinishedResize:
		return report.EventResizeFailed, "Resize not finished by its node within an hour", ""
	}
	return report.EventResizeFailed, fmt.Sprintf("Change did harm, %s; it stays, because spec.safety.autoRevert of the policy is false", harms[v.Harm]), ""
}

var harms = map[rollout.Harm]string{
	rollout.OOMKill:  "a container was killed for want of memory",
	rollout.Restart:  "a container restarts again and again",
	rollout.Throttle: "a container is throttled at its CPU limit",
	rollout.Pressure: "a container waits for CPU",
	rollout.NotReady: "the pod is not ready any more",
}
