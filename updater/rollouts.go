package updater

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

// heldWorkload is a workload under a SizingPolicy in a pass: what its rollout lets be done with
// its pods.
type heldWorkload struct {
	*policies.Effective
	limits *policies.Limits // of its policy
	input  rollout.Workload
	before rollout.State // as it is stored
	rollout.Held
	stored         bool           // its State is
	countedAsStart bool           // it has taken a start of its policy in this pass
	sent           bool           // a pod was changed in this pass, or may have been
	free           bool           // some pod is
	byUID          map[string]int // see index
}

// index returns where a pod is among those that the rollout was asked about; -1: it is not.
func (h *heldWorkload) index(uid string) int {
	if h.byUID == nil { // nobody asks about most workloads, and about all pods of some
		h.byUID = make(map[string]int, len(h.input.Pods))
		for i := range h.input.Pods {
			h.byUID[h.input.Pods[i].UID] = i
		}
	}
	if i, asked := h.byUID[uid]; asked {
		return i
	}
	return -1
}

// hold asks the rollout of each workload under a policy which of its pods may be changed now,
// and marks the others in the view, so that they spend no budget and no room. What the
// rollouts remember is stored later: before the first pod of a workload is changed, or at the
// end of the pass.
func (l *Loop) hold(ctx context.Context, it *iteration, limits map[string]*policies.Limits, now time.Time) map[cache.ObjectName]*heldWorkload {
	var all map[cache.ObjectName]*heldWorkload
	for i := range it.view.VPAs {
		v := &it.view.VPAs[i]
		of := it.policyAt(i)
		if of == nil || v.Outdated {
			continue
		}
		if all == nil {
			all = map[cache.ObjectName]*heldWorkload{}
		}
		h := &heldWorkload{Effective: of, limits: limits[of.PolicyName()]}
		if err := serving.Guard(func() error { return l.holdOne(v, it.view.States[i], h, now) }); err != nil {
			klog.FromContext(ctx).Error(err, "Pods left alone: it is not known how far the rollout of their workload is", "vpa", klog.KRef(v.Namespace, v.Name))
			holdAll(v, reason.NoRecord)
			continue
		}
		holdLeaving(v, of, h, now)
		all[cache.NewObjectName(v.Namespace, v.Name)] = h
	}
	return all
}

// holdLeaving forbids evictions of pods for their shares outside of the schedule, and while the pods are observed:
// such evictions are part of no rollout.
func holdLeaving(v *disruption.VPA, of *policies.Effective, h *heldWorkload, now time.Time) {
	for i := range v.Pods {
		pod := &v.Pods[i]
		switch {
		case !pod.Leaving():
		case !h.input.Pods[i].Observed.IsZero():
			pod.Share.Held = reason.UnderObservation
		case !of.Settings.Schedule.Open(now):
			pod.Share.Held = reason.OutsideWindow
		}
	}
}

func (l *Loop) holdOne(v *disruption.VPA, states []*snapshot.State, h *heldWorkload, now time.Time) error {
	state, err := l.records.State(h.Workload)
	if err != nil {
		return err
	}
	if h.limits == nil {
		return errNoLimits
	}
	h.before, h.input = state, l.workloads.Workload(v, states, h.Effective, l.config, now)
	h.input.Tripped, h.input.StartBlocked = h.limits.Trip.Holds(h.Workload.Key.Namespace), h.limits.Starts <= 0
	for i := range h.input.Pods {
		h.input.Pods[i].Passed = l.passed[h.input.Pods[i].UID]
	}
	h.ask(state, now)
	for i := range v.Pods {
		pod, answer := &v.Pods[i], h.Pods[i]
		pod.MemoryOnly, h.free = answer.Memory, h.free || answer.Free
		if !answer.Free {
			pod.Held = answer.Reason
			if pod.Held == "" && h.input.Pods[i].Due {
				pod.Held = reason.UnderObservation
			}
		}
		if l.harmed(pod, h, i, now) {
			pod.Held, pod.MemoryOnly = reason.UnderObservation, false
		}
	}
	switch {
	case h.Mode == fleet.Inherit || h.Evict: // with Inherit the VPA decides
	case v.Mode == disruption.InPlaceOrRecreate:
		v.Mode, v.Ungated = disruption.InPlace, true
	case v.Mode == disruption.Recreate:
		holdAll(v, reason.EvictionNotAllowed)
	}
	return nil
}

// harmed reports whether a pod shows that its change did harm, and nobody has judged that yet.
// That goes first, also before more memory: a note that is renewed forgets what was before.
func (l *Loop) harmed(pod *disruption.Pod, h *heldWorkload, i int, now time.Time) bool {
	if h.input.Pods[i].Observed.IsZero() {
		return false
	}
	object := l.pod(disruption.Subject{Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID})
	if object == nil {
		return false
	}
	change, err := convert.NotedChange(object)
	return err == nil && (change.Harm != "" || rollout.Judge(change, l.workloads.Evidence(object, pod, h.Workload.Key), h.Safety, now).Early != "")
}

