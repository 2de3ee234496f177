package main

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"time"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
)

// candidate sizes the pods of a workload from the usage of all of them.
type candidate interface {
	// newAdvisor returns the advisor of a pod that starts with the declared container.
	newAdvisor(pod string, declared policy.Container, at time.Time) replay.Advisor
}

// expert recommends a constant size.
type expert struct{ replay.Fixed }

func (e expert) newAdvisor(string, policy.Container, time.Time) replay.Advisor { return e.Fixed }

// recommender recommends for a cluster with a single workload.
type recommender struct {
	recipe  *recipe.Recipe
	store   *usage.Store
	scratch usage.Profile
	sketch  *sketch.Sketch // nil = not needed by the recipe
	series  usage.Series
	pods    int
	kills   int
}

func newRecommender(name string, k resources.Kind) *recommender {
	parsed, err := recipe.Parse(name)
	if err != nil {
		panic(err) // the names are constants
	}
	c := usage.DefaultConfig()
	r := &recommender{recipe: parsed.ForKind(k), store: usage.NewStore(c), scratch: usage.NewProfile(c.Shape)}
	if r.recipe.Needs.Any() {
		r.sketch = sketch.New(r.recipe.Needs)
	}
	return r
}

func (r *recommender) newAdvisor(pod string, declared policy.Container, at time.Time) replay.Advisor {
	const workload = "closed-loop"
	key := usage.ContainerKey{Namespace: workload, Pod: pod, Container: replay.Container}
	r.series, _ = r.store.Track(key, usage.SeriesKey{Namespace: workload, Container: replay.Container}, at)
	if r.sketch != nil && r.pods == 0 {
		r.sketch.SetLimitRatio(sketch.LimitRatioOf(declared.Requests.Value(resources.Memory), declared.Limits.Value(resources.Memory)))
		r.sketch.SetDeclared(declared.Requests.Value(resources.Memory))
	}
	r.pods++
	return &podAdvisor{recommender: r, key: key}
}

// podAdvisor is the advisor of one pod, backed by the shared recommender.
type podAdvisor struct {
	*recommender
	key     usage.ContainerKey
	started time.Time
}

// Started implements replay.StartObserver.
func (p *podAdvisor) Started(at time.Time) { p.started = at }

// Observe implements replay.Advisor.
func (p *podAdvisor) Observe(at time.Time, k resources.Kind, use, limit resources.Amount) {
	p.store.Observe(usage.Sample{Container: p.key, Kind: k, At: at, Amount: use})
	switch {
	case p.sketch == nil:
	case k == resources.CPU && p.recipe.Needs.Starting(at.Sub(p.started), 0):
		p.sketch.ObserveStart(p.key.Pod, at, use, limit)
	default:
		p.sketch.ObservePod(p.key.Pod, at, k, use, limit)
	}
}

// Killed implements replay.Advisor.
func (p *podAdvisor) Killed(at time.Time, request, limit resources.Amount) {
	p.kills++
	p.store.ObserveOOM(usage.OOM{Container: p.key, At: at, Memory: request, Limit: limit, ID: strconv.Itoa(p.kills)})
	if p.sketch != nil {
		p.sketch.ObserveKill(at, request, limit)
	}
}

// Advise implements replay.Advisor.
func (p *podAdvisor) Advise(_ time.Time, current resources.List) resources.Bounds {
	p.scratch.Reset()
	p.store.Profile(&p.scratch, p.series)
	result := p.recipe.Recommend(recipe.Input{Profile: &p.scratch, Sketch: p.sketch, Containers: 1, Current: current})
	result.SaveTargets(p.sketch)
	b := result.Bounds
	for k := range resources.Kind(resources.Kinds) {
		if !result.Ready[k] || len(p.recipe.Target[k]) == 0 {
			b.Lower, b.Target, b.Upper = b.Lower.Without(k), b.Target.Without(k), b.Upper.Without(k)
		}
	}
	return b
}

// orderedAdvisor lets all other pods catch up before each call.
type orderedAdvisor struct {
	replay.Advisor
	waitUntil func(at int64) bool
}

// Observe implements replay.Advisor.
func (t orderedAdvisor) Observe(at time.Time, k resources.Kind, use, limit resources.Amount) {
	t.waitUntil(at.UnixNano())
	t.Advisor.Observe(at, k, use, limit)
}

// Killed implements replay.Advisor.
func (t orderedAdvisor) Killed(at time.Time, request, limit resources.Amount) {
	t.waitUntil(at.UnixNano())
	t.Advisor.Killed(at, request, limit)
}

// Started implements replay.StartObserver. It does not wait, because the replay reports a start
// ahead of time.
func (t orderedAdvisor) Started(at time.Time) {
	if s, listens := t.Advisor.(replay.StartObserver); listens {
		s.Started(at)
	}
}

// Advise implements replay.Advisor.
func (t orderedAdvisor) Advise(at time.Time, current resources.List) resources.Bounds {
	t.waitUntil(at.UnixNano())
	return t.Advisor.Advise(at, current)
}

// run plays a scenario. Each pod is a separate replay with its own updater and kubelet. All pods
// share the candidate and advance in turns, so that it observes them in the order of time.
func run(s *Scenario, c candidate) *Outcome {
	o := newOutcome(s)
	waiting := s.pods()
	slices.SortStableFunc(waiting, func(a, b Pod) int { return cmp.Compare(a.start(), b.start()) })
	var running []runningPod
	for started := 0; started < len(waiting) || len(running) > 0; {
		first := 0
		for i, t := range running {
			if t.at < running[first].at {
				first = i
			}
		}
		if started < len(waiting) && (len(running) == 0 || waiting[started].start() <= running[first].at) {
			next, _ := iter.Pull(replayPod(s, c, o, &waiting[started], "pod-"+strconv.Itoa(started)))
			first = len(running)
			running = append(running, runningPod{next: next})
			started++
		}
		at, active := running[first].next()
		running[first].at = at
		if !active {
			running = slices.Delete(running, first, first+1)
		}
	}
	return o
}

// runningPod is a replay that is suspended until all other pods reach an instant.
type runningPod struct {
	next func() (int64, bool)
	at   int64
}

// replayPod replays one pod from its admission by the webhook to its end.
func replayPod(s *Scenario, c candidate, o *Outcome, p *Pod, name string) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		at, setup := time.Unix(0, p.start()).UTC(), s.setup()
		declared := replay.InitialContainer(&p.Recording, setup)
		advisor := c.newAdvisor(name, declared, at)
		template := policy.Pod{Containers: []policy.Container{declared}}
		bounds := map[string]resources.Bounds{replay.Container: advisor.Advise(at, declared.Requests)}
		initial := policy.Fit(template, bounds, policy.Rules{}, policy.Ranges{}).Containers[0].Requests
		if size, recommended := initial.Get(s.Kind); recommended {
			setup.Initial = setup.Initial.With(s.Kind, size)
		}
		replay.Run(&p.Recording, setup, orderedAdvisor{advisor, yield}, o)
	}
}
