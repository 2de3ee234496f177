package recommend

import (
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// Advisor computes recommendations and checkpoint contents. Its fields are set once.
type Advisor struct {
	Store   *usage.Store
	Shape   usage.ProfileShape // of the store's profiles
	Recipe  recipe.Recipe      // of VPAs without their own
	Format  convert.Format
	Limits  OutputLimits
	History *LoadingGauge // of history loaded separately, nil: none
	Pods    *Pods         // for recipes that need current requests, nil: unknown
}

// history returns the history of a container, possibly in scratch, and its trusted duration, see
// trustedSince. The result must not be modified.
func (a *Advisor) history(scratch *usage.Profile, v *model.VPA, container string, series []usage.Series) (p *usage.Profile, live time.Duration) {
	if len(series) == 1 && v.Restored[container] == nil {
		p = a.Store.ProfileOf(series[0])
		return p, a.observedFor(v, container, p, series)
	}
	return scratch, a.merge(scratch, v, container, series)
}

func (a *Advisor) merge(dst *usage.Profile, v *model.VPA, container string, series []usage.Series) (live time.Duration) {
	dst.Reset()
	a.Store.Profile(dst, series...)
	live = a.observedFor(v, container, dst, series)
	if restored := v.Restored[container]; restored != nil {
		restored.MergeInto(dst)
	}
	return live
}

func (a *Advisor) observedFor(v *model.VPA, container string, p *usage.Profile, series []usage.Series) time.Duration {
	if p.Empty() {
		return 0
	}
	from := a.trustedSince(p.First(), series)
	if liveFrom, pending := v.Backfill.PendingFor(container); pending && liveFrom.After(from) {
		from = liveFrom
	}
	return p.Last().Sub(from)
}

// Estimates appends to dst the estimates of the recommended containers of a VPA, sorted by name,
// except in mode Off. It does not allocate.
func (a *Advisor) Estimates(v *model.VPA, scratch *usage.Profile, dst []model.Estimate) []model.Estimate {
	served := containersServed(v, v.Recommended())
	for container, series := range v.Recommended() {
		if v.Rules.For(container).Off {
			continue
		}
		p, live := a.history(scratch, v, container, series)
		t := a.sketch(v, container)
		seedTarget(v, container, t)
		result := a.recipe(v).Recommend(a.input(v, container, served, p, t))
		if t != nil {
			v.Change(func() { result.SaveTargets(t) })
		}
		dst = append(dst, a.estimate(v, container, p, live, &result))
	}
	return dst
}

func containersServed(v *model.VPA, containers iter.Seq2[string, []usage.Series]) (n int) {
	for container := range containers {
		if !v.Rules.For(container).Off {
			n++
		}
	}
	return n
}

// memoryGrowth describes the daily growth. It does not change the recommendation.
func (a *Advisor) memoryGrowth(v *model.VPA, container string) string {
	t := v.Sketches[container]
	if t == nil || t.Peaks == nil || !a.recipe(v).Needs.Peaks {
		return ""
	}
	g := t.Peaks.Growth()
	if g.Days == 0 {
		return ""
	}
	limit := resources.Amount(0)
	if a.Pods != nil {
		limit = a.Pods.MemoryLimit(v, container)
	}
	return growthMessage(g, limit)
}

// roundPoints rounds down to half an hour, because each step requires a status write.
func roundPoints(p recipe.Points) recipe.Points {
	const step = 6
	if p.Have >= p.Want {
		return recipe.Points{}
	}
	p.Have -= p.Have % step
	return p
}

// recipe returns the recipe of a VPA, or of the flag before the first SketchKeeper.Follow.
func (a *Advisor) recipe(v *model.VPA) *recipe.Recipe {
	if c := v.Recipe; c != nil {
		return c.Recipe
	}
	return &a.Recipe
}

func (a *Advisor) sketch(v *model.VPA, container string) *sketch.Sketch {
	if !a.recipe(v).Needs.Any() {
		return nil // of an earlier recipe
	}
	return v.Sketches[container]
}

func (a *Advisor) input(v *model.VPA, container string, containers int, p *usage.Profile, t *sketch.Sketch) recipe.Input {
	in := recipe.Input{Profile: p, Sketch: t, Containers: containers}
	if a.recipe(v).UsesCurrent && a.Pods != nil {
		in.Current = a.Pods.CurrentRequests(v, container)
	}
	return in
}

// estimate distrusts kinds with sketches that are much shorter than the history.
func (a *Advisor) estimate(v *model.VPA, container string, p *usage.Profile, live time.Duration, result *recipe.Result) model.Estimate {
	r := a.recipe(v)
	untrusted := a.untrusted(v, container, live)
	for k, covered := range result.Coverage {
		if r.Needs.Any() && p.Last().Sub(p.First()) > covered+sketchLag && covered < a.minObservation(v, container, resources.Kind(k)) {
			untrusted[k] = true
		}
	}
	e := model.Estimate{
		Container: container,
		Bounds:    result.Bounds,
		Known:     result.Ready,
		Untrusted: untrusted,
		Rounded:   a.rounded(),
		History:   status.Covered(covered(r, result, p)),
		Rising:    a.memoryGrowth(v, container),
	}
	for k, points := range result.Points {
		e.Points[k] = roundPoints(points)
	}
	return e
}

// sampleSpan is the maximum time that one sample covers: a minute if live, --history-resolution
// from Prometheus.
const sampleSpan = 15 * time.Minute

// covered returns the minimum time covered by history p and the sketches that the recipe needs.
func covered(r *recipe.Recipe, result *recipe.Result, p *usage.Profile) time.Duration {
	least := min(p.Last().Sub(p.First()), time.Duration(min(p.Samples(), maxSamples))*sampleSpan)
	if r.Needs.Any() {
		for k, empty := range [resources.Kinds]bool{p.CPU.Empty(), p.Memory.Empty()} {
			if !empty {
				least = min(least, result.Coverage[k])
			}
		}
	}
	return least
}

// maxSamples times sampleSpan fits a duration.
const maxSamples = 1 << 20

// seedTarget records the published target as changed now, because the true time is unknown.
func seedTarget(v *model.VPA, container string, t *sketch.Sketch) {
	if t == nil {
		return
	}
	last, found := published(v, container)
	if !found {
		return
	}
	targets := convert.Resources(last.Target)
	for k := range resources.Kind(resources.Kinds) {
		if target, has := targets.Get(k); has {
			if _, _, known := t.Target(k); !known {
				v.Change(func() { t.SetTarget(k, target) })
			}
		}
	}
}

// sketchLag is how much later than its history a complete sketch may start, or earlier end.
const sketchLag = 10 * time.Minute

// minObservation is the observation time required to lower a published target.
func (a *Advisor) minObservation(v *model.VPA, container string, k resources.Kind) time.Duration {
	if k == resources.Memory {
		return v.RulesOf(container).Interval
	}
	return a.Store.Rules().Interval
}

func (a *Advisor) rounded() bool {
	return a.Format.CPUStep > 1 || a.Format.MemoryStep > 1 || a.Format.HumanizeMemory || a.Limits.IntegerCPU
}

// Advise returns the recommendation for a VPA and fills the history fields of the outcome.
//
//   - A kind without history keeps its published value, because a floor without data would
//     shrink pods after a restart.
//   - A kind with possibly incomplete history keeps its published value if the target would be
//     lower.
//   - A kind without history and published value is omitted, such as the CPU of a container
//     killed before its first sample.
//   - A container without any kind gets no recommendation.
//
// Kept kinds are recorded in the VPA.
func (a *Advisor) Advise(v *model.VPA, estimates []model.Estimate) (advice status.Outcome) {
	advice, v.Trust.HeldKinds = a.advise(v, estimates)
	return advice
}

func (a *Advisor) advise(v *model.VPA, estimates []model.Estimate) (advice status.Outcome, kept map[string][resources.Kinds]bool) {
	advice.History = 1<<63 - 1
	var held, lack, rising []string
	separate := a.recipe(v).SeparateMemoryLimit
	for _, e := range estimates {
		lack = append(lack, insufficientPoints(e, v.Rules.For(e.Container).Controlled)...)
		if e.Rising != "" {
			rising = append(rising, fmt.Sprintf("container %s: %s", e.Container, e.Rising))
		}
		before, published := published(v, e.Container)
		before = convertPublished(before, convert.HasSeparateMemoryLimit(&v.Object.Status), separate)
		known := e.Known
		if known == [resources.Kinds]bool{} && !published {
			continue
		}
		c := formatBounds(e.Container, e.Bounds, v.Rules.For(e.Container).Controlled, a.Format)
		asked := len(c.Target)
		if separate {
			before = raiseHeldMemory(before, c, e.Untrusted[resources.Memory])
		}
		if kinds := holdLowered(&known, e.Untrusted, c, before, separate); kinds != nil {
			held = append(held, fmt.Sprintf("%s of container %s", strings.Join(kinds, " and "), e.Container))
		}
		noteHeld(&kept, e.Container, known)
		keepPublished(&c, before, known)
		if asked > 0 && len(c.Target) == 0 {
			continue
		}
		span := e.History
		if published && e.Untrusted != [resources.Kinds]bool{} { // it still relies on the earlier history
			before, _ := convert.History(v.Object, e.Container)
			span = max(span, before)
		}
		advice.History = min(advice.History, span)
		advice.Histories = append(advice.Histories, convert.ContainerHistory{Name: e.Container, Span: span})
		advice.Recommendation = append(advice.Recommendation, c)
	}
	advice.Recommendation = RoundAndCap(advice.Recommendation, v.Object, a.Limits)
	advice.Held, advice.MissingPoints, advice.Rising = heldMessage(held), insufficientMessage(lack), strings.Join(rising, "; ")
	if separate {
		advice.MemoryLimits = separateMessage(v, advice.Recommendation)
	}
	return advice, kept
}

// maxForecastDays is the longest reported time until memory growth reaches a limit.
const maxForecastDays = 365

// growthMessage describes memory growth, and when it reaches a limit in bytes. 0 means no limit.
func growthMessage(g sketch.Growth, limit resources.Amount) string {
	left := g.Reaches(float64(limit))
	if limit == 0 || left > maxForecastDays {
		return g.String()
	}
	when := "within a day"
	if left > 1 {
		when = fmt.Sprintf("in %d days", left)
	}
	return fmt.Sprintf("%s; at this rate it reaches its limit of %s %s", g, sketch.Bytes(float64(limit), 3), when)
}

// published prefers the uncapped target, and ignores the status of another target.
func published(v *model.VPA, container string) (c status.Recommended, found bool) {
	if v.StatusOfOther() || !status.Provided(v.Object) {
		return c, false
	}
	for _, c := range v.Object.Status.Recommendation.ContainerRecommendations {
		if c.ContainerName == container {
			if c.UncappedTarget != nil {
				c.Target = c.UncappedTarget
			}
			return c, true
		}
	}
	return c, false
}

// holdLowered marks and returns untrusted kinds that would fall below their published values.
func holdLowered(known *[resources.Kinds]bool, doubt [resources.Kinds]bool, c, before status.Recommended, separate bool) []string {
	var held []string
	for k := range resources.Kind(resources.Kinds) {
		name := convert.ResourceName(k)
		now, found := c.Target[name]
		was, published := before.Target[name]
		lower := now.Cmp(was) < 0
		if protects := c.UpperBound[name]; separate && k == resources.Memory {
			lower = lower || protects.Cmp(before.UpperBound[name]) < 0
		}
		if doubt[k] && found && published && lower {
			known[k] = false
			held = append(held, string(name))
		}
	}
	return held
}

func noteHeld(kept *map[string][resources.Kinds]bool, container string, known [resources.Kinds]bool) {
	if known == [resources.Kinds]bool{true, true} {
		return
	}
	if *kept == nil {
		*kept = map[string][resources.Kinds]bool{}
	}
	(*kept)[container] = [resources.Kinds]bool{resources.CPU: !known[resources.CPU], resources.Memory: !known[resources.Memory]}
}

// keepPublished replaces unknown kinds with their published values, or removes them.
func keepPublished(c *status.Recommended, before status.Recommended, known [resources.Kinds]bool) {
	if known == [resources.Kinds]bool{true, true} {
		return
	}
	c.UncappedTarget = maps.Clone(c.UncappedTarget) // the published one may differ from the target
	for k := range resources.Kind(resources.Kinds) {
		name := convert.ResourceName(k)
		if _, controlled := c.Target[name]; known[k] || !controlled {
			continue
		}
		for _, list := range []struct{ now, before corev1.ResourceList }{
			{c.Target, before.Target}, {c.LowerBound, before.LowerBound}, {c.UpperBound, before.UpperBound}, {c.UncappedTarget, before.UncappedTarget},
		} {
			if q, found := list.before[name]; found {
				list.now[name] = q
			} else {
				delete(list.now, name)
			}
		}
	}
}

func formatBounds(container string, b resources.Bounds, controlled [resources.Kinds]bool, f convert.Format) status.Recommended {
	for k := range resources.Kind(resources.Kinds) {
		if !controlled[k] {
			b.Lower, b.Target, b.Upper = b.Lower.Without(k), b.Target.Without(k), b.Upper.Without(k)
		}
	}
	target := f.List(b.Target)
	return status.Recommended{
		ContainerName:  container,
		Target:         target,
		LowerBound:     f.List(b.Lower),
		UpperBound:     f.List(b.Upper),
		UncappedTarget: target, // shared map, copy it before a change
	}
}

// Contents returns the checkpoint contents of a VPA by kept container: the history without the
// peaks of open windows, and these windows separately, because a restart would count their peaks
// twice.
func (a *Advisor) Contents(v *model.VPA, now time.Time) map[string]checkpoint.Content {
	scratch := usage.NewProfile(a.Shape)
	contents := map[string]checkpoint.Content{}
	for container, series := range v.Kept() {
		a.merge(&scratch, v, container, series)
		if scratch.Empty() && scratch.Memory.Empty() {
			continue
		}
		a.Store.RemovePeaks(&scratch, now, series...)
		content := checkpoint.Content{Target: v.Target(), Image: scratch.Image(), Windows: map[string]usage.Window{}, Sketch: v.SavedSketches[container]}
		if t := v.Sketches[container]; t != nil {
			content.Sketch = t.Image()
		}
		for key, window := range a.Store.Windows(now, series...) {
			content.Windows[key.Pod] = window
		}
		contents[container] = content
	}
	return contents
}
