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
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// Division is the part of an iteration's view that sharing decides about. Its pods are planned apart from all others.
type Division struct {
	VPAs  []disruption.VPA       // with the pods that are to change
	Pods  map[string]*DividedPod // these pods, by UID
	Ended []disruption.Subject   // pods that have their peak again: their mark is removed
	Marks []Marking              // marks to write whether their pods change or not

	shared map[string]bool // pods of which sharing decides about a part, by UID
}

// Has reports whether sharing decides about a part of a pod.
func (d *Division) Has(uid string) bool { return d != nil && d.shared[uid] }

// Marking is a mark to be written on a pod.
type Marking struct {
	Of   disruption.Subject
	Mark sharing.Mark
}

// DividedPod is a pod that shares, or did, and is to change.
type DividedPod struct {
	Cause   disruption.Cause
	Mark    sharing.Mark  // to be written before
	Marked  bool          // it is written
	Shrinks bool          // a container of it gets less of a resource
	Reason  reason.Reason // why it is skipped all the same; empty: it is not

	starved *disruption.Pod // in the view, if it may be evicted where it is refused memory; nil: it must not
}

// Refused sets why a pod does not change: if it was to get memory after an out-of-memory kill, it may be evicted.
func (d *DividedPod) Refused(why reason.Reason) {
	if d.starved != nil {
		d.starved.Shares.Refused = why
	}
}

// View is a view whose pods are divided: VPAs with the index and the states of their pods.
type View struct {
	VPAs   []disruption.VPA
	Index  []int
	States [][]*snapshot.State
}

// shrinkInterval is the minimum time between two shrinks of pods on a node, unless another pod needs the room:
// usage varies within the hour, and following it down at once doubles or triples the resizes without saving nodes.
// With a node autoscaler it always applies, so that scale-down timers can expire.
const shrinkInterval = time.Hour

// Divide removes from views the resources that sharing decides about, as of the last round, and returns how their pods
// are to change. With seldom, pods of a node shrink once an hour at most; otherwise also where another pod needs the
// room. A pod that cannot be divided keeps its share.
func (s *Sharing) Divide(ctx context.Context, in Input, views []View, seldom bool, now time.Time) *Division {
	if s.begun.IsZero() {
		s.begun = now
	}
	s.forgetKills(views)
	d := &division{Sharing: s, in: in, views: views, now: now, seldom: seldom, wanted: in.wanted(), result: &Division{shared: map[string]bool{}}}
	for _, view := range views {
		for i := range view.VPAs {
			d.divide(ctx, &view.VPAs[i], view.Index[i], view.States[i])
		}
	}
	return d.result
}

// division is a Division under way.
type division struct {
	*Sharing
	in     Input
	views  []View
	result *Division
	now    time.Time
	seldom bool
	wanted bool                 // a policy wants sharing
	shrank map[string]time.Time // see lastShrinks; nil: not computed yet
}

// Shrank records that a pod of a node was made smaller.
func (s *Sharing) Shrank(node string, now time.Time) {
	maps.DeleteFunc(s.shrunk, func(_ string, at time.Time) bool { return now.Sub(at) >= shrinkInterval })
	if s.shrunk == nil {
		s.shrunk = map[string]time.Time{}
	}
	s.shrunk[node] = now
}

// recentlyShrunk reports whether pods of a node shrank a short while ago, by an earlier round than the last one: the
// shrinks of one round may take several iterations.
func (d *division) recentlyShrunk(name string, on *node) bool {
	if d.shrank == nil {
		d.shrank = d.lastShrinks()
	}
	last := d.shrank[name]
	if last.IsZero() || d.now.Sub(last) >= shrinkInterval || !last.Before(d.last.at.Truncate(time.Second)) {
		return false
	}
	return d.seldom || !on.results[0].Wanted
}

// lastShrinks returns when pods of each node shrank. Shrinks before the start of the process are in the marks of pods.
// They count only for an interval and where the pods share, since users may write marks, too.
func (d *division) lastShrinks() map[string]time.Time {
	last := map[string]time.Time{}
	maps.Copy(last, d.shrunk)
	if d.now.Sub(d.begun) >= shrinkInterval {
		return last
	}
	view := d.views[0]
	for i := range view.VPAs {
		e := &d.in.Policies[view.Index[i]]
		if !e.Shares {
			continue
		}
		for j := range view.VPAs[i].Pods {
			p := &view.VPAs[i].Pods[j]
			if d.standing(d.member(p.UID), e) != Acts {
				continue
			}
			if mark := view.States[i][j].Mark(); mark != nil && !mark.Reverted && mark.At.After(last[p.Node]) && !mark.At.After(d.now) {
				last[p.Node] = mark.At
			}
		}
	}
	return last
}

