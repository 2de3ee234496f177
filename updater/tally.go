package updater

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/report"
)

// tallyInterval is the minimum time between two events of one reason on one object, and the maximum time
// that one event covers. The event client drops the events of objects that emit more.
const tallyInterval = 5 * time.Minute

// quietIterations is the number of iterations without a change after which a round has ended. A round pauses
// for an iteration while a resized pod becomes ready.
const quietIterations = 2

// tally counts changes of pods until an event reports them on their VPA, and on the SizingPolicy
// that governs it. Budgets spread a round over several iterations, so the event is emitted after
// quietIterations without a change.
type tally struct {
	mu       sync.Mutex
	verdicts []verdict // since the last iteration

	counts map[tallyKey]*count // used only by the loop, without mu
}

// tallyKey is the object and the reason of one event. Either policy or vpa is set.
type tallyKey struct {
	policy string
	vpa    cache.ObjectName
	reason string
}

// count is the number of changes since the last event.
type count struct {
	pods      int
	previous  int            // pods at the last call of due
	quiet     int            // calls of due since pods were added
	since     time.Time      // first call of due with pods
	causes    map[string]int // by cause or harm
	workloads map[cache.ObjectName]bool
	sent      time.Time // of the last event
}

type verdict struct {
	vpa  cache.ObjectName
	harm rollout.Harm
}

// Reverted counts a reverted change. It is safe for concurrent use.
func (t *tally) Reverted(vpa cache.ObjectName, harm rollout.Harm) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verdicts = append(t.verdicts, verdict{vpa, harm})
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

// due returns the events to emit now, in a fixed order, and resets their counts. policyOf returns the name of
// the SizingPolicy that governs a VPA, or "".
func (t *tally) due(now time.Time, policyOf func(cache.ObjectName) string) (events []tallyEvent) {
	t.mu.Lock()
	verdicts := t.verdicts
	t.verdicts = nil
	t.mu.Unlock()
	for _, v := range verdicts {
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
		case !c.sent.IsZero() && now.Sub(c.sent) < tallyInterval:
		case c.pods == 0:
			delete(t.counts, key)
		case continues:
		default:
			events = append(events, tallyEvent{key, c.message(key)})
			t.counts[key] = &count{sent: now}
		}
	}
	return events
}

// updateQuiet counts the calls without added pods, and reports whether the round may continue. It returns false
// once the event would cover more than tallyInterval.
func (c *count) updateQuiet(now time.Time) bool {
	if c.previous == 0 {
		c.since = now
	}
	if c.quiet++; c.pods > c.previous {
		c.quiet = 0
	}
	c.previous = c.pods
	return c.quiet < quietIterations && now.Sub(c.since) < tallyInterval
}

// tallyEvent is an event that reports how many pods changed.
type tallyEvent struct {
	key     tallyKey
	message string
}

// tallyFormats are the beginnings of messages by event reason.
var tallyFormats = map[string]string{
	report.EventResizedPods: "Resized %s in place", report.EventEvictedPod: "Evicted %s", report.EventReverted: "Took back changes of %s",
}

// message describes the changes, such as "Resized 3 pods of 2 workloads in place: OutOfBounds 2, OutOfMemory 1".
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
