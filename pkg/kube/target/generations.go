package target

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// Generations remembers from which generation on each VPA has had the target that it
// has now. The zero value knows of no VPA, and so does nil. It is safe for concurrent
// use.
type Generations struct {
	mu    sync.Mutex
	known map[cache.ObjectName]sighting
}

// sighting is what was seen of one VPA.
type sighting struct {
	uid    types.UID
	target Key
	since  int64 // it has had the target from this generation on
	last   int64 // the newest generation that was seen
}

// Watch learns from an informer of VPAs. Of a VPA that is there already only the
// present generation is known.
func (g *Generations) Watch(vpas cache.SharedInformer) error {
	_, err := vpas.AddEventHandler(vpaHandler(func(vpa *vpav1.VerticalPodAutoscaler) { g.see(vpa, true) }, g.forget))
	if err != nil {
		return fmt.Errorf("watch the targets of VPAs: %w", err)
	}
	return nil
}

// Outdated reports whether the recommendation in the status of a VPA may be for
// another target than the VPA has now. A cache may show a VPA a moment before Watch
// hears of it: what it shows counts.
func (g *Generations) Outdated(vpa *vpav1.VerticalPodAutoscaler) bool {
	if g == nil {
		return convert.Outdated(vpa, vpa.Generation)
	}
	return convert.Outdated(vpa, g.see(vpa, false))
}

// see takes note of a VPA and returns from which generation on it has had its target.
// One that is not known is only added if it is there for certain.
func (g *Generations) see(vpa *vpav1.VerticalPodAutoscaler, there bool) (since int64) {
	name, at := cache.MetaObjectToName(vpa), vpa.Generation
	var target Key
	if vpa.Spec.TargetRef != nil {
		target = RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, known := g.known[name]
	switch {
	case !known && !there:
		return at
	case !known || s.uid != vpa.UID:
		s = sighting{uid: vpa.UID, target: target, since: at, last: at}
	case at >= s.last && s.target != target:
		s.target, s.since, s.last = target, at, at
	case at < s.last && s.target != target: // the news of it comes late
		s.since = max(s.since, at+1)
	default:
		s.last = max(s.last, at)
	}
	if g.known == nil {
		g.known = map[cache.ObjectName]sighting{}
	}
	g.known[name] = s
	return s.since
}

func (g *Generations) forget(name cache.ObjectName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, name)
}
