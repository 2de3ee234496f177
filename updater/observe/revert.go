package observe

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
	"loadline.dev/loadline/updater/actuate"
)

// revert gives a pod back what it had, and returns how long to wait until the kubelet has carried that
// out; 0: it has, or the verdict says that it did not in time. A node grants a resize as a whole: where it
// has no room for all, only what the harm needs is given back, such as memory after an OOM kill.
func (q *Queue) revert(ctx context.Context, o *observed, core *disruption.Pod, v *rollout.Verdict, now time.Time) (wait time.Duration, err error) {
	waiting := q.waiting(o, now)
	full := core.Resize == disruption.ResizeDeferred || core.Resize == disruption.ResizeInfeasible
	if full && !waiting.reduced {
		if rest := beside(core, v.Harm); len(rest) > 0 {
			if err := q.Executor.GiveBack(ctx, o.pod, rest); err != nil {
				return 0, err
			}
			q.wait(o, func(f *found) { f.reduced = true })
			return again, nil
		}
	}
	gets := o.change.GiveBack(running(core), v.Harm)
	if waiting.reduced {
		gets = v.Harm.Needs(gets)
	}
	if len(gets) > 0 {
		if err := q.giveBack(ctx, o, *v, gets); err != nil {
			return 0, err
		}
		if !reported(o.pod) {
			q.reverted(o, *v, gets)
			return 0, nil
		}
		return again, nil // an event of the pod comes before
	}
	limit := disruption.DeferredTimeout
	switch {
	case core.Resize == disruption.NotResizing && len(allocated(core)) == 0:
		if reported(o.pod) && !waiting.reported {
			q.wait(o, func(f *found) { f.reported = true })
			q.reverted(o, *v, nil)
		}
		return 0, nil
	case core.Resize == disruption.ResizeInfeasible:
		limit = 0
	case core.Resize == disruption.ResizeInProgress || core.Resize == disruption.ResizeError:
		limit = disruption.InProgressTimeout
	}
	if left := waiting.since.Add(limit).Sub(now); left > 0 {
		return min(left, again), nil
	}
	v.Outcome = rollout.RevertDeferred
	klog.FromContext(ctx).Info("Revert not carried out by the node in time", "pod", klog.KObj(o.pod), "vpa", o.reading.Object.Name, "reason", v.Harm)
	q.Executor.Judged(o.reading.Object, o.changed(), *v, o.change.GiveBack(sizesOf(o.changed(), core), v.Harm))
	q.Metrics.RevertDeferred(cache.MetaObjectToName(o.reading.Object), v.Harm)
	return 0, nil
}

// giveBack resizes a pod so that it has what it had, once the harm is noted on it: the evidence may be
// gone at the next look. Where it cannot be noted, the change is taken back all the same.
func (q *Queue) giveBack(ctx context.Context, o *observed, v rollout.Verdict, gets []policy.Fitted) error {
	log := klog.FromContext(ctx).WithValues("pod", klog.KObj(o.pod), "vpa", o.reading.Object.Name, "reason", v.Harm)
	if noted := o.change; noted.Harm != v.Harm {
		noted.Harm = v.Harm
		soon, cancel := context.WithTimeout(ctx, longestNote)
		err := q.Executor.Note(soon, o.pod, noted)
		cancel()
		if err != nil {
			log.Error(err, "The harm that a change did could not be noted on its pod; the change is taken back all the same")
		}
	}
	if err := q.Executor.GiveBack(ctx, o.pod, gets); errors.Is(err, actuate.ErrStale) {
		return err
	} else if err != nil {
		q.Metrics.RevertFailed()
		if q.firstFailure(o) {
			q.Executor.NotTakenBack(o.reading.Object, o.pod, v, err)
		}
		return err
	}
	log.Info("Revert requested: the change did harm")
	return nil
}

// reverted reports and counts a revert that is in force. gets is what was given back just now; nil: it was
// before, and the pod shows it.
func (q *Queue) reverted(o *observed, v rollout.Verdict, gets []policy.Fitted) {
	pod := o.pod
	if gets == nil {
		pod = o.changed()
		gets = given(o.pod, pod)
	}
	if len(gets) == 0 { // another process has requested and reported it, or nothing was lowered
		return
	}
	q.Executor.Judged(o.reading.Object, pod, v, gets)
	q.Metrics.Reverted(cache.MetaObjectToName(o.reading.Object), v.Harm)
}

