package backfill

import (
	"time"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// Absorb gives a model, which feeds store, what was loaded since the last time,
// and says so to loading. When that was all of it, what is known of a container
// is all that there was, and is doubted no more.
func (l *Loader) Absorb(model *model.Model, store *usage.Store, keeper *recommend.SketchKeeper, loading *LoadingGauge, now time.Time) {
	if loading.Complete() {
		return
	}
	progress := l.Progress() // before Take: all that it counts can be taken
	for _, past := range l.Take() {
		model.Absorb(past.Model, now)
		keeper.Absorb(past.Model)
	}
	if progress.State != Complete {
		loading.Loaded(progress.Done)
		return
	}
	loading.Done()
	scratch := usage.NewProfile(l.config.Store.Shape)
	for _, v := range model.VPAs() {
		for container := range v.Trust.Untrusted {
			scratch.Reset()
			store.Profile(&scratch, v.Series(container)...)
			if !scratch.Empty() {
				delete(v.Trust.Untrusted, container)
				v.Invalidate()
			}
		}
	}
}
