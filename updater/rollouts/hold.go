package rollouts

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

// Rollouts decides which pods under a SizingPolicy may change, and stores rollout states.
type Rollouts struct {
	Facts     *Facts
	Policies  *policies.Resolver
	Records   *records.Store // nil: no policies
	Pods      corelisters.PodLister
	Plan      disruption.Config
	Status    policies.Status
	Announcer *report.Announcer
	Metrics   Metrics

	passedOver    map[string]time.Time // by pod UID: when it was last free and not changed
	reportedTrips map[string]string    // by SizingPolicy: last reported message about its fuse
	lastStored    string               // namespace of the last record written without a pod change

	progress atomic.Pointer[map[cache.ObjectName]Progress] // of the last iteration, by VPA
}

// Progress is the progress of a rollout.
type Progress struct {
	Phase  rollout.Phase
	Canary rollout.Obstacle // why a canary is not promoted
	Next   time.Time        // earliest next change, if known
}

// Progress returns the rollout progress of a VPA's workload in the last iteration, or the zero
// value without a policy. It may run concurrently with the other methods.
func (r *Rollouts) Progress(vpa cache.ObjectName) Progress {
	if all := r.progress.Load(); all != nil {
		return (*all)[vpa]
	}
	return Progress{}
}

// Metrics count records, observed pods and reverts.
type Metrics interface {
	RecordFailed()
	Observed(pods int)
	Fuses(limits map[string]*policies.Limits)
	Reverted(vpa cache.ObjectName, harm rollout.Harm)
	RevertDeferred(vpa cache.ObjectName, harm rollout.Harm)
	RevertFailed()
	EvidenceMissing(pods int)
}

// Holds are the rollouts of an iteration.
type Holds struct {
	*Rollouts

	view      *snapshot.View
	effective []policies.Effective // by index in the view
	holds     map[cache.ObjectName]*Hold
	limits    map[string]*policies.Limits // by policy
	reverts   uint64                      // recorded reverts that limits include
	now       time.Time
	timedOut  map[string]bool // namespaces with a timeout of a record write
	limited   map[string]bool // namespaces with an exhausted write limit
}

// Hold is the rollout of one workload in an iteration.
type Hold struct {
	*policies.Effective
	rollout.HoldResult

	limits         *policies.Limits
	input          rollout.Workload
	before         rollout.State // the stored state
	stored         bool
	countedAsStart bool // counted against the start rate in this iteration
	sent           bool // a pod was or may have been changed in this iteration
	byUID          map[string]int
}

func (h *Hold) index(uid string) int {
	if h.byUID == nil { // built lazily, most workloads need none
		h.byUID = make(map[string]int, len(h.input.Pods))
		for i := range h.input.Pods {
			h.byUID[h.input.Pods[i].UID] = i
		}
	}
	if i, found := h.byUID[uid]; found {
		return i
	}
	return -1
}

// Hold marks the pods that must not change now, so that the plan spends no budget and capacity on
// them. States are stored before the first change of the workload, or by Save.
func (r *Rollouts) Hold(ctx context.Context, view *snapshot.View, all []policies.Effective, now time.Time) *Holds {
	h := &Holds{Rollouts: r, view: view, effective: all, reverts: r.recordedReverts(), now: now,
		holds: map[cache.ObjectName]*Hold{}, timedOut: map[string]bool{}, limited: map[string]bool{}}
	h.readLimits(ctx)
	for i := range view.VPAs {
		v, e := &view.VPAs[i], h.policy(i)
		if e == nil {
			continue
		}
		h.holds[h.name(i)] = h.holdVPA(ctx, v, view.States[i], e)
	}
	h.publish()
	return h
}

func (h *Holds) publish() {
	all := make(map[cache.ObjectName]Progress, len(h.holds))
	for name, hold := range h.holds {
		if hold != nil {
			all[name] = Progress{hold.State.Phase, hold.Canary, hold.Next}
		}
	}
	h.progress.Store(&all)
}

func (h *Holds) policy(i int) *policies.Effective {
	if e := &h.effective[h.view.Index[i]]; e.Policy != nil {
		return e
	}
	return nil
}

// HoldOf returns the rollout of a pod's workload, or nil without a policy or a known state.
func (h *Holds) HoldOf(s disruption.Subject) *Hold { return h.holds[snapshot.VPAOf(s)] }