// changed returns the pod as its change has made it, before it was taken back.
func (o *observed) changed() *corev1.Pod {
	pod := o.pod.DeepCopy()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		at := slices.IndexFunc(o.change.Containers, func(s rollout.Sizing) bool { return s.From.Name == c.Name })
		if at < 0 {
			continue
		}
		to := o.change.Containers[at].To
		c.Resources.Requests, c.Resources.Limits = maps.Clone(c.Resources.Requests), maps.Clone(c.Resources.Limits)
		maps.Copy(c.Resources.Requests, convert.Format{}.List(to.Requests))
		maps.Copy(c.Resources.Limits, convert.Format{}.List(to.Limits))
	}
	return pod
}

// given lists the amounts in which a pod differs from what it was before.
func given(pod, before *corev1.Pod) (gets []policy.Fitted) {
	was := convert.NewPod(before).Containers
	for i, is := range convert.NewPod(pod).Containers {
		if is.Requests != was[i].Requests || is.Limits != was[i].Limits {
			gets = append(gets, policy.Fitted{Name: is.Name, Requests: is.Requests, Limits: is.Limits})
		}
	}
	return gets
}

// sizesOf are the containers of a pod as another spec of it is.
func sizesOf(pod *corev1.Pod, core *disruption.Pod) []rollout.Running {
	all := running(core)
	for i, c := range convert.NewPod(pod).Containers {
		all[i].Container = c
	}
	return all
}

// beside returns what the containers of a pod have of the kinds that a harm is not about, where their spec
// asks for something else.
func beside(core *disruption.Pod, why rollout.Harm) (rest []policy.Fitted) {
	for i := range core.Containers {
		has, asked := &core.Containers[i].Current, &core.Containers[i].Asked
		f := policy.Fitted{Name: asked.Name}
		for k := range resources.Kind(resources.Kinds) {
			if a, some := has.Requests.Get(k); some && !why.About(k) && a != asked.Requests.Value(k) {
				f.Requests = f.Requests.With(k, a)
			}
			if a, some := has.Limits.Get(k); some && !why.About(k) && a != asked.Limits.Value(k) {
				f.Limits = f.Limits.With(k, a)
			}
		}
		if !f.Requests.Empty() || !f.Limits.Empty() {
			rest = append(rest, f)
		}
	}
	return rest
}

// reported reports whether the kubelet says with which resources the containers of a pod run.
func reported(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Resources != nil })
}

// reverting reports whether the change of a pod is being taken back.
func (q *Queue) reverting(o *observed) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f, known := q.harms[o.pod.UID]
	return o.change.Harm != "" || known && f.at.Equal(o.change.At)
}

// waiting returns what is known of a revert, which begins to wait at now unless it did before.
func (q *Queue) waiting(o *observed, now time.Time) (w found) {
	q.wait(o, func(f *found) {
		if f.since.IsZero() {
			f.since = now
		}
		w = *f
	})
	return w
}

func (q *Queue) wait(o *observed, change func(*found)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.harms[o.pod.UID]
	f.at = o.change.At
	change(&f)
	q.harms[o.pod.UID] = f
}

// stands returns a verdict, or that of before if it was to take the change back: that may have
// been begun, and must not be forgotten.
func (q *Queue) stands(o *observed, v rollout.Verdict) rollout.Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.harms) >= mostEnded { // of pods that are gone
		maps.DeleteFunc(q.harms, func(_ types.UID, f found) bool { return o.change.At.Sub(f.at) > forgotten })
	}
	if v.Outcome == rollout.Reverted {
		if q.harms[o.pod.UID].at != o.change.At {
			q.harms[o.pod.UID] = found{at: o.change.At, verdict: v}
		}
	} else if before, known := q.harms[o.pod.UID]; known && before.at.Equal(o.change.At) {
		return before.verdict
	}
	return v
}

// firstFailure reports whether nobody was told yet that a change could not be taken back.
func (q *Queue) firstFailure(o *observed) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	f, known := q.harms[o.pod.UID]
	if !known || f.told {
		return false
	}
	f.told = true
	q.harms[o.pod.UID] = f
	return true
}

// running are the containers of a pod as its spec is.
func running(core *disruption.Pod) (all []rollout.Running) {
	for i := range core.Containers {
		all = append(all, rollout.Running{Container: core.Containers[i].Asked, Restarts: core.Containers[i].Restarts})
	}
	for _, c := range core.Fixed {
		all = append(all, rollout.Running{Container: c})
	}
	return all
}

// allocated is what the containers of a pod have, where they ask for something else.
func allocated(core *disruption.Pod) (gets []policy.Fitted) {
	for i := range core.Containers {
		c := &core.Containers[i]
		if c.Current.Requests != c.Asked.Requests || c.Current.Limits != c.Asked.Limits {
			gets = append(gets, policy.Fitted{Name: c.Asked.Name, Requests: c.Current.Requests, Limits: c.Current.Limits})
		}
	}
	return gets
}