// divide divides the pods of a VPA.
func (d *division) divide(ctx context.Context, v *disruption.VPA, index int, states []*snapshot.State) {
	var moving []disruption.Pod
	for i := range v.Pods {
		p := &v.Pods[i]
		err := serving.Guard(func() error {
			if moved := d.pod(v, index, p, states[i].Mark()); moved != nil {
				moving = append(moving, *moved)
			}
			return nil
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Keeping the share of a pod: it cannot be divided", "pod", klog.KRef(p.Namespace, p.Name), "vpa", v.Name)
		}
	}
	if len(moving) == 0 {
		return
	}
	apart := *v
	apart.Mode, apart.Ungated, apart.Outdated, apart.Requirements, apart.Pods = disruption.InPlace, true, false, nil, moving
	apart.Groups = slices.Clone(v.Groups)
	for i := range apart.Groups {
		apart.Groups[i].Key = "" // outcomes of these changes are not remembered by owner
	}
	d.result.VPAs = append(d.result.VPAs, apart)
}

// pod divides a pod with its mark, and returns how it is to change; nil: it has its share.
func (d *division) pod(v *disruption.VPA, index int, p *disruption.Pod, mark *sharing.Mark) *disruption.Pod {
	shared := d.member(p.UID)
	if shared == nil && mark == nil {
		return nil
	}
	a := aim{vpa: &d.in.VPAs[index], policy: &d.in.Policies[index], shared: shared, mark: mark}
	a.standing = d.standing(shared, a.policy)
	if a.standing != Acts && mark == nil {
		return nil
	}
	if a.standing == Acts {
		if p.Leaves = shared.leaves; p.Leaves && shared.shares == nil {
			return nil
		}
		a.kinds = shared.by.Settings.Kinds
	}
	if mark != nil {
		kinds := a.kinds
		for k, shared := range mark.Kinds {
			a.ends[k] = shared && (a.standing == Ends || a.standing == Acts && !kinds[k])
			a.kinds[k] = kinds[k] || shared
		}
	}
	a.peak = a.ends
	d.result.shared[p.UID] = true
	whole := p.Containers
	p.Shares, p.Containers = &disruption.Shares{Whole: whole}, withoutKinds(whole, a.kinds)
	return d.moved(v, &a, p, whole)
}

// member returns a pod as of the last round; nil: there was none, or it did not see the pod.
func (d *division) member(uid string) *member {
	if d.last == nil {
		return nil
	}
	return d.last.pods[types.UID(uid)]
}

// aim is the target of a pod that shares.
type aim struct {
	kinds    [resources.Kinds]bool
	vpa      *snapshot.VPA
	policy   *policies.Effective
	standing Standing
	shared   *member
	mark     *sharing.Mark // nil: none
	// ends are the kinds that the pod does not share any more: no round computes a share of them.
	ends [resources.Kinds]bool
	// peak are the kinds of which the pod gets its peak, and never less than it has.
	peak [resources.Kinds]bool
}

// moved returns a pod as it is to be planned for; nil: it has what it is to have. Whole are its
// containers with all that is recommended.
func (d *division) moved(v *disruption.VPA, a *aim, p *disruption.Pod, whole []disruption.Container) *disruption.Pod {
	memory, evict := d.killed(v, a, p, whole)
	if v.Outdated || len(a.vpa.Recommendation) == 0 {
		return nil // nobody knows what its peak is
	}
	out := DividedPod{Cause: disruption.Shared}
	if a.mark != nil {
		out.Mark = *a.mark
	}
	out.Mark.Kinds = a.kinds
	switch harmed := d.harmed(a, p); {
	case a.standing == Ends:
		out.Cause = disruption.ShareEnded
		out.Mark = *a.mark
	case harmed:
		a.peak, out.Cause = a.kinds, disruption.ShareReverted
		out.Mark.At, out.Mark.Restarts, out.Mark.Reverted = d.now.UTC().Truncate(time.Second), int(p.Restarts), true
		d.result.Marks = append(d.result.Marks, Marking{subject(v, p), out.Mark}) // whether its peak fits or not
	case a.mark != nil && a.mark.Out(d.now):
		a.peak, out.Cause = a.kinds, disruption.ShareReverted
	case memory:
		a.peak[resources.Memory], out.Cause = true, disruption.ShareReverted
	case a.standing == Waits:
		return nil
	}
	part := a.part(whole)
	out.Mark.Kinds = others(out.Mark.Kinds, others(a.ends, part.grows))
	out.Reason = d.waits(a, p, whole, part)
	switch {
	case a.standing == Waits:
		part = part.only(a.peak)
	case !part.reaches(a.peak):
		if out.Reason != "" && out.Reason != reason.ChangedOutside && part.grows != [resources.Kinds]bool{} {
			part, out.Reason = part.growth(whole), "" // what would grow does not wait for what must not shrink
		}
	case out.Reason != "" || out.Cause == disruption.ShareReverted: // what gets its peak waits for nothing that does not
		if part, out.Reason = part.only(a.peak), ""; memory && part.grows[resources.Memory] { // nor that for CPU
			part = part.only([resources.Kinds]bool{resources.Memory: true})
		}
	case part.shrinks != [resources.Kinds]bool{}: // what grows may not fit, and follows
		part = part.only(others(a.kinds, a.peak))
	}
	if !part.moves() {
		d.endsShare(a, v, p, out.Mark)
		return nil
	}
	if evict && part.grows[resources.Memory] {
		out.starved = p
	}
	out.Shrinks = part.shrinks != [resources.Kinds]bool{}
	if out.Shrinks {
		out.Mark.At, out.Mark.Restarts, out.Mark.Reverted = d.now.UTC().Truncate(time.Second), int(p.Restarts), false
	}
	if d.result.Pods == nil {
		d.result.Pods = map[string]*DividedPod{}
	}
	d.result.Pods[p.UID] = new(out)
	moved := *p
	moved.Held, moved.MemoryOnly, moved.Leaves, moved.Containers = out.Reason, false, false, make([]disruption.Container, len(whole))
	for i := range whole {
		moved.Containers[i] = whole[i]
		moved.Containers[i].Fitted = part.fitted[i]
	}
	return &moved
}

// endsShare notes that a pod has its peak of what it does not share any more.
func (d *division) endsShare(a *aim, v *disruption.VPA, p *disruption.Pod, left sharing.Mark) {
	if a.ends == [resources.Kinds]bool{} {
		return
	}
	of := subject(v, p)
	left.Kinds = others(a.mark.Kinds, a.ends)
	if left.Kinds == [resources.Kinds]bool{} {
		d.result.Ended = append(d.result.Ended, of)
		return
	}
	d.result.Marks = append(d.result.Marks, Marking{of, left})
}

func subject(v *disruption.VPA, p *disruption.Pod) disruption.Subject {
	return disruption.Subject{Namespace: p.Namespace, VPA: v.Name, Pod: p.Name, UID: p.UID}
}

// harmed reports whether the share of a pod did harm.
func (d *division) harmed(a *aim, p *disruption.Pod) bool {
	safety := rollout.Safety{Revert: true, Restarts: rollout.DefaultRestarts}
	if a.policy.Policy != nil {
		safety = a.policy.Safety
	}
	return a.mark != nil && safety.Revert && a.mark.Harmed(int(p.Restarts), safety.Restarts, d.now)
}

// waits says why a pod that is to get something else keeps what it has for now.
func (d *division) waits(a *aim, p *disruption.Pod, whole []disruption.Container, part *sharePart) reason.Reason {
	if a.standing != Acts || a.peak == a.kinds {
		return ""
	}
	for i := range whole {
		for k, shared := range a.kinds {
			has, seen := whole[i].Asked.Requests.Value(resources.Kind(k)), a.shared.Requests[i][k]
			if shared && !a.peak[k] && math.Abs(float64(has)-seen) > nearSeen[k] {
				return reason.ChangedOutside
			}
		}
	}
	if part.shrinks == [resources.Kinds]bool{} {
		return ""
	}
	if a.mark != nil && a.mark.Restarted(int(p.Restarts), d.now) {
		return reason.UnderObservation
	}
	if a.shared.node.Cordoned {
		return reason.HasShare // nobody could use what it gives away
	}
	if d.recentlyShrunk(p.Node, a.shared.node) {
		return reason.RecentlyShrunk
	}
	return ""
}

// nearSeen is by how much a request may differ from the one that the last round saw: millicores
// and bytes.
var nearSeen = [resources.Kinds]float64{resources.CPU: 1, resources.Memory: 16e6}

// withoutKinds returns containers without targets of some kinds.
func withoutKinds(whole []disruption.Container, kinds [resources.Kinds]bool) []disruption.Container {
	containers := slices.Clone(whole)
	for i := range containers {
		for kind := range resources.Kind(resources.Kinds) {
			if kinds[kind] {
				containers[i].Fitted = without(containers[i].Fitted, kind)
			}
		}
	}
	return containers
}
