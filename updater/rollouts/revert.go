package rollouts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// revert restores previous resources. It returns how long to wait for the kubelet, or 0 if it is
// complete or the verdict became RevertDeferred. A node grants a resize as a whole, so on a full
// node only resources related to the harm are restored.
func (q *Queue) revert(
	ctx context.Context, o *observedPod, core *disruption.Pod, v *rollout.Verdict, now time.Time,
) (wait time.Duration, err error) {
	state := q.startRevert(o, now)
	nodeFull := core.Resize == disruption.ResizeDeferred || core.Resize == disruption.ResizeInfeasible
	if nodeFull && !state.reduced {
		if rest := unrelatedToHarm(core, v.Harm); len(rest) > 0 {
			if err := q.Executor.Revert(ctx, o.pod, rest); err != nil {
				return 0, err
			}
			q.updateRevert(o, func(r *revertState) { r.reduced = true })
			return recheckInterval, nil
		}
	}
	sizes := o.change.RevertTargets(running(core), v.Harm)
	if state.reduced {
		sizes = v.Harm.FilterTargets(sizes)
	}
	if len(sizes) > 0 {
		if err := q.requestRevert(ctx, o, *v, sizes); err != nil {
			return 0, err
		}
		if !reportsResources(o.pod) { // the kubelet will not confirm the resize
			q.reportRevert(o, *v, sizes)
			return 0, nil
		}
		return recheckInterval, nil // the confirmation of the kubelet is a pod event
	}
	return q.awaitRevert(ctx, o, core, v, state, now), nil
}

// awaitRevert returns how long to wait for the kubelet, or 0 if the revert completed or timed out.
func (q *Queue) awaitRevert(
	ctx context.Context, o *observedPod, core *disruption.Pod, v *rollout.Verdict, state revertState, now time.Time,
) (wait time.Duration) {
	timeout := disruption.DeferredTimeout
	switch {
	case core.Resize == disruption.NotResizing && len(allocatedDifferences(core)) == 0:
		if reportsResources(o.pod) && !state.reported {
			q.updateRevert(o, func(r *revertState) { r.reported = true })
			q.reportRevert(o, *v, nil)
		}
		return 0
	case core.Resize == disruption.ResizeInfeasible:
		timeout = 0
	case core.Resize == disruption.ResizeInProgress || core.Resize == disruption.ResizeError:
		timeout = disruption.InProgressTimeout
	}
	if left := state.since.Add(timeout).Sub(now); left > 0 {
		return min(left, recheckInterval)
	}
	v.Outcome = rollout.RevertDeferred
	klog.FromContext(ctx).Info("Revert not carried out by the node in time",
		"pod", klog.KObj(o.pod), "vpa", o.vpa.Object.Name, "reason", v.Harm)
	q.Executor.Judged(o.vpa.Object, o.podWithChange(), *v, o.change.RevertTargets(sizesOf(o.podWithChange(), core), v.Harm))
	q.Metrics.RevertDeferred(cache.MetaObjectToName(o.vpa.Object), v.Harm)
	return 0
}

// requestRevert notes the harm on the pod and then requests the resize, because the evidence may be
// gone at the next sync. A failed note does not block the revert.
func (q *Queue) requestRevert(ctx context.Context, o *observedPod, v rollout.Verdict, sizes []policy.ContainerTarget) error {
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(o.pod), "vpa", o.vpa.Object.Name, "reason", v.Harm)
	if noted := o.change; noted.Harm != v.Harm {
		noted.Harm = v.Harm
		limited, cancel := context.WithTimeout(client.Unlimited(ctx), harmNoteTimeout)
		err := q.Executor.Note(limited, o.pod, noted)
		cancel()
		if err != nil {
			log.Error(err, "Failed to note the harm on the pod, reverting anyway")
		}
	}
	if err := q.Executor.Revert(ctx, o.pod, sizes); errors.Is(err, snapshot.ErrStale) {
		return err
	} else if err != nil {
		q.Metrics.RevertFailed()
		if q.firstFailure(o) {
			q.Executor.RevertFailed(o.vpa.Object, o.pod, v, err)
		}
		return err
	}
	log.Info("Revert requested: the change did harm")
	return nil
}

// reportRevert reads nil sizes from the spec: an earlier sync requested the revert.
func (q *Queue) reportRevert(o *observedPod, v rollout.Verdict, sizes []policy.ContainerTarget) {
	pod := o.pod
	if sizes == nil {
		pod = o.podWithChange()
		sizes = differences(o.pod, pod)
	}
	if len(sizes) == 0 { // requested and reported by another process, or nothing was lowered
		return
	}
	q.Executor.Judged(o.vpa.Object, pod, v, sizes)
	q.Metrics.Reverted(cache.MetaObjectToName(o.vpa.Object), v.Harm)
}