// ask asks the rollout, with what is remembered of it.
func (h *heldWorkload) ask(state rollout.State, now time.Time) rollout.State {
	h.Held = rollout.Hold(state, h.input, h.Settings, now.UTC().Truncate(time.Second))
	return h.State
}

func holdAll(v *disruption.VPA, why reason.Reason) {
	for i := range v.Pods {
		v.Pods[i].Held, v.Pods[i].MemoryOnly = why, false
	}
}

// observes reports whether a change of a pod is to be noted on it and judged. Memory that a held
// pod gets after a kill is part of no round: only a note that is there already is renewed.
func (p *pass) observes(of disruption.Subject) bool {
	h := p.rollouts[vpaOf(of)]
	if h == nil || !h.Observed {
		return false
	}
	i := h.index(of.UID)
	return i >= 0 && (h.Pods[i].Free || !h.input.Pods[i].Observed.IsZero())
}

// admit stores what the rollout of a pod's workload remembers before the first pod is changed,
// and says why this pod must not be changed after all: somebody else may have written the record
// meanwhile.
func (p *pass) admit(ctx context.Context, of disruption.Subject) reason.Reason {
	h := p.rollouts[vpaOf(of)]
	if h == nil {
		if p.policy(vpaOf(of)) != nil {
			return reason.UnderObservation // its rollout was not asked
		}
		return ""
	}
	i := h.index(of.UID)
	if i < 0 {
		return reason.UnderObservation // nor was it about this pod
	}
	if !h.Pods[i].Free && h.Pods[i].Memory {
		return "" // that is part of no round
	}
	switch {
	case !h.Pods[i].Free:
	case p.fuseTripped(h):
		return reason.FuseTripped
	case !h.takeStart():
		return reason.StartRate
	}
	if h.Observed && !h.stored {
		switch err := p.store(ctx, h); {
		case client.IsWriteLimited(err):
			return p.writeLimited(of.Namespace)
		case err != nil:
			return reason.NoRecord
		}
	}
	if h.Pods[i].Free {
		if s, err := p.records.State(h.Workload); h.Observed && (err != nil || s.Reverts() > h.State.Reverts()) {
			return reason.CoolingDown // a change of this pass was taken back already
		}
		return ""
	}
	return cmp.Or(h.Pods[i].Reason, reason.UnderObservation)
}

// store stores what the rollout of a workload remembers, as of this pass.
func (p *pass) store(ctx context.Context, h *heldWorkload) error {
	err := p.write(ctx, h, func(s rollout.State) rollout.State { return h.ask(s, p.now) })
	h.stored = h.stored || err == nil
	return err
}

// maxHangingNamespaces is how many namespaces may hang in a pass before it writes no more records.
const maxHangingNamespaces = 3

// errHangs is the error of a record that is not written because others were not answered in time.
var errHangs = errors.New("a write of a SizingRecord timed out a moment ago")

