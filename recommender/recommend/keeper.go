package recommend

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/recommender/model"
)

// SketchKeeper maintains recipes and sketches in one goroutine. Its exported fields are set once.
type SketchKeeper struct {
	Book   *recipe.Cache
	Model  *model.Model
	Limits CPULimits
	Pods   *Pods // nil: pods and their start times are unknown
	// Backfills reports that history can be loaded for new sketches.
	Backfills bool

	active     int                  // number of VPAs that have or need sketches
	lastCounts map[servedRecipe]int // of the last Count
}

// CPULimits returns the CPU limit of a container in millicores, or 0 if none or unknown.
type CPULimits interface {
	Limit(usage.ContainerKey) resources.Amount
}

// Fork returns a keeper to load history in another goroutine. Its UpdateLimits has no effect.
func (k *SketchKeeper) Fork(m *model.Model, limits CPULimits) *SketchKeeper {
	return &SketchKeeper{Book: k.Book.Fork(), Model: m, Limits: limits}
}

// sketchRetention is how long a sketch is kept after a recipe last needed it.
const sketchRetention = 24 * time.Hour

// Follow chooses the recipes of all VPAs and adapts their sketches.
func (k *SketchKeeper) Follow(log klog.Logger, now time.Time) {
	k.active = 0
	for _, v := range k.Model.VPAs() {
		k.chooseRecipe(log, v, now)
		needs := v.Recipe.Needs.Any()
		if needs || v.Recipe.Problem != "" { // a misspelled recipe may need sketches
			v.SketchesNeeded = now
		}
		if v.Sketches != nil && now.Sub(v.SketchesNeeded) >= sketchRetention {
			v.Sketches = nil
		}
		if needs || v.Sketches != nil {
			k.active++
		}
	}
}

func (k *SketchKeeper) chooseRecipe(log klog.Logger, v *model.VPA, now time.Time) {
	annotation := v.Object.Annotations[recipe.Annotation]
	if v.Sizing.OverridesAnnotation {
		annotation = ""
	}
	if v.Recipe != nil && v.Recipe.Matches(annotation, v.Sizing.Recipe) {
		return
	}
	former := v.Recipe
	v.Recipe = k.Book.Choose(annotation, v.Sizing.Recipe)
	v.Invalidate()
	if v.Recipe.Problem != "" {
		log.Info("VPA has an invalid recipe", "vpa", klog.KObj(v.Object), "problem", v.Recipe.Problem)
	}
	if v.Recipe.Needs.Any() {
		anew := sketch.AllParts
		if len(v.Sketches) > 0 {
			anew = 0
		}
		for _, t := range v.Sketches {
			anew |= t.AdaptParts(v.Recipe.Needs)
		}
		if k.Backfills && former != nil && v.Backfill.Covered {
			v.Backfill.AddParts(anew, now)
		}
	}
	if v.Recipe.Problem == "" {
		_ = k.Restore(v, v.SavedSketches, now, 0) // they were validated before
		v.SavedSketches = nil
	}
}

// Observe adds an accepted sample to the sketches of all selecting VPAs, weight times. A live
// sample has weight 1, and history one for each minute of its step.
func (k *SketchKeeper) Observe(s usage.Sample, weight int) {
	if k.active == 0 {
		return
	}
	limit, limitRead := resources.Amount(0), s.Kind != resources.CPU
	for _, v := range k.Model.Selecting(s.Container) {
		t := ensureSketch(v, s.Container.Container)
		if t == nil {
			continue
		}
		if !limitRead {
			limit, limitRead = k.Limits.Limit(s.Container), true
		}
		use := k.sketchUsage(v, &s, limit)
		// A restarted container may never get beyond its startup with this limit, so usage that the
		// limit held down counts.
		starting := k.isStarting(v, &s) && (!use.CappedByLimit() || !k.Pods.Restarted(s.Container))
		for range weight {
			if starting {
				t.ObserveStart(s.Container.Pod, s.At, s.Amount, limit)
			} else {
				t.ObserveUse(s.Container.Pod, s.At, s.Kind, use)
			}
		}
		if s.Pressure > 0 && !starting {
			t.ObservePressure(s.At, s.Amount, s.Pressure)
		}
	}
}