// holdVPA returns nil if the rollout state is unknown, and then no pod may change.
func (h *Holds) holdVPA(ctx context.Context, v *disruption.VPA, states []*snapshot.State, e *policies.Effective) *Hold {
	if v.Outdated {
		return nil
	}
	hold := &Hold{Effective: e, limits: h.limits[e.PolicyName()]}
	if err := serving.Guard(func() error { return h.holdPods(v, states, hold) }); err != nil {
		klog.FromContext(ctx).Error(err, "Skipping the pods of a VPA: the state of their rollout is unknown", "vpa", klog.KRef(v.Namespace, v.Name))
		holdAll(v, reason.NoRecord)
		return nil
	}
	holdShareEvictions(v, e, hold, h.now)
	return hold
}

// holdShareEvictions forbids share evictions outside of the schedule and during observation.
func holdShareEvictions(v *disruption.VPA, e *policies.Effective, h *Hold, now time.Time) {
	for i := range v.Pods {
		pod := &v.Pods[i]
		switch {
		case !pod.EvictableForShare():
		case !h.input.Pods[i].ObservedSince.IsZero():
			pod.Share.Held = reason.UnderObservation
		case !e.Settings.Schedule.Open(now):
			pod.Share.Held = reason.OutsideWindow
		}
	}
}

func (h *Holds) holdPods(v *disruption.VPA, states []*snapshot.State, hold *Hold) error {
	state, err := h.Records.State(hold.Workload)
	if err != nil {
		return err
	}
	if hold.limits == nil {
		return errNoLimits
	}
	hold.before, hold.input = state, h.Facts.Workload(v, states, hold.Effective, h.Plan, h.now)
	hold.input.FuseTripped, hold.input.StartBlocked = hold.limits.Trip.Holds(hold.Workload.Key.Namespace), hold.limits.Starts <= 0
	for i := range hold.input.Pods {
		hold.input.Pods[i].SkippedAt = h.passedOver[hold.input.Pods[i].UID]
	}
	hold.evaluate(state, h.now)
	for i := range v.Pods {
		pod, result := &v.Pods[i], hold.Pods[i]
		pod.MemoryOnly = result.MemoryOnly
		if !result.Free {
			pod.Held = result.Reason
			if pod.Held == "" && hold.input.Pods[i].Due {
				pod.Held = reason.UnderObservation
			}
		}
		if h.harmed(pod, hold, i) {
			pod.Held, pod.MemoryOnly = reason.UnderObservation, false
		}
	}
	switch {
	case hold.Mode == fleet.Inherit || hold.Evict: // with Inherit the VPA decides
	case v.Mode == disruption.InPlaceOrRecreate:
		v.Mode, v.Ungated = disruption.InPlace, true
	case v.Mode == disruption.Recreate:
		holdAll(v, reason.EvictionNotAllowed)
	}
	return nil
}

// harmed reports whether the change of a pod did harm that Queue has not judged yet. The revert has
// priority even over more memory: a renewed note has a later time, and the harm would not count.
func (h *Holds) harmed(pod *disruption.Pod, hold *Hold, i int) bool {
	if hold.input.Pods[i].ObservedSince.IsZero() {
		return false
	}
	object := snapshot.CurrentPod(h.Pods, disruption.Subject{Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID})
	if object == nil {
		return false
	}
	change, err := convert.ParseChange(object)
	return err == nil && (change.Harm != "" || rollout.Judge(change, h.Facts.Evidence(object, pod, hold.Workload.Key), hold.Safety, h.now).EarlyHarm != "")
}

func (h *Hold) evaluate(state rollout.State, now time.Time) rollout.State {
	h.HoldResult = rollout.Hold(state, h.input, h.Settings, now.UTC().Truncate(time.Second))
	return h.State
}

func holdAll(v *disruption.VPA, why reason.Reason) {
	for i := range v.Pods {
		v.Pods[i].Held, v.Pods[i].MemoryOnly = why, false
	}
}

