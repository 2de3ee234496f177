package oldview

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// Division is what sharing makes of the pods of a Snapshot. Its pods are planned for apart from all
// others; the snapshot keeps them for what they do not share.
type Division struct {
	VPAs  []disruption.VPA       // with the pods that are to get something else than they have
	Pods  map[string]*DividedPod // those pods, by UID
	Ended []disruption.Subject   // pods that have their peak again: their mark goes
	Marks []Marking              // marks to be written whether their pods get something else or not
}

// Marking is a mark to be written on a pod.
type Marking struct {
	Of   disruption.Subject
	Mark sharing.Mark
}

// DividedPod is a pod that shares, or did, and is to get something else.
type DividedPod struct {
	Cause   disruption.Cause
	Mark    sharing.Mark  // to be written before
	Marked  bool          // it is written
	Shrinks bool          // a container of it gets less of something
	Reason  reason.Reason // why it is left alone all the same; empty: it is not

	starved *disruption.Pod // in the snapshot, if it may be evicted where it is refused memory; nil: it must not
}

// Refused notes why a pod does not get what it is to get: if that is memory after an out-of-memory kill, it
// may be evicted.
func (d *DividedPod) Refused(why reason.Reason) {
	if d.starved != nil {
		shares := *d.starved.Shares // which outlives the snapshot
		shares.Refused = why
		d.starved.Shares = &shares
	}
}

// HasShare reports whether sharing decides about a part of a pod of the snapshot.
func (s *Snapshot) HasShare(uid string) bool {
	if s.memo == nil {
		return false
	}
	known := s.memo.pods[types.UID(uid)]
	return known != nil && known.dividedIn(s.memo.pass)
}

// usualPod is a pod as all that is not shared of it is planned for.
type usualPod struct {
	kinds      [resources.Kinds]bool // that are not there
	containers []disruption.Container
	rests      bool // as of knownPod
	shares     disruption.Shares
}

// shrinkInterval is how long pods of a node on which some were made smaller are not made smaller again, unless
// somebody waits for what they would give: use goes up and down within the hour, and to follow it down
// at once moves pods twice to three times as often, for no fewer nodes and no less work undone.
// Where nodes are added and removed it is whoever waits, so that the timers of who removes them can run out.
const shrinkInterval = time.Hour

// Divide takes out of the snapshot what sharing decides about its pods, as of the last round, and
// says what that is at now. With seldom the pods of a node are made smaller once an hour at most, else also
// where somebody waits for that.
// It must be called after Read, by the same goroutine, before anything else is done with the
// snapshot. A pod that cannot be understood keeps what it shares.
func (r *Reader) Divide(ctx context.Context, s *Snapshot, seldom bool, now time.Time) *Division {
	if r.begun.IsZero() {
		r.begun = now
	}
	r.forgetKills()
	d := &division{Reader: r, snapshot: s, now: now, seldom: seldom, result: &Division{}}
	if s.memo == nil || r.memo.sharing == nil && !r.memo.marked {
		return d.result
	}
	for i := range s.View.VPAs {
		d.vpa(ctx, &s.View.VPAs[i])
	}
	for i := range s.left {
		d.vpa(ctx, &s.left[i])
	}
	return d.result
}

// division is a Division in the making.
type division struct {
	*Reader
	snapshot *Snapshot
	result   *Division
	now      time.Time
	seldom   bool
	last     map[string]time.Time // see lastShrinks; nil: nobody has asked
}

// Shrank notes that a pod of a node was made smaller.
func (r *Reader) Shrank(node string, now time.Time) {
	maps.DeleteFunc(r.shrunk, func(_ string, at time.Time) bool { return now.Sub(at) >= shrinkInterval })
	if r.shrunk == nil {
		r.shrunk = map[string]time.Time{}
	}
	r.shrunk[node] = now
}

// shrankLately reports whether the pods of a node are not to be made smaller, since some were a short while
// ago, by an earlier round than the last one: what that gives may be given in several passes.
func (d *division) shrankLately(name string, on *sharedNode) bool {
	if d.last == nil {
		d.last = d.lastShrinks()
	}
	last := d.last[name]
	if last.IsZero() || d.now.Sub(last) >= shrinkInterval || !last.Before(d.memo.sharing.at.Truncate(time.Second)) {
		return false
	}
	return d.seldom || !on.results[0].Wanted
}