func (k *SketchKeeper) sketchUsage(v *model.VPA, s *usage.Sample, limit resources.Amount) sketch.Usage {
	u := sketch.Usage{Amount: s.Amount, Limit: limit, Throttled: s.Throttled}
	if s.Kind == resources.CPU && limit > 0 {
		u.FixedLimit = v.Rules.For(s.Container.Container).RequestsOnly
	}
	if s.Throttled > 0 && k.Pods != nil {
		u.Request = k.Pods.Request(s.Container)
	}
	return u
}

// isStarting reports startup CPU usage that the recipe ignores. Starts in history are unknown.
func (k *SketchKeeper) isStarting(v *model.VPA, s *usage.Sample) bool {
	needs := &v.Recipe.Needs
	if s.Kind != resources.CPU || needs.Start == 0 || k.Pods == nil {
		return false
	}
	return needs.Starting(s.At.Sub(k.Pods.Started(s.Container)), convert.BoostDuration(v.Object, s.Container.Container))
}

// ObserveKill adds an accepted kill to the sketches.
func (k *SketchKeeper) ObserveKill(oom usage.OOM) {
	if k.active == 0 {
		return
	}
	for _, v := range k.Model.Selecting(oom.Container) {
		if t := ensureSketch(v, oom.Container.Container); t != nil {
			t.ObserveKill(oom.At, oom.Memory, oom.Limit)
		}
	}
}

// UpdateLimits records current memory limits, and the requests of new containers, in sketches that
// need them. Call it after pod changes are applied.
func (k *SketchKeeper) UpdateLimits() {
	if k.active == 0 || k.Pods == nil {
		return
	}
	for _, v := range k.Model.VPAs() {
		if v.Recipe == nil || !v.Recipe.Needs.LimitRatio && v.Recipe.Needs.Declared == 0 {
			continue
		}
		for container, t := range v.Sketches {
			changed := t.SetLimitRatio(v.LimitRatio(container))
			if t.NeedsDeclared() && t.SetDeclared(k.Pods.Requests(v, container).Value(resources.Memory)) || changed {
				v.Invalidate()
			}
		}
	}
}

func ensureSketch(v *model.VPA, container string) *sketch.Sketch {
	t := v.Sketches[container]
	if t != nil || !v.Recipe.Needs.Any() {
		return t
	}
	if v.Sketches == nil {
		v.Sketches = map[string]*sketch.Sketch{}
	}
	t = sketch.New(v.Recipe.Needs)
	v.Sketches[container] = t
	return t
}

// Restore sets the saved sketches of a new VPA from images by container, or retains the images
// while the recipe name is invalid. The error joins the unusable images, and their containers start
// with new sketches.
func (k *SketchKeeper) Restore(v *model.VPA, images map[string][]byte, now time.Time, ahead time.Duration) error {
	needs := v.Recipe.Needs
	if !needs.Any() && v.Recipe.Problem == "" {
		return nil
	}
	if !needs.Any() {
		v.SavedSketches = make(map[string][]byte, len(images))
	}
	var problems []error
	for _, container := range slices.Sorted(maps.Keys(images)) {
		t, err := sketch.Read(needs, images[container], now, ahead)
		if err != nil {
			problems = append(problems, fmt.Errorf("restore the sketch of container %s for recipe %s: %w", container, v.Recipe.Name, err))
			continue
		}
		if !needs.Any() {
			v.SavedSketches[container] = images[container]
			continue
		}
		if v.Sketches == nil {
			v.Sketches = map[string]*sketch.Sketch{}
		}
		v.Sketches[container] = t
	}
	return errors.Join(problems...)
}

// Absorb adds the sketches of loaded history, except the parts that a request loads.
func (k *SketchKeeper) Absorb(past *model.Model) {
	for _, theirs := range past.VPAs() {
		if v := k.Model.Find(theirs.Object.Namespace, theirs.Object.Name); v != nil {
			k.AbsorbParts(v, theirs, func(container string) sketch.Parts { return ^v.Backfill.SketchParts(container) })
		}
	}
}