// Observes reports whether a change of a pod is noted on it and judged. Additional memory for a
// held pod after an out-of-memory kill is not part of a round, and only renews an existing note.
func (h *Holds) Observes(of disruption.Subject) bool {
	hold := h.HoldOf(of)
	if hold == nil || !hold.Observed {
		return false
	}
	i := hold.index(of.UID)
	return i >= 0 && (hold.Pods[i].Free || !hold.input.Pods[i].ObservedSince.IsZero())
}

// Admit stores the rollout state before the first change of a workload. It returns why the pod must
// not change, or "". If another process wrote the record, the pods are held anew.
func (h *Holds) Admit(ctx context.Context, of disruption.Subject) reason.Reason {
	hold, governed := h.holds[snapshot.VPAOf(of)]
	switch {
	case !governed:
		return ""
	case hold == nil: // unknown rollout state
		return reason.UnderObservation
	}
	i := hold.index(of.UID)
	if i < 0 { // the pod is not part of the rollout input
		return reason.UnderObservation
	}
	if !hold.Pods[i].Free && hold.Pods[i].MemoryOnly {
		return "" // not part of a round
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
			return reason.CoolingDown // a change of this iteration was already reverted
		}
		return ""
	}
	return cmp.Or(hold.Pods[i].Reason, reason.UnderObservation)
}

// LimitWrites skips further changes in a namespace that exhausted its write limit.
func (h *Holds) LimitWrites(namespace string) reason.Reason {
	h.limited[namespace] = true
	return reason.WriteLimit
}

// Limited reports whether a namespace exhausted its write limit in this iteration.
func (h *Holds) Limited(namespace string) bool { return h.limited[namespace] }

func (h *Holds) store(ctx context.Context, hold *Hold) error {
	err := h.write(ctx, hold, func(s rollout.State) rollout.State { return hold.evaluate(s, h.now) })
	hold.stored = hold.stored || err == nil
	return err
}

// maxHangingNamespaces is the number of namespaces with timeouts that end record writes.
const maxHangingNamespaces = 3

var errWriteTimedOut = errors.New("a recent write of a SizingRecord timed out")

// write stores a change of the state. After a timeout that fair scheduling did not shorten, it skips
// the namespace for the iteration, so that an unresponsive webhook does not consume the iteration. A
// write limit is not a failure.
func (h *Holds) write(ctx context.Context, hold *Hold, change func(rollout.State) rollout.State) error {
	namespace, err := hold.Workload.Key.Namespace, errWriteTimedOut
	shortened := fairwork.Shortens(ctx, records.WriteTimeout)
	if len(h.timedOut) < maxHangingNamespaces && !h.timedOut[namespace] {
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
		h.timedOut[namespace] = true
	}
	h.Metrics.RecordFailed()
	klog.FromContext(ctx).Error(err, "Failed to store the state of a rollout", "workload", hold.Workload.Key, "namespace", namespace)
	return err
}

// updateRecord only logs failures: the next iteration counts the change by its note (hold.adoptChanges).
func (h *Holds) updateRecord(ctx context.Context, of disruption.Subject, change func(rollout.State, *Hold) rollout.State) {
	if hold := h.HoldOf(of); hold != nil && hold.Observed {
		_ = h.write(client.Unlimited(ctx), hold, func(s rollout.State) rollout.State { return change(s, hold) })
	}
}

// Changed records a resize. A zero note is ignored.
func (h *Holds) Changed(ctx context.Context, of disruption.Subject, note rollout.Change) {
	if note.At.IsZero() {
		return
	}
	h.updateRecord(ctx, of, func(s rollout.State, hold *Hold) rollout.State {
		if s.Reverts() > hold.State.Reverts() { // reverted since it was admitted
			return s.RecordResizeStart(note.At)
		}
		return s.RecordChange(note)
	})
}

func (h *Holds) name(v int) cache.ObjectName {
	return cache.NewObjectName(h.view.VPAs[v].Namespace, h.view.VPAs[v].Name)
}

// Ended records a change that ends without observation: a refused resize, or an eviction.
func (h *Holds) Ended(ctx context.Context, of disruption.Subject, note rollout.Change, outcome rollout.Outcome) {
	h.updateRecord(ctx, of, func(s rollout.State, hold *Hold) rollout.State {
		return s.EndObservation(rollout.ObservationEnd{UID: of.UID, Change: note, Outcome: outcome}, hold.Settings, note.At)
	})
}
