package updater

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

type scores struct {
	byVPA map[cache.ObjectName]*score
	order []*score // of the VPAs that may change pods
}

func (s *scores) forPod(pod disruption.Subject) *score {
	name := snapshot.VPAOf(pod)
	vpaScore := s.byVPA[name]
	if vpaScore == nil { // its policy is gone, and only marked shares may change
		vpaScore = &score{Name: name, Mode: vpav1.UpdateModeInPlace, Pods: 1}
		s.byVPA[name] = vpaScore
	}
	return vpaScore
}

// newScores counts planned changes and skips, and makes counters visible before the first change.
func (l *Loop) newScores(it *iteration) scores {
	it.skips = it.skipped()
	vpas := it.view.VPAs
	s := scores{byVPA: make(map[cache.ObjectName]*score, len(vpas)), order: make([]*score, 0, len(vpas))}
	all := make([]score, len(vpas))
	for i := range vpas {
		if vpas[i].Held != "" {
			continue
		}
		name := cache.NewObjectName(vpas[i].Namespace, vpas[i].Name)
		vpaScore := &all[i]
		*vpaScore = score{Name: name, Pods: len(vpas[i].Pods), Mode: it.mode(name)}
		s.byVPA[name], s.order = vpaScore, append(s.order, vpaScore)
		l.metrics.InitCounters(vpaScore)
	}
	for i := range it.plan.Actions {
		switch a := &it.plan.Actions[i]; {
		case a.SharesOnly():
		case a.Evict:
			s.forPod(a.Subject).Evictable++
		default:
			s.forPod(a.Subject).Updatable++
		}
	}
	for _, skip := range it.skips {
		if skip.Reason != reason.BudgetSpent {
			continue
		}
		vpaScore := s.forPod(skip.Subject)
		if vpaScore.Mode == vpav1.UpdateModeInPlaceOrRecreate || vpaScore.Mode == vpav1.UpdateModeInPlace {
			vpaScore.Updatable++
		} else {
			vpaScore.Evictable++
			vpaScore.Waiting++
		}
	}
	return s
}

func (it *iteration) skipped() []disruption.Skip {
	all := slices.Concat(it.plan.Skipped, it.pods.Skipped, it.view.Skipped)
	for i := range it.plan.Actions {
		if a := &it.plan.Actions[i]; a.Skip != "" {
			all = append(all, disruption.Skip{Subject: a.Subject, Reason: a.Skip})
		}
	}
	return all
}

func (it *iteration) logProblems(ctx context.Context) {
	for _, p := range it.plan.Problems {
		if p.VPA == "" {
			klog.FromContext(ctx).Error(errors.New(p.Panic), "Recovered from a panic while reading the pods without a VPA, please report it")
			continue
		}
		klog.FromContext(ctx).Error(errors.New(p.Panic), "Skipping the pods of a VPA: recovered from a panic of the planner, please report it", "vpa", klog.KRef(p.Namespace, p.VPA))
	}
}

func (it *iteration) policyName(name cache.ObjectName) string {
	if i := snapshot.Find(it.vpas, name); i >= 0 && it.policies[i].Policy != nil {
		return it.policies[i].PolicyName()
	}
	return ""
}

func (it *iteration) mode(name cache.ObjectName) vpav1.UpdateMode {
	i := snapshot.Find(it.vpas, name)
	if i < 0 {
		return vpav1.UpdateModeOff
	}
	if it.policies[i].Policy != nil {
		switch it.policies[i].Update {
		case disruption.InPlace:
			return vpav1.UpdateModeInPlace
		case disruption.InPlaceOrRecreate:
			return vpav1.UpdateModeInPlaceOrRecreate
		}
	}
	return convert.Mode(it.vpas[i].Object)
}

func (l *Loop) record(it *iteration, a *actuate.Attempt, now time.Time) {
	s := it.scores.forPod(a.Subject)
	switch a.Outcome {
	case actuate.OutcomeChanged:
		l.state.Record(a.Action, disruption.Done, now)
		event := report.EventResizedPods
		if a.Evict {
			event = report.EventEvictedPod
			l.metrics.Evicted(s)
			if a.Cause.Shares() {
				l.metrics.SharingEvicted()
			}
		} else {
			l.metrics.Resized(s)
		}
		l.tally.changed(s.Name, it.policyName(s.Name), event, a.Cause)
	case actuate.OutcomeLimited:
		if a.Evict {
			l.metrics.FailedEviction(s, evictionRateLimited)
		} else {
			l.metrics.FailedResize(s, "InPlaceUpdateRateLimiterWaitFailed")
		}
	case actuate.OutcomeRefused:
		if a.Evict {
			s.Refused = s.Refused || !a.Cause.Shares()
			l.metrics.FailedEviction(s, evictionError)
			return
		}
		l.state.Record(a.Action, disruption.Failed, now)
		l.metrics.FailedResize(s, "InPlaceUpdateError")
	case actuate.OutcomeTooLarge:
		l.state.Record(a.Action, disruption.Infeasible, now)
		if s.Mode == vpav1.UpdateModeInPlace {
			l.metrics.FailedResize(s, "InPlaceUpdateInfeasible")
		} else {
			l.metrics.FailedResize(s, "InPlaceUpdateError")
		}
	case actuate.OutcomeProtected:
		l.state.Record(a.Action, disruption.Prevented, now)
		l.metrics.FailedResize(s, "InPlaceUpdateError")
	case actuate.OutcomePrevented:
		l.state.Record(a.Action, disruption.Prevented, now)
	}
}

