package shares

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// Result holds the share marks to write. The shares are in the view (disruption.Pod.Share).
type Result struct {
	Moves map[string]*sharing.Mark // by UID: marks to write before the pods change
	Ended []disruption.Subject     // pods that reached their peak: their mark is removed
	Marks []MarkWrite              // marks to write even if their pods do not change

	shared map[string]bool // pods with a share, by UID
}

// Has reports whether a pod has a share.
func (d *Result) Has(uid string) bool { return d.shared[uid] }

// MarkWrite is a mark to write to a pod.
type MarkWrite struct {
	Subject disruption.Subject
	Mark    sharing.Mark
}

// shrinkInterval is the minimum time between two shrinks on a node, unless another pod needs the
// room. Following usage down at once doubles or triples the resizes without saving nodes. With a
// node autoscaler it always applies, so that scale-down timers can expire.
const shrinkInterval = time.Hour

// SetShares replaces the targets of shared resources in a view by the shares of the last round. With
// limitShrinks, pods of a node shrink at most once an hour, otherwise also when another pod needs
// the room. A pod that causes a panic keeps its share.
func (s *Sharing) SetShares(ctx context.Context, in Input, view *snapshot.View, limitShrinks bool, now time.Time) Result {
	if s.started.IsZero() {
		s.started = now
	}
	s.forgetKills(view)
	d := &division{Sharing: s, in: in, view: view, now: now, limitShrinks: limitShrinks, sharingEnabled: in.sharingEnabled(), result: Result{shared: map[string]bool{}}}
	for i := range view.VPAs {
		d.divide(ctx, &view.VPAs[i], view.Index[i], view.States[i])
	}
	return d.result
}

type division struct {
	*Sharing
	in             Input
	view           *snapshot.View
	result         Result
	now            time.Time
	limitShrinks   bool
	sharingEnabled bool                 // a policy enables sharing
	shrank         map[string]time.Time // see lastShrinks; nil: not computed yet
}

// Shrank records that a pod of a node shrank.
func (s *Sharing) Shrank(node string, now time.Time) {
	maps.DeleteFunc(s.shrunk, func(_ string, at time.Time) bool { return now.Sub(at) >= shrinkInterval })
	if s.shrunk == nil {
		s.shrunk = map[string]time.Time{}
	}
	s.shrunk[node] = now
}

// recentlyShrunk ignores shrinks for the last round, which may take several iterations.
func (d *division) recentlyShrunk(name string, on *node) bool {
	if d.shrank == nil {
		d.shrank = d.lastShrinks()
	}
	last := d.shrank[name]
	if last.IsZero() || d.now.Sub(last) >= shrinkInterval || !last.Before(d.last.Load().at.Truncate(time.Second)) {
		return false
	}
	return d.limitShrinks || !on.results[0].Wanted
}

// lastShrinks returns the time of the last shrink by node. Shrinks before process start are read
// from pod marks. As users may write marks, these count only for one interval and where pods share.
func (d *division) lastShrinks() map[string]time.Time {
	last := map[string]time.Time{}
	maps.Copy(last, d.shrunk)
	if d.now.Sub(d.started) >= shrinkInterval {
		return last
	}
	view := d.view
	for i := range view.VPAs {
		e := &d.in.Policies[view.Index[i]]
		if !e.Shares {
			continue
		}
		for j := range view.VPAs[i].Pods {
			p := &view.VPAs[i].Pods[j]
			if d.state(d.member(p.UID), e) != Active {
				continue
			}
			if mark := view.States[i][j].Mark(); mark != nil && !mark.Reverted && mark.At.After(last[p.Node]) && !mark.At.After(d.now) {
				last[p.Node] = mark.At
			}
		}
	}
	return last
}

func (d *division) divide(ctx context.Context, v *disruption.VPA, index int, states []*snapshot.State) {
	for i := range v.Pods {
		p := &v.Pods[i]
		if err := serving.Guard(func() error { d.dividePod(v, index, p, states[i].Mark()); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "Keeping the share of a pod: recovered from panic", "pod", klog.KRef(p.Namespace, p.Name), "vpa", v.Name)
		}
	}
}

func (d *division) dividePod(v *disruption.VPA, index int, p *disruption.Pod, mark *sharing.Mark) {
	shared := d.member(p.UID)
	if shared == nil && mark == nil {
		return
	}
	a := shareTarget{vpa: &d.in.VPAs[index], policy: &d.in.Policies[index], shared: shared, containers: p.Containers}
	a.state = d.state(shared, a.policy)
	if a.state != Active && mark == nil {
		return
	}
	share := &disruption.Share{}
	if a.state == Active {
		if share.Leaves = shared.leaves; share.Leaves && shared.shares == nil {
			p.Share = share
			return
		}
		a.kinds = shared.workload.Settings.Kinds
	}
	if mark != nil {
		a.mark = *mark
		kinds := a.kinds
		for k, shared := range mark.Kinds {
			a.ends[k] = shared && (a.state == Ending || a.state == Active && !kinds[k])
			a.kinds[k] = kinds[k] || shared
		}
	}
	d.result.shared[p.UID] = true
	share.Kinds, share.Peak = a.kinds, make([]policy.ContainerTarget, len(a.containers))
	for i := range a.containers {
		share.Peak[i] = a.containers[i].Target
	}
	p.Share, p.Containers = share, withoutKinds(a.containers, a.kinds)
	d.setShare(v, &a, p)
}

