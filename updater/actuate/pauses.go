package actuate

import (
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/disruption"
)

// The pauses between two checks for the pods of one owner, or for one pod of an older revision, are
// twice as long each time.
const (
	firstRefusalPause = 5 * time.Minute
	maxRefusalPause   = time.Hour
	firstUnknownPause = 30 * time.Second
	maxUnknownPause   = 10 * time.Minute
	shortestPause     = time.Minute // of a VPA that changes
	forbiddenPause    = time.Minute // of all checks
)

// pauses holds the results of checks that are not repeated for some time. It is safe for concurrent
// use.
type pauses struct {
	mu    sync.Mutex
	byKey map[pauseKey]pause
	// all holds every eviction: the updater itself may not create pods.
	all      *Held
	allUntil time.Time
}

// pauseKey is the VPA with an owner of pods, or with one pod. A new pod template of a Deployment makes
// a new owner.
type pauseKey struct {
	object types.UID
	name   string // with kind and namespace
	vpa    types.UID
}

type pause struct {
	held       *Held
	generation int64 // of the VPA: a changed VPA ends the pause
	begun      time.Time
	until      time.Time
	last       time.Duration
}

// pausesOf returns the keys of the pauses that hold a change.
func pausesOf(change Change) (owner, pod pauseKey) {
	pod = pauseKey{object: change.Target.UID, name: "Pod " + change.Target.Namespace + "/" + change.Target.Name}
	if ref := metav1.GetControllerOfNoCopy(change.Target); ref != nil {
		owner = pauseKey{object: ref.UID, name: ref.Kind + " " + change.Target.Namespace + "/" + ref.Name}
	}
	if vpa := change.Reading.Object; vpa != nil {
		owner.vpa, pod.vpa = vpa.UID, vpa.UID
	}
	return owner, pod
}

func generationOf(change Change) int64 {
	if vpa := change.Reading.Object; vpa != nil {
		return vpa.Generation
	}
	return 0
}

// held returns the result that holds a change at a time, nil if there is none.
func (p *pauses) held(change Change, now time.Time) error {
	owner, pod := pausesOf(change)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.allUntil) {
		return p.all
	}
	for _, key := range []pauseKey{owner, pod} {
		found, known := p.byKey[key]
		if !known || !now.Before(found.until) || found.generation != generationOf(change) && now.Sub(found.begun) >= shortestPause {
			continue
		}
		return &Held{Reason: found.held.Reason, Cause: fmt.Errorf("%w (next check at %s)", found.held.Cause, found.until.UTC().Format(time.RFC3339))}
	}
	return nil
}

// begin starts a pause after a check whose result only changes with the cluster, and ends earlier ones.
func (p *pauses) begin(change Change, held *Held, now time.Time) {
	owner, pod := pausesOf(change)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.byKey, func(_ pauseKey, old pause) bool { return now.Sub(old.until) > maxRefusalPause })
	before := map[pauseKey]pause{owner: p.byKey[owner], pod: p.byKey[pod]}
	delete(p.byKey, owner)
	delete(p.byKey, pod)
	if held == nil {
		return
	}
	key, first, longest := owner, firstRefusalPause, maxRefusalPause
	switch {
	case held.Reason == disruption.ReplacementUnknown:
		first, longest = firstUnknownPause, maxUnknownPause
	case held.Reason == disruption.OlderRevision:
		key = pod
	case !held.replacement():
		return
	}
	next := pause{held: held, generation: generationOf(change), begun: now, last: first}
	if old := before[key]; old.held != nil && old.held.Reason == held.Reason {
		next.last = min(2*old.last, longest)
	}
	next.until = now.Add(next.last)
	if p.byKey == nil {
		p.byKey = map[pauseKey]pause{}
	}
	p.byKey[key] = next
}

// beginAll starts a pause for every change.
func (p *pauses) beginAll(held *Held, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all, p.allUntil = held, now.Add(forbiddenPause)
}