func (l *Loop) publish(ctx context.Context, it *iteration, late []disruption.Skip, now time.Time) {
	it.skips = append(it.skips, late...)
	l.reportSkips(ctx, it, now)
	l.reportTally(it, now)
	counts := map[reason.Reason]int{reason.NoVPA: it.pods.NoVPA}
	for i := range it.skips {
		counts[it.skips[i].Reason]++
	}
	l.metrics.Publish(it.scores.order, counts)
	l.metrics.DrainQueued(l.countedVPAs)
	for name := range l.countedVPAs {
		if snapshot.Find(it.vpas, name) < 0 {
			l.metrics.Forget(name)
			delete(l.countedVPAs, name)
		}
	}
	for name := range it.scores.byVPA {
		l.countedVPAs[name] = true
	}
}

func (l *Loop) reportSkips(ctx context.Context, it *iteration, now time.Time) {
	for i := range it.skips {
		if s := &it.skips[i]; s.Reason == reason.Infeasible {
			l.metrics.Infeasible(it.scores.forPod(s.Subject))
			if pod := snapshot.CurrentPod(l.reader.Pods, s.Subject); pod != nil {
				l.runner.Executor.NotResizable(ctx, pod)
			}
		}
	}
	changed, events := l.skips.Report(ctx, it.skips, now)
	l.runner.Executor.Skipped(changed)
	left := report.MaxEvents // after a start all are new
	for i := range changed {
		if left > 0 && l.announceSkip(it, &changed[i], now) {
			left--
		}
	}
	for _, e := range events {
		if !l.announcer.Sent(report.Event{VPA: e.VPA, Reason: report.EventResizeSkipped, About: e.Reason.String()}) {
			l.announcer.Write(e.VPA, e.Reason.String(), e.Message)
		}
	}
}

// announceSkip emits an event about a new skip under a policy if it is due.
func (l *Loop) announceSkip(it *iteration, s *disruption.Skip, now time.Time) bool {
	name := snapshot.VPAOf(s.Subject)
	switch s.Reason {
	case reason.OptedOut:
		return l.announcer.Announce(report.Event{VPA: name, Reason: report.EventWorkloadOptOut}, "No SizingPolicy changes the pods: "+s.Reason.Explain().Meaning, now)
	case reason.NodePressure, reason.NodeUnknown, reason.NodeFull, reason.TooLargeForNode, reason.QuotaFull,
		reason.OutsideLimitRange, reason.ClassWouldChange, reason.StaticCPU:
		policy := it.policyName(name)
		if policy == "" || it.shares.Has(s.UID) { // shares move often, and a full node is common for them
			return false
		}
		return l.announcer.Announce(report.Event{VPA: name, Reason: report.EventResizeSkipped, About: s.Reason.String()},
			fmt.Sprintf("Skipped pods that SizingPolicy %s would resize, such as %s: %s (%s)", policy, s.Pod, s.Reason.Explain().Meaning, s.Reason), now)
	}
	return false
}

func (l *Loop) reportTally(it *iteration, now time.Time) {
	for _, e := range l.tally.due(now, it.policyName) {
		if e.key.policy == "" {
			l.announcer.Write(e.key.vpa, e.key.reason, e.message)
			continue
		}
		if l.policies.Policies == nil {
			continue
		}
		if policy := l.policies.Policies.Snapshot().Object(e.key.policy); policy != nil {
			l.runner.Executor.Event(policy, e.key.reason, e.message, nil)
		}
	}
}

// tallyInterval is the minimum time between two events of one reason on one object, and the maximum
// time that one event covers. The event client drops the events of objects that emit more.
const tallyInterval = 5 * time.Minute

// quietIterations is the number of iterations without a change after which a round has ended. A
// round pauses for an iteration while a resized pod becomes ready.
const quietIterations = 2

