package backfill

import (
	"maps"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// absorption adds a complete late load to the model of the loop.
type absorption struct {
	vpas     []*model.VPA // sorted by namespace and name
	requests map[*model.VPA]Request
	former   map[formerContainer]struct{}
}

type formerContainer struct {
	vpa       *model.VPA
	container string
}

// newAbsorption skips VPAs that no longer match their requests. They stay pending.
func newAbsorption(m *model.Model, requests map[vpaName]Request) *absorption {
	a := &absorption{requests: map[*model.VPA]Request{}, former: map[formerContainer]struct{}{}}
	for _, name := range slices.SortedFunc(maps.Keys(requests), vpaName.compare) {
		request := requests[name]
		if v := m.Find(name.namespace, name.name); v != nil && request.matches(v) {
			a.vpas, a.requests[v] = append(a.vpas, v), request
		}
	}
	return a
}

func (a *absorption) absorb(m *model.Model, attempts []LoadedHistory, keeper *recommend.SketchKeeper, now time.Time) *absorption {
	for _, past := range attempts {
		m.AbsorbMissing(past.Model, a.includes, now)
		for _, v := range a.vpas {
			if theirs := past.Model.Find(v.Object.Namespace, v.Object.Name); theirs != nil {
				keeper.AbsorbParts(v, theirs, func(container string) sketch.Parts { return a.parts(v, container) })
			}
		}
	}
	return a
}

// includes reports whether the load covers the histogram of a requested container or a past one.
func (a *absorption) includes(v *model.VPA, container string) bool {
	request, found := a.requests[v]
	if !found {
		return false
	}
	if until := request.Containers[container].Histogram; !until.IsZero() {
		return v.Backfill.Containers[container].Histogram.Equal(until)
	}
	key := formerContainer{v, container}
	if _, found := a.former[key]; found || !request.hasHistogram() || len(v.Series(container)) > 0 {
		return found
	}
	a.former[key] = struct{}{}
	return true
}

// parts returns the sketch parts of a container that the load covers.
func (a *absorption) parts(v *model.VPA, container string) sketch.Parts {
	if _, found := a.former[formerContainer{v, container}]; found {
		return sketch.AllParts
	}
	request, pending := a.requests[v], &v.Backfill
	var covered, later sketch.Parts
	if pending.Until.Equal(request.Until) {
		covered = request.Parts
	} else {
		later = pending.Parts // another request loads all of them
	}
	if current, requested := pending.Containers[container].Sketch, request.Containers[container].Sketch; !current.IsZero() || !requested.IsZero() {
		covered = 0
		if current.Equal(requested) {
			covered = sketch.AllParts
		}
	}
	return covered &^ later
}

func (a *absorption) finish(store *usage.Store, shape usage.ProfileShape) {
	for former := range a.former {
		former.vpa.MarkLoaded(former.container)
	}
	for _, v := range a.vpas {
		request := a.requests[v]
		if v.Backfill.Until.Equal(request.Until) {
			v.Backfill.Parts &^= request.Parts
		}
		changes := map[string]model.Missing{}
		for container, missing := range request.Containers {
			if v.Backfill.Containers[container] == missing {
				changes[container] = model.Missing{}
				v.MarkLoaded(container)
			}
		}
		v.Backfill.SetMissing(changes)
		trustLoaded(v, store, shape)
		v.Invalidate()
	}
}