// lastShrinks returns when pods of each node were made smaller. What was before the start is in the
// marks of pods: they count only as long as it matters and where the pods share, since others
// may write them, too.
func (d *division) lastShrinks() map[string]time.Time {
	last := map[string]time.Time{}
	maps.Copy(last, d.shrunk)
	if d.now.Sub(d.begun) >= shrinkInterval {
		return last
	}
	for i := range d.snapshot.View.VPAs {
		v := &d.snapshot.View.VPAs[i]
		vpa := d.memo.vpas[cache.NewObjectName(v.Namespace, v.Name)]
		if vpa == nil || !vpa.shares {
			continue
		}
		for j := range v.Pods {
			p := &v.Pods[j]
			if d.standing(d.sharedPodOf(p.UID), vpa) != Acts {
				continue
			}
			known := d.memo.pods[types.UID(p.UID)]
			if known == nil {
				continue
			}
			if mark := known.mark(); mark != nil && !mark.Reverted && mark.At.After(last[p.Node]) && !mark.At.After(d.now) {
				last[p.Node] = mark.At
			}
		}
	}
	return last
}

// vpa divides the pods of a VPA.
func (d *division) vpa(ctx context.Context, v *disruption.VPA) {
	known := d.memo.vpas[cache.NewObjectName(v.Namespace, v.Name)]
	if known == nil {
		return
	}
	var moving []disruption.Pod
	some, rest := false, true
	for i := range v.Pods {
		p := &v.Pods[i]
		pod := d.memo.pods[types.UID(p.UID)]
		if pod == nil {
			rest = false
			continue
		}
		if pod.extra != nil {
			pod.extra.divided = 0
		}
		if err := serving.Guard(func() error {
			if moved := d.pod(v, known, p, pod); moved != nil {
				moving = append(moving, *moved)
			}
			return nil
		}); err != nil {
			klog.FromContext(ctx).Error(err, "Pod keeps what it shares: it cannot be understood", "pod", klog.KRef(p.Namespace, p.Name), "vpa", v.Name)
		}
		if pod.dividedIn(d.memo.pass) {
			some, rest = true, rest && pod.extra.usual.rests
		} else {
			rest = rest && pod.rests
		}
	}
	if some && known.rollout != nil {
		known.rollout.Resting = known.rollout.quiet && rest
	}
	if len(moving) == 0 {
		return
	}
	apart := *v
	apart.Mode, apart.Ungated, apart.Outdated, apart.Requirements, apart.Pods = disruption.InPlace, true, false, nil, moving
	apart.Groups = slices.Clone(v.Groups)
	for i := range apart.Groups {
		apart.Groups[i].Key = "" // of what came of these changes nothing is remembered
	}
	d.result.VPAs = append(d.result.VPAs, apart)
}

// pod divides a pod, and returns how it is to be planned for apart; nil: it has what it is to have.
func (d *division) pod(v *disruption.VPA, vpa *knownVPA, p *disruption.Pod, known *knownPod) *disruption.Pod {
	shared, mark := d.sharedPodOf(p.UID), known.mark()
	if shared == nil && mark == nil {
		return nil
	}
	standing := d.standing(shared, vpa)
	if standing != Acts && mark == nil {
		return nil
	}
	var kinds [resources.Kinds]bool
	if standing == Acts {
		if p.Leaves = shared.leaves; p.Leaves && shared.shares == nil {
			return nil
		}
		kinds = shared.by.Settings.Kinds
	}
	a := aim{kinds: kinds, vpa: vpa, standing: standing, shared: shared}
	if mark != nil {
		for k, shared := range mark.Kinds {
			a.ends[k] = shared && (standing == Ends || standing == Acts && !kinds[k])
			a.kinds[k] = kinds[k] || shared
		}
	}
	a.peak = a.ends
	whole := p.Containers
	if known.extra == nil {
		known.extra = &podExtra{}
	}
	known.extra.divided = d.memo.pass
	usual := known.usually(a.kinds, whole)
	usual.shares.Whole = whole
	p.Shares, p.Containers = &usual.shares, usual.containers
	return d.moved(v, &a, p, whole, known)
}

// sharedPodOf returns what the last round knew of a pod.
func (d *division) sharedPodOf(uid string) *sharedPod {
	if d.memo.sharing == nil {
		return nil
	}
	return d.memo.sharing.pods[types.UID(uid)]
}

// aim is what a pod is to get of what it shares.
type aim struct {
	kinds    [resources.Kinds]bool
	vpa      *knownVPA
	standing Standing
	shared   *sharedPod
	// ends are the kinds that it does not share any more: of these no round knows a share.
	ends [resources.Kinds]bool
	// peak are the kinds of which it gets its peak, and never less than it has.
	peak [resources.Kinds]bool
}

