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

// SketchKeeper keeps the sketches of the VPAs of a model. Its exported fields are set once;
// it belongs to one goroutine.
type SketchKeeper struct {
	Book   *recipe.Book
	Model  *model.Model
	Limits CPULimits
	Pods   *Pods // of the model; nil: none are known, nor when they started
	// Backfills: history can be loaded for the sketches that a recipe begins.
	Backfills bool

	kept    int                  // VPAs with sketches, or that will have some
	counted map[servedRecipe]int // of the last Count
}

// CPULimits returns the CPU limit of a container in millicores, or 0 if it has none or it is not known.
type CPULimits interface {
	Limit(usage.ContainerKey) resources.Amount
}

// For returns a keeper of the same recipes for another model, in which the past is
// loaded by another goroutine. It does not measure.
func (k *SketchKeeper) For(m *model.Model, limits CPULimits) *SketchKeeper {
	return &SketchKeeper{Book: k.Book.Fork(), Model: m, Limits: limits}
}

// linger is how long a sketch stays that no recipe needs.
const linger = 24 * time.Hour

// Follow gives all VPAs the recipes that they ask for, and makes their sketches what these need.
func (k *SketchKeeper) Follow(log klog.Logger, now time.Time) {
	k.kept = 0
	for _, v := range k.Model.VPAs() {
		k.choose(log, v, now)
		needs := v.Recipe.Needs.Any()
		if needs || v.Recipe.Problem != "" { // somebody mistyped what is needed
			v.SketchesNeeded = now
		}
		if v.Sketches != nil && now.Sub(v.SketchesNeeded) >= linger {
			v.Sketches = nil
		}
		if needs || v.Sketches != nil {
			k.kept++
		}
	}
}

// choose gives a VPA the recipe of its annotation, else that of its policy, unless it has that already.
func (k *SketchKeeper) choose(log klog.Logger, v *model.VPA, now time.Time) {
	annotation := v.Object.Annotations[recipe.Annotation]
	if v.Sizing.OnlyRecipe {
		annotation = ""
	}
	if v.Recipe != nil && v.Recipe.Fits(annotation, v.Sizing.Recipe) {
		return
	}
	former := v.Recipe
	v.Recipe = k.Book.Choose(annotation, v.Sizing.Recipe)
	v.Invalidate()
	if v.Recipe.Problem != "" {
		log.Info("The recipe of a VPA cannot be used", "vpa", klog.KObj(v.Object), "problem", v.Recipe.Problem)
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
		_ = k.Restore(v, v.SavedSketches, now, 0) // they were looked at before
		v.SavedSketches = nil
	}
}

// Observe adds a sample that counts to the sketches of all VPAs that select the pod, weight times: 1 for a live sample;
// history in longer steps than a minute stands for as many samples as live ones would have been.
func (k *SketchKeeper) Observe(s usage.Sample, weight int) {
	if k.kept == 0 {
		return
	}
	limit, asked := resources.Amount(0), s.Kind != resources.CPU
	for _, v := range k.Model.Selecting(s.Container) {
		t := of(v, s.Container.Container)
		if t == nil {
			continue
		}
		if !asked {
			limit, asked = k.Limits.Limit(s.Container), true
		}
		use := k.use(v, &s, limit)
		// The start of a container that was restarted in its pod counts where its limit held it down:
		// it may never get beyond its start with so little, and then nothing else is seen of it.
		starting := k.starting(v, &s) && (!use.HeldDown() || !k.Pods.Restarted(s.Container))
		for range weight {
			if starting {
				t.ObserveStart(s.Container.Pod, s.At, s.Amount, limit)
			} else {
				t.ObserveUse(s.Container.Pod, s.At, s.Kind, use)
			}
		}
		if s.Waiting > 0 && !starting {
			t.Waited(s.At, s.Amount, s.Waiting)
		}
	}
}

// use returns what a sample says, with what else is known where a limit of CPU matters.
func (k *SketchKeeper) use(v *model.VPA, s *usage.Sample, limit resources.Amount) sketch.Use {
	u := sketch.Use{Amount: s.Amount, Limit: limit, Throttled: s.Throttled}
	if s.Kind == resources.CPU && limit > 0 {
		u.Stands = v.Rules.For(s.Container.Container).RequestsOnly
	}
	if s.Throttled > 0 && k.Pods != nil {
		u.Request = k.Pods.Request(s.Container)
	}
	return u
}