// write changes the record of a workload. After a timeout that its turn has not shortened, the pass writes
// no other record of the namespace: an admission webhook that does not answer must not use up the pass. A
// namespace that has used its write limit is no failure.
func (p *pass) write(ctx context.Context, h *heldWorkload, change func(rollout.State) rollout.State) error {
	namespace, err := h.Workload.Key.Namespace, errHangs
	shortened := fairwork.Shortens(ctx, records.WriteTimeout)
	if len(p.hanging) < maxHangingNamespaces && !p.hanging[namespace] {
		_, err = p.records.Update(ctx, h.Workload, change)
	}
	if err == nil {
		return nil
	}
	if client.IsWriteLimited(err) {
		p.writeLimited(namespace)
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !shortened {
		if p.hanging == nil {
			p.hanging = map[string]bool{}
		}
		p.hanging[namespace] = true
	}
	p.metrics.RecordFailed()
	klog.FromContext(ctx).Error(err, "It could not be stored how far a rollout is", "workload", h.Workload.Key, "namespace", namespace)
	return err
}

// update changes what is remembered of the workload of a pod.
func (p *pass) update(ctx context.Context, of disruption.Subject, change func(rollout.State, rollout.Settings) rollout.State) {
	h := p.rollouts[vpaOf(of)]
	if h == nil || !h.Observed {
		return
	}
	// A failure is logged. The next pass reads what is missing from the pod.
	_ = p.write(client.Unlimited(ctx), h, func(s rollout.State) rollout.State { return change(s, h.Settings) })
}

// changed notes that a pod was changed. If that cannot be stored, the next pass sees it from the
// note on the pod.
func (p *pass) changed(ctx context.Context, of disruption.Subject, note rollout.Change) {
	h := p.rollouts[vpaOf(of)]
	if h == nil || note.At.IsZero() {
		return
	}
	p.update(ctx, of, func(s rollout.State, _ rollout.Settings) rollout.State {
		if s.Reverts() > h.State.Reverts() { // since it was admitted
			return s.Began(note.At)
		}
		return s.Changed(note)
	})
}

// failed notes that the API server refused a change of a pod.
func (p *pass) failed(ctx context.Context, c actuate.Change, note rollout.Change, err error) {
	if note.At.IsZero() || !actuate.Refused(err) { // it was not sent, or may have been carried out
		return
	}
	message, details := actuate.Failed(c, err)
	p.executor.Event(c.Autoscaler.Object, actuate.EventResizeFailed, message, details)
	p.update(ctx, c.Subject, func(s rollout.State, set rollout.Settings) rollout.State {
		return s.End(rollout.Ending{UID: c.UID, Change: note, Outcome: rollout.Failed}, set, note.At)
	})
}

// evicted notes that a pod was evicted for its change.
func (p *pass) evicted(ctx context.Context, c actuate.Change) {
	p.update(ctx, c.Subject, func(s rollout.State, set rollout.Settings) rollout.State {
		note := actuate.NoteOf(c, p.now)
		return s.End(rollout.Ending{UID: c.UID, Change: note, Outcome: rollout.Evicted}, set, note.At)
	})
}

// maxDeferredWrites is how many records a pass writes that no change of a pod waits for: the rest
// follows in the next one.
const maxDeferredWrites = 100

// storeDeferred writes records that no change of a pod waits for. Namespaces take turns, starting
// after the namespace served last, so that none delays the others for more than a pass.
func (p *pass) storeDeferred(ctx context.Context, all []*heldWorkload) {
	namespace := func(h *heldWorkload) string { return h.Workload.Key.Namespace }
	if next := slices.IndexFunc(all, func(h *heldWorkload) bool { return namespace(h) > p.lastStored }); next > 0 {
		all = slices.Concat(all[next:], all[:next])
	}
	written := 0
	fairwork.Run(fairwork.RoundRobin(all, namespace), fairwork.Work[*heldWorkload]{
		Workers: 1, Namespace: namespace,
		May: func(*heldWorkload) bool { return written < maxDeferredWrites && ctx.Err() == nil },
		Do: func(_ int, h *heldWorkload) {
			if p.limited[namespace(h)] {
				return // the next pass tries again
			}
			written++
			p.lastStored = namespace(h)
			_ = p.store(ctx, h) // a failure is logged, and the next pass tries again
		},
	})
}

// remember stores what changed in rollouts of which no pod was changed, such as the end of a
// round or a promotion, and which pods were free and are left alone all the same: then others
// go first the next time.
func (p *pass) remember(ctx context.Context, plan disruption.Result) {
	passed, changes := map[string]time.Time{}, map[string]bool{}
	for i := range plan.Actions {
		if a := &plan.Actions[i]; !a.SharesOnly() {
			changes[a.UID] = true
		}
	}
	observed, conflicts := 0, 0
	var turned []*heldWorkload
	for v := range p.view.VPAs { // they are in order
		name := cache.NewObjectName(p.view.VPAs[v].Namespace, p.view.VPAs[v].Name)
		if of := p.policyAt(v); of != nil && of.Rival != "" && conflicts < report.MaxEvents && p.news(report.Event{VPA: name, Reason: actuate.EventPolicyConflict, About: of.PolicyName() + " " + of.Rival}) {
			conflicts++
			p.say(name, actuate.EventPolicyConflict, "SizingPolicies "+of.PolicyName()+" and "+of.Rival+" select the workload and have the same priority: "+of.PolicyName()+" is responsible alone, since its name is smaller; give them different values of spec.priority, or let only one of them select it")
		}
		h := p.rollouts[name]
		if h == nil {
			continue
		}
		for i := range h.input.Pods {
			pod := &h.input.Pods[i]
			if h.Pods[i].Free && !changes[pod.UID] {
				passed[pod.UID] = p.now
			} else if at, known := p.passed[pod.UID]; known {
				passed[pod.UID] = at
			}
			if !pod.Observed.IsZero() {
				observed++
			}
		}
		if !h.stored && h.turned() {
			turned = append(turned, h)
		}
	}
	p.storeDeferred(ctx, turned)
	for v := range p.view.VPAs {
		name := cache.NewObjectName(p.view.VPAs[v].Namespace, p.view.VPAs[v].Name)
		if h := p.rollouts[name]; h != nil {
			p.announce(name, h)
		}
	}
	p.announced.Forget(p.now)
	if p.rollouts != nil || len(p.passed) > 0 {
		p.metrics.Observed(observed)
	}
	p.passed = passed
}

// announce says on the VPA how far a rollout is, each thing once an hour.
func (p *pass) announce(name cache.ObjectName, h *heldWorkload) {
	news := func(event, about string) bool {
		return p.news(report.Event{VPA: name, Reason: event, About: about})
	}
	if h.stored && h.before.Phase == rollout.PhaseCanary && h.State.Phase == rollout.PhaseFullRollout && news(actuate.EventCanaryPromoted, "") {
		p.say(name, actuate.EventCanaryPromoted, "The canary did well: all pods may be changed")
	}
	if why := obstacles[h.Canary]; why != "" && (h.Canary != rollout.NotObserved || !h.State.CanarySince.IsZero()) && news(actuate.EventCanaryHeld, why) {
		p.say(name, actuate.EventCanaryHeld, why)
	}
	if h.HPA && news(actuate.EventHPAConflict, h.PolicyName()) {
		p.say(name, actuate.EventHPAConflict, "A HorizontalPodAutoscaler looks at resources of the pods that SizingPolicy "+h.PolicyName()+" would change: spec.rollout.hpa says what becomes of these")
	}
	due := slices.ContainsFunc(h.Pods, func(a rollout.Answer) bool { return a.Reason == reason.CoolingDown })
	if due && !h.Next.IsZero() && news(actuate.EventCooldownActive, "") {
		p.say(name, actuate.EventCooldownActive, "Pods are not changed before "+h.Next.UTC().Format(time.RFC3339)+": the last round of changes ended a short time ago")
	}
	if h.State.ScheduleBlocked.Reason != "" && p.news(report.Event{VPA: name, Reason: actuate.EventScheduleSkipped, About: h.PolicyName(), Next: h.Next.Unix()}) {
		opens := "never: its zone or its windows cannot be read"
		if !h.Next.IsZero() {
			opens = h.Next.UTC().Format(time.RFC3339)
		}
		p.say(name, actuate.EventScheduleSkipped, "Pods are not changed outside of the schedule of SizingPolicy "+h.PolicyName()+"; it opens "+opens)
	}
}

// announceSkip says on the VPA why a pod is left alone for another reason than in the pass before: where a
// check before a change under a policy forbids it, and where policies leave the workload alone.
func (p *pass) announceSkip(s *disruption.Skip) {
	name := vpaOf(s.Subject)
	if p.skipsSaid >= report.MaxEvents { // after a start all are news; the reasons and their metric have them all
		return
	}
	switch s.Reason {
	case reason.OptedOut:
		if p.news(report.Event{VPA: name, Reason: actuate.EventWorkloadOptOut}) {
			p.skipsSaid++
			p.say(name, actuate.EventWorkloadOptOut, "No SizingPolicy changes the pods: "+s.Reason.Explain().Means)
		}
	case reason.NodePressure, reason.NodeUnknown, reason.NodeFull, reason.TooLargeForNode, reason.QuotaFull,
		reason.OutsideLimitRange, reason.ClassWouldChange, reason.StaticCPU:
		of := p.policy(name)
		if of == nil || p.division.Has(s.UID) { // shares move often, and a node that is full is no news to them
			return
		}
		if p.news(report.Event{VPA: name, Reason: actuate.EventResizeSkipped, About: s.Reason.String()}) {
			p.skipsSaid++
			p.say(name, actuate.EventResizeSkipped, fmt.Sprintf("Pods that SizingPolicy %s would resize are left alone, such as %s: %s (%s)", of.PolicyName(), s.Pod, s.Reason.Explain().Means, s.Reason))
		}
	}
}

// obstacles say why a canary that has ended its round is not promoted.
var obstacles = map[rollout.Obstacle]string{
	rollout.MemberNotSuccessful: "The canary is not promoted: the change of a member did not end well, or is still to come",
	rollout.NotObserved:         "The canary is not promoted: no change of it was observed to its end",
	rollout.MembersBlocked:      "The canary is not promoted: the nodes of its members do not grant the change",
	rollout.AutoPromoteOff:      "The canary did well and waits to be promoted: set spec.rollout.canary.autoPromote",
}

// news reports whether an event on a VPA is due, and records it as sent.
func (p *pass) news(e report.Event) bool {
	return p.vpaNow(e.VPA) != nil && p.announced.Add(e, p.now)
}

// say puts an event on a VPA.
func (p *pass) say(name cache.ObjectName, reason, message string) {
	if vpa := p.vpaNow(name); vpa != nil {
		p.executor.Event(vpa, reason, message, nil)
	}
}

// turned reports whether the rollout is at another point than the one stored. That a round
// may begin is no news as long as nothing was changed in it, nor is anything of a workload of
// which nothing is stored yet.
func (h *heldWorkload) turned() bool {
	return len(h.before.Rounds) > 0 && h.State.Turned(h.before)
}
