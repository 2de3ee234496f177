package rollouts

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/snapshot"
)

// Observes reports whether a change of a pod is noted on it and judged. More memory for a held pod after a kill is part of
// no round, and only renews an existing note.
func (h *Holds) Observes(of disruption.Subject) bool {
	hold := h.Of(of)
	if hold == nil || !hold.Observed {
		return false
	}
	i := hold.index(of.UID)
	return i >= 0 && (hold.Pods[i].Free || !hold.input.Pods[i].Observed.IsZero())
}

// Admit stores the state of the rollout of a pod before the first change, and returns why the pod must not change after
// all, or "": another process may have written the record since the plan.
func (h *Holds) Admit(ctx context.Context, of disruption.Subject) reason.Reason {
	hold, governed := h.holds[snapshot.VPAOf(of)]
	switch {
	case !governed:
		return ""
	case hold == nil: // the state of its rollout is unknown
		return reason.UnderObservation
	}
	i := hold.index(of.UID)
	if i < 0 { // the rollout did not decide about this pod
		return reason.UnderObservation
	}
	if !hold.Pods[i].Free && hold.Pods[i].MemoryOnly {
		return "" // part of no round
	}
	switch {
	case !hold.Pods[i].Free:
	case h.fuseTripped(hold):
		return reason.FuseTripped
	case !hold.takeStart():
		return reason.StartRate
	}
	if hold.Observed && !hold.stored {
		switch err := h.store(ctx, hold); {
		case client.IsWriteLimited(err):
			return reason.WriteLimit
		case err != nil:
			return reason.NoRecord
		}
	}
	if hold.Pods[i].Free {
		if s, err := h.Records.State(hold.Workload); hold.Observed && (err != nil || s.Reverts() > hold.State.Reverts()) {
			return reason.CoolingDown // a change of this iteration was reverted already
		}
		return ""
	}
	return cmp.Or(hold.Pods[i].Reason, reason.UnderObservation)
}

// LimitWrites skips further changes of a namespace that used its write limit.
func (h *Holds) LimitWrites(namespace string) reason.Reason {
	h.limited[namespace] = true
	return reason.WriteLimit
}

// Limited reports whether a namespace used its write limit in this iteration.
func (h *Holds) Limited(namespace string) bool { return h.limited[namespace] }

// store stores the state of a rollout.
func (h *Holds) store(ctx context.Context, hold *Hold) error {
	err := h.write(ctx, hold, func(s rollout.State) rollout.State { return hold.update(s, h.now) })
	hold.stored = hold.stored || err == nil
	return err
}

// maxHangingNamespaces is the maximum number of namespaces with timeouts before an iteration writes no more records.
const maxHangingNamespaces = 3

// errHangs is the error of a record that is not written because of earlier timeouts.
var errHangs = errors.New("a write of a SizingRecord timed out a moment ago")

// write changes the record of a workload. After a timeout that its turn has not shortened, the iteration writes
// no other record of the namespace: an admission webhook that does not answer must not use up the iteration. A
// namespace that used its write limit is no failure.
func (h *Holds) write(ctx context.Context, hold *Hold, change func(rollout.State) rollout.State) error {
	namespace, err := hold.Workload.Key.Namespace, errHangs
	shortened := fairwork.Shortens(ctx, records.WriteTimeout)
	if len(h.hanging) < maxHangingNamespaces && !h.hanging[namespace] {
		_, err = h.Records.Update(ctx, hold.Workload, change)
	}
	if err == nil {
		return nil
	}
	if client.IsWriteLimited(err) {
		h.LimitWrites(namespace)
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !shortened {
		if h.hanging == nil {
			h.hanging = map[string]bool{}
		}
		h.hanging[namespace] = true
	}
	h.Metrics.RecordFailed()
	klog.FromContext(ctx).Error(err, "Failed to store the state of a rollout", "workload", hold.Workload.Key, "namespace", namespace)
	return err
}

// update changes the record of the workload of a pod. Failures are logged, and the next iteration reads the missing part
// from the pod.
func (h *Holds) update(ctx context.Context, of disruption.Subject, change func(rollout.State, *Hold) rollout.State) {
	if hold := h.Of(of); hold != nil && hold.Observed {
		_ = h.write(client.Unlimited(ctx), hold, func(s rollout.State) rollout.State { return change(s, hold) })
	}
}

// Changed records a resize. A zero note is not recorded.
func (h *Holds) Changed(ctx context.Context, of disruption.Subject, note rollout.Change) {
	if note.At.IsZero() {
		return
	}
	h.update(ctx, of, func(s rollout.State, hold *Hold) rollout.State {
		if s.Reverts() > hold.State.Reverts() { // since it was admitted
			return s.Began(note.At)
		}
		return s.Changed(note)
	})
}

// Ended records the end of a change without observation: a refused resize, or an eviction.
func (h *Holds) Ended(ctx context.Context, of disruption.Subject, note rollout.Change, outcome rollout.Outcome) {
	h.update(ctx, of, func(s rollout.State, hold *Hold) rollout.State {
		return s.End(rollout.Ending{UID: of.UID, Change: note, Outcome: outcome}, hold.Settings, note.At)
	})
}