func (d *division) member(uid string) *member {
	last := d.last.Load()
	if last == nil {
		return nil
	}
	return last.pods[types.UID(uid)]
}

// shareTarget is the target of a pod that shares.
type shareTarget struct {
	facts
	vpa        *snapshot.VPA
	policy     *policies.Effective
	shared     *member
	containers []disruption.Container // with the complete recommendation
	peak       [resources.Kinds]bool  // see decision.peak
}

// setShare sets the target of a pod's share, unless the pod has it.
func (d *division) setShare(v *disruption.VPA, a *shareTarget, p *disruption.Pod) {
	var evict bool
	a.killed, evict = d.killed(v, a, p)
	if v.Outdated || len(a.vpa.Recommendation) == 0 {
		return // unknown peak
	}
	a.restarts, a.now = int(p.Restarts), d.now
	a.harmed = d.harmed(a)
	decided := a.decide()
	if decided.early {
		d.result.Marks = append(d.result.Marks, MarkWrite{subject(v, p), decided.mark})
	}
	if decided.cause == "" {
		return
	}
	a.peak = decided.peak
	part := a.sharePart()
	decided.mark.Kinds = exclude(decided.mark.Kinds, exclude(a.ends, part.grows))
	part, why := d.firstStep(part, a, decided.cause, p.Node)
	if !part.moves() {
		d.endsShare(a, subject(v, p), decided.mark)
		return
	}
	share := p.Share
	share.Cause, share.Target, share.Skip = decided.cause, part.fitted, why
	share.Shrinks, share.MayEvict = part.shrinks != [resources.Kinds]bool{}, evict && part.grows[resources.Memory]
	if share.Shrinks {
		decided.mark = a.marked(decided.mark, false)
	}
	if d.result.Moves == nil {
		d.result.Moves = map[string]*sharing.Mark{}
	}
	d.result.Moves[p.UID] = &decided.mark
}

// firstStep returns the part of a target to resize first, and why the share stays, or empty.
func (d *division) firstStep(part *sharePart, a *shareTarget, cause disruption.Cause, node string) (*sharePart, reason.Reason) {
	why := d.skipReason(part, a, node)
	switch {
	case a.state == Pending:
		return part.restrictTo(a.peak), why
	case !part.growsAny(a.peak):
		if why != "" && why != reason.ChangedOutside && part.grows != [resources.Kinds]bool{} {
			return part.growthOnly(a.containers), "" // growth does not wait for a delayed shrink
		}
	case why != "" || cause == disruption.ShareReverted: // a peak does not wait for other kinds
		part = part.restrictTo(a.peak)
		if a.killed && part.grows[resources.Memory] { // memory does not wait for CPU
			part = part.restrictTo([resources.Kinds]bool{resources.Memory: true})
		}
		return part, ""
	case part.shrinks != [resources.Kinds]bool{}: // growth may not fit and follows
		return part.restrictTo(exclude(a.kinds, a.peak)), why
	}
	return part, why
}

// endsShare removes kinds at their peak from the mark of a pod.
func (d *division) endsShare(a *shareTarget, of disruption.Subject, left sharing.Mark) {
	if a.ends == [resources.Kinds]bool{} {
		return
	}
	left.Kinds = exclude(a.mark.Kinds, a.ends)
	if left.Kinds == [resources.Kinds]bool{} {
		d.result.Ended = append(d.result.Ended, of)
		return
	}
	d.result.Marks = append(d.result.Marks, MarkWrite{of, left})
}

func subject(v *disruption.VPA, p *disruption.Pod) disruption.Subject {
	return disruption.Subject{Namespace: p.Namespace, VPA: v.Name, Pod: p.Name, UID: p.UID}
}

func (d *division) harmed(a *shareTarget) bool {
	safety := rollout.Safety{Revert: true, Restarts: rollout.DefaultRestarts}
	if a.policy.Policy != nil {
		safety = a.policy.Safety
	}
	return safety.Revert && a.mark.Harmed(a.restarts, safety.Restarts, d.now)
}

func (d *division) skipReason(part *sharePart, a *shareTarget, node string) reason.Reason {
	if a.state != Active || a.peak == a.kinds {
		return ""
	}
	for i := range a.containers {
		for k, shared := range a.kinds {
			has, seen := a.containers[i].Spec.Requests.Value(resources.Kind(k)), a.shared.Requests[i][k]
			if shared && !a.peak[k] && math.Abs(float64(has)-seen) > maxRequestDrift[k] {
				return reason.ChangedOutside
			}
		}
	}
	switch {
	case part.shrinks == [resources.Kinds]bool{}:
		return ""
	case a.mark.Restarted(a.restarts, d.now):
		return reason.UnderObservation
	case a.shared.node.Cordoned:
		return reason.HasShare // no new pod could use the room
	case d.recentlyShrunk(node, a.shared.node):
		return reason.RecentlyShrunk
	}
	return ""
}

// maxRequestDrift is the maximum drift of a request since the last round, in millicores and bytes.
var maxRequestDrift = [resources.Kinds]float64{resources.CPU: 1, resources.Memory: 16e6}

func withoutKinds(whole []disruption.Container, kinds [resources.Kinds]bool) []disruption.Container {
	containers := slices.Clone(whole)
	for i := range containers {
		for kind := range resources.Kind(resources.Kinds) {
			if kinds[kind] {
				containers[i].Target = without(containers[i].Target, kind)
			}
		}
	}
	return containers
}