// moved returns a pod as it is to be planned for; nil: it has what it is to have. Whole are its
// containers with all that is recommended.
func (d *division) moved(v *disruption.VPA, a *aim, p *disruption.Pod, whole []disruption.Container, known *knownPod) *disruption.Pod {
	memory, evict := d.killed(v, a, p, whole)
	if v.Outdated || len(a.vpa.reading.Recommendation) == 0 {
		return nil // nobody knows what its peak is
	}
	out := DividedPod{Cause: disruption.Shared}
	if known.mark() != nil {
		out.Mark = *known.mark()
	}
	out.Mark.Kinds = a.kinds
	switch harmed := d.harmed(a, p, known); {
	case a.standing == Ends:
		out.Cause = disruption.ShareEnded
		out.Mark = *known.mark()
	case harmed:
		a.peak, out.Cause = a.kinds, disruption.ShareReverted
		out.Mark.At, out.Mark.Restarts, out.Mark.Reverted = d.now.UTC().Truncate(time.Second), int(p.Restarts), true
		d.result.Marks = append(d.result.Marks, Marking{subject(v, p), out.Mark}) // whether its peak fits or not
	case known.mark() != nil && known.mark().Out(d.now):
		a.peak, out.Cause = a.kinds, disruption.ShareReverted
	case memory:
		a.peak[resources.Memory], out.Cause = true, disruption.ShareReverted
	case a.standing == Waits:
		return nil
	}
	part := d.part(a, whole, known)
	out.Mark.Kinds = others(out.Mark.Kinds, others(a.ends, part.grows))
	out.Reason = d.waits(a, p, whole, part, known.mark())
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
		d.endsShare(a, v, p, known.mark(), out.Mark)
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
func (d *division) endsShare(a *aim, v *disruption.VPA, p *disruption.Pod, has *sharing.Mark, left sharing.Mark) {
	if a.ends == [resources.Kinds]bool{} {
		return
	}
	of := subject(v, p)
	left.Kinds = others(has.Kinds, a.ends)
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
func (d *division) harmed(a *aim, p *disruption.Pod, known *knownPod) bool {
	safety := rollout.Safety{Revert: true, Restarts: rollout.DefaultRestarts}
	if a.vpa.rollout != nil {
		safety = a.vpa.rollout.Safety
	}
	return known.mark() != nil && safety.Revert && known.mark().Harmed(int(p.Restarts), safety.Restarts, d.now)
}

// waits says why a pod that is to get something else keeps what it has for now.
func (d *division) waits(a *aim, p *disruption.Pod, whole []disruption.Container, part *sharePart, mark *sharing.Mark) reason.Reason {
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
	if mark != nil && mark.Restarted(int(p.Restarts), d.now) {
		return reason.UnderObservation
	}
	if a.shared.node.Cordoned {
		return reason.HasShare // nobody could use what it gives away
	}
	if d.shrankLately(p.Node, a.shared.node) {
		return reason.RecentlyShrunk
	}
	return ""
}

// nearSeen is by how much a request may differ from the one that the last round saw: millicores
// and bytes.
var nearSeen = [resources.Kinds]float64{resources.CPU: 1, resources.Memory: 16e6}

// usually returns a pod without what is recommended of some kinds.
func (k *knownPod) usually(kinds [resources.Kinds]bool, whole []disruption.Container) *usualPod {
	if k.extra.usual != nil && k.extra.usual.kinds == kinds {
		return k.extra.usual
	}
	u := &usualPod{kinds: kinds, containers: slices.Clone(whole)}
	for i := range u.containers {
		for kind := range resources.Kind(resources.Kinds) {
			if kinds[kind] {
				u.containers[i].Fitted = without(u.containers[i].Fitted, kind)
			}
		}
	}
	core := k.core
	core.Containers = u.containers
	u.rests = !core.Changed() && core.Resize == disruption.NotResizing && !k.noted
	k.extra.usual = u
	return u
}

// markOf reads the mark of a pod; nil: it has none.
func markOf(pod *corev1.Pod) *sharing.Mark {
	m, marked := convert.Shared(pod)
	if !marked {
		return nil
	}
	return &m
}

// policyGone reports whether no policy selects the workload of a made VPA any more, as far as that
// can be known.
func (r *Reader) policyGone(v *knownVPA) bool {
	ruled := r.memo.ruled[v.reading.Object]
	return v.held == reason.PolicyUnknown && ruled != nil && ruled.answer.Policy == nil && r.Policies.Readable() && v.held == ruled.answer.Reason
}
