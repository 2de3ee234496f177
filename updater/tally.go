package main

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
	"loadline.dev/loadline/updater/actuate"
)

// tallyInterval is the shortest time between two events of one reason on one object. The client
// drops events of an object that come more often for long.
const tallyInterval = 5 * time.Minute

// tally counts changes of pods until an event reports them on their VPA, and on the SizingPolicy
// that governs it.
type tally struct {
	mu       sync.Mutex
	verdicts []verdict // since the last iteration

	counts map[tallied]*count // of the loop alone
}

// tallied is what one event is about.
type tallied struct {
	policy string // of a policy, else vpa is set
	vpa    cache.ObjectName
	reason string
}

// count is the changes that no event has reported yet.
type count struct {
	pods      int
	by        map[string]int // by cause or harm
	workloads map[cache.ObjectName]bool
	sent      time.Time // when the last event was
}

type verdict struct {
	vpa  cache.ObjectName
	harm rollout.Harm
}

// reverted counts a change that was taken back. Other goroutines than the loop may call it.
func (t *tally) reverted(vpa cache.ObjectName, harm rollout.Harm) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verdicts = append(t.verdicts, verdict{vpa, harm})
}

// changed counts a pod that was changed for a cause. Shares move too often to be counted.
func (t *tally) changed(vpa cache.ObjectName, policy, reason string, cause disruption.Cause) {
	if cause == disruption.Shared {
		return
	}
	if reason == actuate.EventResizedPods { // each eviction has an event on the VPA already
		t.add(tallied{vpa: vpa, reason: reason}, vpa, string(cause))
	}
	if policy != "" {
		t.add(tallied{policy: policy, reason: reason}, vpa, string(cause))
	}
}

func (t *tally) add(key tallied, vpa cache.ObjectName, by string) {
	if t.counts == nil {
		t.counts = map[tallied]*count{}
	}
	c := t.counts[key]
	if c == nil {
		c = &count{}
		t.counts[key] = c
	}
	if c.by == nil {
		c.by, c.workloads = map[string]int{}, map[cache.ObjectName]bool{}
	}
	c.pods++
	c.by[by]++
	c.workloads[vpa] = true
}

// due returns the events that are due, in a fixed order. policyOf finds the policy of a VPA.
func (t *tally) due(now time.Time, policyOf func(cache.ObjectName) string) (events []tallyEvent) {
	t.mu.Lock()
	verdicts := t.verdicts
	t.verdicts = nil
	t.mu.Unlock()
	for _, v := range verdicts {
		if policy := policyOf(v.vpa); policy != "" { // each revert has an event on the VPA already
			t.add(tallied{policy: policy, reason: actuate.EventReverted}, v.vpa, string(v.harm))
		}
	}
	keys := slices.SortedFunc(maps.Keys(t.counts), func(a, b tallied) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.vpa.Namespace, b.vpa.Namespace), cmp.Compare(a.vpa.Name, b.vpa.Name), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range keys {
		switch c := t.counts[key]; {
		case !c.sent.IsZero() && now.Sub(c.sent) < tallyInterval:
		case c.pods == 0:
			delete(t.counts, key)
		default:
			events = append(events, tallyEvent{key, c.text(key)})
			t.counts[key] = &count{sent: now}
		}
	}
	return events
}

// tallyEvent is an event that reports how many pods were changed.
type tallyEvent struct {
	about tallied
	text  string
}

// texts are the beginnings of the events by reason.
var texts = map[string]string{
	actuate.EventResizedPods: "Resized %s in place", actuate.EventEvictedPod: "Evicted %s", actuate.EventReverted: "Took back changes of %s",
}

// text describes the changes, such as "Resized 3 pods of 2 workloads in place: OutOfBounds 2, OutOfMemory 1".
func (c *count) text(of tallied) string {
	pods := plural(c.pods, "pod")
	if of.policy != "" {
		pods += " of " + plural(len(c.workloads), "workload")
	}
	text := fmt.Sprintf(texts[of.reason], pods)
	causes := make([]string, 0, len(c.by))
	for _, by := range slices.Sorted(maps.Keys(c.by)) {
		causes = append(causes, fmt.Sprintf("%s %d", by, c.by[by]))
	}
	return text + ": " + strings.Join(causes, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// count adds a change to the tally.
func (p *pass) count(c actuate.Change, reason string) {
	policy, name := "", vpaOf(c.Subject)
	if r := p.snapshot.Rollout(name); r != nil {
		policy = r.Policy
	}
	p.tally.changed(name, policy, reason, c.Cause)
}

// reportTally emits the events that are due about what was changed.
func (p *pass) reportTally() {
	policyOf := func(vpa cache.ObjectName) string {
		if r := p.snapshot.Rollout(vpa); r != nil {
			return r.Policy
		}
		return ""
	}
	for _, e := range p.tally.due(p.now, policyOf) {
		if e.about.policy == "" {
			p.say(e.about.vpa, e.about.reason, e.text)
			continue
		}
		if p.reader.Policies == nil {
			continue
		}
		if policy := p.reader.Policies.Now().Object(e.about.policy); policy != nil {
			p.executor.Event(policy, e.about.reason, e.text, nil)
		}
	}
}
