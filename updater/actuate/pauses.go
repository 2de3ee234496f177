package actuate

import (
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/reason"
)

// A blocked check of an owner or an older pod is repeated after a pause that doubles each time.
const (
	firstRefusalPause = 5 * time.Minute
	maxRefusalPause   = time.Hour
	firstUnknownPause = 30 * time.Second
	maxUnknownPause   = 10 * time.Minute
	minPause          = time.Minute // a changed VPA ends a pause after this time
	forbiddenPause    = time.Minute // pause of all checks in a namespace
)

// pauses holds check results until they may be repeated. It is safe for concurrent use.
type pauses struct {
	mu    sync.Mutex
	byKey map[pauseKey]pause
	// forbidden blocks every eviction in a namespace without permission to create pods.
	forbidden map[string]pause
}

// pauseKey identifies a VPA and an owner or a pod. A new pod template creates a new owner.
type pauseKey struct {
	object types.UID
	name   string // kind, namespace and name
	vpa    types.UID
}

type pause struct {
	held       *BlockedError
	generation int64 // of the VPA: a changed VPA ends the pause
	start      time.Time
	until      time.Time
	length     time.Duration
}

func pauseKeys(change Change) (owner, pod pauseKey) {
	pod = pauseKey{object: change.Object.UID, name: "Pod " + change.Object.Namespace + "/" + change.Object.Name}
	if ref := metav1.GetControllerOfNoCopy(change.Object); ref != nil {
		owner = pauseKey{object: ref.UID, name: ref.Kind + " " + change.Object.Namespace + "/" + ref.Name}
	}
	if vpa := change.Autoscaler.Object; vpa != nil {
		owner.vpa, pod.vpa = vpa.UID, vpa.UID
	}
	return owner, pod
}

func generationOf(change Change) int64 {
	if vpa := change.Autoscaler.Object; vpa != nil {
		return vpa.Generation
	}
	return 0
}

func (p *pauses) active(change Change, now time.Time) error {
	owner, pod := pauseKeys(change)
	p.mu.Lock()
	defer p.mu.Unlock()
	if forbidden, known := p.forbidden[change.Object.Namespace]; known && now.Before(forbidden.until) {
		return forbidden.held
	}
	for _, key := range []pauseKey{owner, pod} {
		found, known := p.byKey[key]
		if !known || !now.Before(found.until) || found.generation != generationOf(change) && now.Sub(found.start) >= minPause {
			continue
		}
		return &BlockedError{Reason: found.held.Reason, Cause: fmt.Errorf("%w (next check at %s)", found.held.Cause, found.until.UTC().Format(time.RFC3339))}
	}
	return nil
}

// record replaces pauses. A new one starts if the result changes only with the cluster.
func (p *pauses) record(change Change, held *BlockedError, now time.Time) {
	owner, pod := pauseKeys(change)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.byKey, func(_ pauseKey, old pause) bool { return now.Sub(old.until) > maxRefusalPause })
	before := map[pauseKey]pause{owner: p.byKey[owner], pod: p.byKey[pod]}
	delete(p.byKey, owner)
	delete(p.byKey, pod)
	if held == nil {
		return
	}
	key, length, limit := owner, firstRefusalPause, maxRefusalPause
	switch {
	case held.Reason == reason.ReplacementUnknown:
		length, limit = firstUnknownPause, maxUnknownPause
	case held.Reason == reason.OlderRevision:
		key = pod
	case !held.concernsReplacement():
		return
	}
	next := pause{held: held, generation: generationOf(change), start: now, length: length}
	if old := before[key]; old.held != nil && old.held.Reason == held.Reason {
		next.length = min(2*old.length, limit)
	}
	next.until = now.Add(next.length)
	if p.byKey == nil {
		p.byKey = map[pauseKey]pause{}
	}
	p.byKey[key] = next
}

func (p *pauses) holdNamespace(namespace string, held *BlockedError, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.forbidden, func(_ string, old pause) bool { return !now.Before(old.until) })
	if p.forbidden == nil {
		p.forbidden = map[string]pause{}
	}
	p.forbidden[namespace] = pause{held: held, until: now.Add(forbiddenPause)}
}