// tally counts changes until an event reports them on their VPA and its SizingPolicy. Budgets
// spread a round over several iterations, so the event waits for quietIterations.
type tally struct {
	mu       sync.Mutex
	reverted []revertedChange // since the last iteration

	counts map[tallyKey]*count // used only by the loop, without mu
}

// tallyKey is the object and the reason of one event. Either policy or vpa is set.
type tallyKey struct {
	policy string
	vpa    cache.ObjectName
	reason string
}

// count holds the changes since the last event.
type count struct {
	pods       int
	previous   int            // pods at the last call of due
	quietCalls int            // calls of due since pods were added
	firstSeen  time.Time      // first call of due with pods
	causes     map[string]int // by cause or harm
	workloads  map[cache.ObjectName]bool
	lastSent   time.Time // of the last event
}

type revertedChange struct {
	vpa  cache.ObjectName
	harm rollout.Harm
}

// Reverted counts a reverted change. It is safe for concurrent use.
func (t *tally) Reverted(vpa cache.ObjectName, harm rollout.Harm) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reverted = append(t.reverted, revertedChange{vpa, harm})
}

// changed counts a resized or evicted pod. Changes of shares are too frequent for events.
func (t *tally) changed(vpa cache.ObjectName, policy, reason string, cause disruption.Cause) {
	if cause == disruption.Shared {
		return
	}
	if reason == report.EventResizedPods { // each eviction has an event on the VPA already
		t.add(tallyKey{vpa: vpa, reason: reason}, vpa, string(cause))
	}
	if policy != "" {
		t.add(tallyKey{policy: policy, reason: reason}, vpa, string(cause))
	}
}

func (t *tally) add(key tallyKey, vpa cache.ObjectName, cause string) {
	if t.counts == nil {
		t.counts = map[tallyKey]*count{}
	}
	c := t.counts[key]
	if c == nil {
		c = &count{}
		t.counts[key] = c
	}
	if c.causes == nil {
		c.causes, c.workloads = map[string]int{}, map[cache.ObjectName]bool{}
	}
	c.pods++
	c.causes[cause]++
	c.workloads[vpa] = true
}

// due returns the events to emit now in a fixed order. policyOf returns "" without a SizingPolicy.
func (t *tally) due(now time.Time, policyOf func(cache.ObjectName) string) (events []tallyEvent) {
	t.mu.Lock()
	reverted := t.reverted
	t.reverted = nil
	t.mu.Unlock()
	for _, v := range reverted {
		if policy := policyOf(v.vpa); policy != "" { // each revert has an event on the VPA already
			t.add(tallyKey{policy: policy, reason: report.EventReverted}, v.vpa, string(v.harm))
		}
	}
	keys := slices.SortedFunc(maps.Keys(t.counts), func(a, b tallyKey) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.vpa.Namespace, b.vpa.Namespace),
			cmp.Compare(a.vpa.Name, b.vpa.Name), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range keys {
		c := t.counts[key]
		continues := c.updateQuiet(now)
		switch {
		case !c.lastSent.IsZero() && now.Sub(c.lastSent) < tallyInterval:
		case c.pods == 0:
			delete(t.counts, key)
		case continues:
		default:
			events = append(events, tallyEvent{key, c.message(key)})
			t.counts[key] = &count{lastSent: now}
		}
	}
	return events
}

// updateQuiet reports whether the round may continue, for at most tallyInterval.
func (c *count) updateQuiet(now time.Time) bool {
	if c.previous == 0 {
		c.firstSeen = now
	}
	if c.quietCalls++; c.pods > c.previous {
		c.quietCalls = 0
	}
	c.previous = c.pods
	return c.quietCalls < quietIterations && now.Sub(c.firstSeen) < tallyInterval
}

type tallyEvent struct {
	key     tallyKey
	message string
}

var tallyFormats = map[string]string{
	report.EventResizedPods: "Resized %s in place", report.EventEvictedPod: "Evicted %s", report.EventReverted: "Reverted changes of %s",
}

// message returns text such as "Resized 3 pods of 2 workloads in place: OutOfBounds 2".
func (c *count) message(key tallyKey) string {
	pods := plural(c.pods, "pod")
	if key.policy != "" {
		pods += " of " + plural(len(c.workloads), "workload")
	}
	causes := make([]string, 0, len(c.causes))
	for _, cause := range slices.Sorted(maps.Keys(c.causes)) {
		causes = append(causes, fmt.Sprintf("%s %d", cause, c.causes[cause]))
	}
	return fmt.Sprintf(tallyFormats[key.reason], pods) + ": " + strings.Join(causes, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