// starting reports whether a sample is the use of CPU of a container that starts, and the
// recipe leaves that out. Of history that is loaded it is not known.
func (k *SketchKeeper) starting(v *model.VPA, s *usage.Sample) bool {
	needs := &v.Recipe.Needs
	if s.Kind != resources.CPU || needs.Start == 0 || k.Pods == nil {
		return false
	}
	return needs.Starting(s.At.Sub(k.Pods.Started(s.Container)), convert.BoostDuration(v.Object, s.Container.Container))
}

// Killed adds a kill that counts.
func (k *SketchKeeper) Killed(oom usage.OOM) {
	if k.kept == 0 {
		return
	}
	for _, v := range k.Model.Selecting(oom.Container) {
		if t := of(v, oom.Container.Container); t != nil {
			t.Killed(oom.At, oom.Memory, oom.Limit)
		}
	}
}

// Measure makes sketches know the limits of memory that the pods have now, and the request of a new container, where a
// recipe asks for them. It is called when it is known which pods there are.
func (k *SketchKeeper) Measure() {
	if k.kept == 0 || k.Pods == nil {
		return
	}
	for _, v := range k.Model.VPAs() {
		if v.Recipe == nil || !v.Recipe.Needs.LimitRatio && v.Recipe.Needs.Declared == 0 {
			continue
		}
		for container, t := range v.Sketches {
			changed := t.Limited(v.LimitRatio(container))
			if t.Undeclared() && t.Declare(k.Pods.Requests(v, container).Value(resources.Memory)) || changed {
				v.Invalidate()
			}
		}
	}
}

// of returns the sketch of a container; nil: none is kept.
func of(v *model.VPA, container string) *sketch.Sketch {
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

// Restore gives a VPA that was just taken on the sketches that were saved, as images
// by container. While somebody mistyped what is needed they are put by. The error
// joins one for each that cannot be used: that container begins anew.
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
			problems = append(problems, fmt.Errorf("container %s: what the recipe %s knows of the past cannot be used: %w", container, v.Recipe.Name, err))
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

// Absorb adds the sketches of another model, in which the past was loaded, to those
// of the VPAs that point to the same targets. It leaves out the parts that a request loads.
func (k *SketchKeeper) Absorb(past *model.Model) {
	for _, theirs := range past.VPAs() {
		if v := k.Model.Find(theirs.Object.Namespace, theirs.Object.Name); v != nil {
			k.AbsorbParts(v, theirs, func(container string) sketch.Parts { return ^v.Backfill.SketchParts(container) })
		}
	}
}

// AbsorbParts adds parts of the sketches of another model's VPA. partsOf returns the parts to add by container.
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
		of(v, container).MergeParts(t, parts)
	}
	v.Invalidate()
}

// AnyNeeds reports whether the recipe of a VPA of a model needs something.
func AnyNeeds(m *model.Model, something func(sketch.Needs) bool) bool {
	return slices.ContainsFunc(m.VPAs(), func(v *model.VPA) bool { return v.Recipe != nil && something(v.Recipe.Needs) })
}

// NewSketchGauge registers the gauge that Count fills.
func NewSketchGauge(registry prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "loadline_recommender_vpas_by_recipe",
		Help: `VPAs by the recipe that serves them, and by where that comes from: the flag, the annotation, a policy, or "wrong_annotation", which means that the flag's recipe stands in.`,
	}, []string{"recipe", "source"})
}

// Count says how many VPAs each recipe serves, and why.
func (k *SketchKeeper) Count(gauge *prometheus.GaugeVec) {
	now := make(map[servedRecipe]int, len(k.counted))
	for _, v := range k.Model.VPAs() {
		if c := v.Recipe; c != nil {
			now[servedRecipe{c.Name, c.Source}]++
		}
	}
	for s := range k.counted {
		if now[s] == 0 {
			gauge.DeleteLabelValues(s.recipe, string(s.source))
		}
	}
	for s, n := range now {
		gauge.WithLabelValues(s.recipe, string(s.source)).Set(float64(n))
	}
	k.counted = now
}

type servedRecipe struct {
	recipe string
	source recipe.Source
}

// Expire drops the sketches of containers of which no history is left. While the target of a VPA cannot be read its
// pods are not seen, though they may be there: then a sketch goes when it is as old as histories become.
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

// Explain explains the recommendation that the next iteration computes for a VPA. The cached object has the published
// one. It changes nothing, and may run inside Model.Read.
func (a *Advisor) Explain(v *model.VPA, cached *vpav1.VerticalPodAutoscaler) (*explanation.VPA, error) {
	answer := &explanation.VPA{Namespace: v.Object.Namespace, Name: v.Object.Name, Recipe: explanation.Recipe{Source: recipe.FromFlag}, Containers: []explanation.Container{}}
	if v.Recipe != nil {
		answer.Recipe = explanation.RecipeOf(v.Recipe)
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