// AbsorbParts adds parts of the sketches of another model's VPA with the same target.
func (k *SketchKeeper) AbsorbParts(v, past *model.VPA, partsOf func(container string) sketch.Parts) {
	if v.Recipe == nil || !v.Recipe.Needs.Any() || !v.SameTarget(past) {
		return
	}
	for container, t := range past.Sketches {
		parts := partsOf(container)
		if parts == 0 {
			continue
		}
		t.Adapt(v.Recipe.Needs)
		ensureSketch(v, container).MergeParts(t, parts)
	}
	v.Invalidate()
}

// AnyNeeds reports whether the recipe of any VPA has a need.
func AnyNeeds(m *model.Model, something func(sketch.Needs) bool) bool {
	return slices.ContainsFunc(m.VPAs(), func(v *model.VPA) bool { return v.Recipe != nil && something(v.Recipe.Needs) })
}

// NewSketchGauge registers the gauge for Count.
func NewSketchGauge(registry prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "loadline_recommender_vpas_by_recipe",
		Help: `VPAs by recipe and its source: the flag, the annotation, a policy, or "invalid_annotation", if the annotation is invalid and the recipe of the flag is used.`,
	}, []string{"recipe", "source"})
}

// Count sets the number of VPAs by recipe and source.
func (k *SketchKeeper) Count(gauge *prometheus.GaugeVec) {
	now := make(map[servedRecipe]int, len(k.lastCounts))
	for _, v := range k.Model.VPAs() {
		if c := v.Recipe; c != nil {
			now[servedRecipe{c.Name, c.Source}]++
		}
	}
	for s := range k.lastCounts {
		if now[s] == 0 {
			gauge.DeleteLabelValues(s.recipe, string(s.source))
		}
	}
	for s, n := range now {
		gauge.WithLabelValues(s.recipe, string(s.source)).Set(float64(n))
	}
	k.lastCounts = now
}

type servedRecipe struct {
	recipe string
	source recipe.Source
}

// Expire drops sketches without history. The pods of an unreadable target may exist unseen, so its
// sketches are kept for the maximum age of histories.
func (k *SketchKeeper) Expire(now time.Time) {
	for _, v := range k.Model.VPAs() {
		maps.DeleteFunc(v.Sketches, func(container string, t *sketch.Sketch) bool {
			if v.Restored[container] != nil || len(v.Series(container)) > 0 {
				return false
			}
			return v.TargetError == nil || now.Sub(time.Unix(0, t.Now)) >= v.RulesOf(container).Age()
		})
	}
}

// Explain explains the recommendation that the next iteration computes. The cached object has the
// published one. It changes nothing and may run inside Model.Read.
func (a *Advisor) Explain(v *model.VPA, cached *vpav1.VerticalPodAutoscaler) (*explanation.VPA, error) {
	answer := &explanation.VPA{Namespace: v.Object.Namespace, Name: v.Object.Name, Recipe: explanation.Recipe{Source: recipe.FromFlag}, Containers: []explanation.Container{}}
	if v.Recipe != nil {
		answer.Recipe = explanation.NewRecipe(v.Recipe)
	}
	var estimates []model.Estimate
	scratch, r, served := usage.NewProfile(a.Shape), a.recipe(v), containersServed(v, v.ReadRecommended())
	for container, series := range v.ReadRecommended() {
		if v.Rules.For(container).Off {
			continue
		}
		p, live := a.history(&scratch, v, container, series)
		t := a.sketch(v, container)
		if t != nil { // a recipe caches results in its sketch
			var err error
			if t, err = sketch.Read(r.Needs, t.Image(), time.Time{}, 0); err != nil {
				return nil, fmt.Errorf("copy the data of container %s: %w", container, err)
			}
		}
		c, result := explanation.Explain(container, r, a.input(v, container, served, p, t))
		c.Published = explanation.Published(cached, container)
		answer.Containers = append(answer.Containers, c)
		estimates = append(estimates, a.estimate(v, container, p, live, &result))
	}
	advice, _ := a.advise(v, estimates)
	answer.Held = advice.Held
	return answer, nil
}