func (o *observedPod) podWithChange() *corev1.Pod {
	pod := o.pod.DeepCopy()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		at := slices.IndexFunc(o.change.Containers, func(s rollout.ContainerChange) bool { return s.From.Name == c.Name })
		if at < 0 {
			continue
		}
		to := o.change.Containers[at].To
		c.Resources.Requests, c.Resources.Limits = with(c.Resources.Requests, to.Requests), with(c.Resources.Limits, to.Limits)
	}
	return pod
}

// with returns a list, which may be nil, with the amounts of another.
func with(list corev1.ResourceList, amounts resources.List) corev1.ResourceList {
	all := corev1.ResourceList{}
	maps.Copy(all, list)
	maps.Copy(all, convert.Format{}.List(amounts))
	return all
}

func differences(pod, before *corev1.Pod) (sizes []policy.ContainerTarget) {
	previous := convert.NewPod(before).Containers
	for i, c := range convert.NewPod(pod).Containers {
		if c.Requests != previous[i].Requests || c.Limits != previous[i].Limits {
			sizes = append(sizes, policy.ContainerTarget{Name: c.Name, Requests: c.Requests, Limits: c.Limits})
		}
	}
	return sizes
}

func sizesOf(pod *corev1.Pod, core *disruption.Pod) []rollout.RunningContainer {
	all := running(core)
	for i, c := range convert.NewPod(pod).Containers {
		all[i].Container = c
	}
	return all
}

// unrelatedToHarm returns the allocated resources that differ from the spec and are unrelated to a harm.
func unrelatedToHarm(core *disruption.Pod, harm rollout.Harm) (rest []policy.ContainerTarget) {
	for i := range core.Containers {
		current, spec := &core.Containers[i].Actual, &core.Containers[i].Spec
		f := policy.ContainerTarget{Name: spec.Name}
		for k := range resources.Kind(resources.Kinds) {
			if harm.Concerns(k) {
				continue
			}
			if a, set := current.Requests.Get(k); set && a != spec.Requests.Value(k) {
				f.Requests = f.Requests.With(k, a)
			}
			if a, set := current.Limits.Get(k); set && a != spec.Limits.Value(k) {
				f.Limits = f.Limits.With(k, a)
			}
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			rest = append(rest, f)
		}
	}
	return rest
}

// reportsResources reports whether the kubelet publishes container resources in the pod status.
func reportsResources(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Resources != nil })
}

func (q *Queue) reverting(o *observedPod) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, found := q.reverts[o.pod.UID]
	return o.change.Harm != "" || found && r.changeAt.Equal(o.change.At)
}

// startRevert returns the state of a revert. The first call starts the wait for the kubelet.
func (q *Queue) startRevert(o *observedPod, now time.Time) (state revertState) {
	q.updateRevert(o, func(r *revertState) {
		if r.since.IsZero() {
			r.since = now
		}
		state = *r
	})
	return state
}

func (q *Queue) updateRevert(o *observedPod, update func(*revertState)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.reverts[o.pod.UID]
	r.changeAt = o.change.At
	update(&r)
	q.reverts[o.pod.UID] = r
}

// keepRevert finishes a revert in progress even if the evidence has disappeared since.
func (q *Queue) keepRevert(o *observedPod, v rollout.Verdict) rollout.Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.reverts) >= maxEnded { // entries of deleted pods are never finished
		maps.DeleteFunc(q.reverts, func(_ types.UID, r revertState) bool { return o.change.At.Sub(r.changeAt) > maxNoteAge })
	}
	if v.Outcome == rollout.Reverted {
		if !q.reverts[o.pod.UID].changeAt.Equal(o.change.At) {
			q.reverts[o.pod.UID] = revertState{changeAt: o.change.At, verdict: v}
		}
	} else if before, found := q.reverts[o.pod.UID]; found && before.changeAt.Equal(o.change.At) {
		return before.verdict
	}
	return v
}

func (q *Queue) firstFailure(o *observedPod) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, found := q.reverts[o.pod.UID]
	if !found || r.failureReported {
		return false
	}
	r.failureReported = true
	q.reverts[o.pod.UID] = r
	return true
}

func running(core *disruption.Pod) (all []rollout.RunningContainer) {
	for i := range core.Containers {
		all = append(all, rollout.RunningContainer{Container: core.Containers[i].Spec, Restarts: core.Containers[i].Restarts})
	}
	for _, c := range core.FixedContainers {
		all = append(all, rollout.RunningContainer{Container: c})
	}
	return all
}

func allocatedDifferences(core *disruption.Pod) (sizes []policy.ContainerTarget) {
	for i := range core.Containers {
		c := &core.Containers[i]
		if c.Actual.Requests != c.Spec.Requests || c.Actual.Limits != c.Spec.Limits {
			sizes = append(sizes, policy.ContainerTarget{Name: c.Spec.Name, Requests: c.Actual.Requests, Limits: c.Actual.Limits})
		}
	}
	return sizes
}
