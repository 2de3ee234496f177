package compat

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"

	"loadline.dev/loadline/apis/autoscaling/v1"
)

var histories = flag.Int("histories", 300, "number of random histories")

const firstSeed = 1

// Both recommenders get the same pods, samples, kills, policies and restarts, and must produce the
// same recommendations and checkpoints.
func TestRandomHistories_MatchUpstream(t *testing.T) {
	require.NoError(t, features.MutableFeatureGate.Set("PerVPAConfig=true"))
	first := int64(firstSeed)
	if *seed != 0 {
		first = *seed
	}
	t.Logf("%d histories from seed %d", *histories, first)
	var total tally
	for s := first; s < first+int64(*histories); s++ {
		h := newHistory(s)
		end := judge(certainty, func() outcome { return replay(t, h) })
		if end.difference != "" {
			h = shorten(t, h)
			end = judge(certainty, func() outcome { return replay(t, h) })
			t.Fatalf("history of seed %d (repeat: go test ./compat -run TestRandomHistories -seed=%d -histories=1)\n%s\n%s", s, s, h, end.difference)
		}
		total.add(end.seen)
	}
	t.Log(total)
	require.LessOrEqual(t, total.near*1000, total.weights, "weights that are one off because floats are added in another order")
	require.LessOrEqual(t, total.wavering, 1+*histories/1000, "histories in which upstream differs from itself")
}

type tally struct{ recommendations, checkpoints, weights, near, moved, wavering int }

func (a *tally) add(b tally) {
	a.recommendations += b.recommendations
	a.checkpoints += b.checkpoints
	a.weights += b.weights
	a.near += b.near
	a.moved += b.moved
	a.wavering += b.wavering
}

func (a tally) String() string {
	return fmt.Sprintf("%d recommendations and %d checkpoints compared; of %d weights %d differ by one; %d histograms refer to another time; in %d histories upstream differed from itself", a.recommendations, a.checkpoints, a.weights, a.near, a.moved, a.wavering)
}

func (h history) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%+v\n", h.options)
	for i, p := range h.vpas {
		for j, v := range p.versions {
			fmt.Fprintf(&text, "VPA %d version %d: %s/%s %v %s\n", i, j, p.namespace, p.name, v.Annotations, policies(v))
		}
	}
	for _, e := range h.events {
		fmt.Fprintln(&text, e)
	}
	return text.String()
}

func policies(v *upstreamv1.VerticalPodAutoscaler) string {
	text, err := json.Marshal(v.Spec.ResourcePolicy)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// shorten removes events while a difference remains in a few replays.
func shorten(t *testing.T, h history) history {
	for size := len(h.events) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(h.events); {
			shorter := h
			shorter.events = slices.Delete(slices.Clone(h.events), at, at+size)
			if judge(3, func() outcome { return replay(t, shorter) }).difference != "" {
				h = shorter
			} else {
				at += size
			}
		}
	}
	return h
}

// replay runs a history on both recommenders until its end or the first difference, with a fake
// clock because upstream's checkpoint writer reads the clock.
func replay(t *testing.T, h history) (end outcome) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, h)
		for i, e := range h.events {
			if wait := time.Until(r.begin.Add(e.at)); wait > 0 {
				time.Sleep(wait)
			}
			if difference := r.take(t, e); difference != "" {
				end.difference, end.at = e.String()+": "+difference, i
				break
			}
		}
		end.seen, end.answers = r.seen, r.answers
	})
	return end
}

type pair struct {
	history history
	begin   time.Time
	theirs  *upstream
	ours    *loadline
	running map[string]event         // by pod, with its first event
	kills   map[string]time.Duration // latest of each pod and container
	objects map[int]*upstreamv1.VerticalPodAutoscaler
	mirror  map[*upstreamv1.VerticalPodAutoscaler]*v1.VerticalPodAutoscaler
	seen    tally
	answers [][]upstreamv1.RecommendedContainerResources // Loadline's, until it reads upstream's checkpoints
	mixed   bool                                         // Loadline has read upstream's checkpoints
}

func newPair(t *testing.T, h history) *pair {
	return &pair{
		history: h, begin: time.Now(),
		theirs: newUpstream(h.options), ours: newLoadline(t, h.ours()),
		running: map[string]event{}, kills: map[string]time.Duration{},
		objects: map[int]*upstreamv1.VerticalPodAutoscaler{}, mirror: map[*upstreamv1.VerticalPodAutoscaler]*v1.VerticalPodAutoscaler{},
	}
}

func (r *pair) take(t *testing.T, e event) string {
	p := r.history.vpas[e.vpa]
	switch e.kind {
	case changes:
		r.objects[e.vpa] = p.versions[e.version]
		r.see(t)
		return ""
	case passes:
		return r.pass(t, e)
	case restarts:
		return r.restart(t, e)
	case appears:
		r.running[e.pod] = e
	case vanishes:
		e.vpa = r.running[e.pod].vpa
		delete(r.running, e.pod)
	case killed:
		container := e.pod + "/" + e.container
		r.kills[container] = max(r.kills[container], e.sampled)
	case uses:
		if r.opensWithZero(e) || r.precedesKill(e) {
			return ""
		}
	}
	p = r.history.vpas[e.vpa]
	r.theirs.take(t, r.begin, p, e)
	r.ours.take(r.begin, time.Now(), p, e)
	return ""
}

// opensWithZero reports whether a memory window would begin with 0. Upstream then rejects all later
// samples of the window.
func (r *pair) opensWithZero(e event) bool {
	if e.resource != model.ResourceMemory || e.amount != 0 {
		return false
	}
	c := r.theirs.cluster.GetContainer(model.ContainerID{PodID: podID(r.history.vpas[e.vpa], e.pod), ContainerName: e.container})
	return c == nil || c.GetMaxMemoryPeak() == 0 || !r.begin.Add(e.sampled).Before(c.WindowEnd)
}

// precedesKill reports whether a memory sample is older than a kill recorded before it. Upstream
// drops such a sample.
func (r *pair) precedesKill(e event) bool {
	kill, found := r.kills[e.pod+"/"+e.container]
	return found && e.resource == model.ResourceMemory && e.sampled < kill
}

func (r *pair) see(t *testing.T) {
	for i, object := range r.objects {
		r.theirs.see(t, r.history.vpas[i], object)
	}
	r.ours.see(t, r.history.vpas, r.objects, r.mirror, time.Now())
}

func (r *pair) pass(t *testing.T, e event) string {
	r.see(t)
	for i, p := range r.history.vpas {
		if object := r.objects[i]; object != nil {
			if d := r.compareRecommendations(t, p, object); d != "" {
				return d
			}
		}
	}
	if e.saves {
		if d := r.compareCheckpoints(r.theirs.save(t), r.ours.save(t, r.history.vpas, time.Now())); d != "" {
			return d
		}
	}
	if e.cleans && r.mayClean() {
		r.theirs.clean(t.Context(), time.Now())
		r.ours.clean(time.Now())
	}
	return ""
}

// mayClean reports whether both sides drop the same histories. They differ for running pods
// (upstream keeps the peak of the open window, Loadline begins a new window) and for histories
// without CPU samples (upstream drops them with their pods, Loadline keeps them while a VPA selects
// them, because they may hold an OOM kill).
func (r *pair) mayClean() bool {
	for _, pod := range r.running {
		p := r.history.vpas[pod.vpa]
		for _, name := range pod.names {
			c := r.theirs.cluster.GetContainer(model.ContainerID{PodID: podID(p, pod.pod), ContainerName: name})
			if c == nil || time.Since(c.LastCPUSampleStart) > time.Hour {
				return false
			}
		}
	}
	for series := range r.ours.store.All() {
		r.ours.scratch.Reset()
		r.ours.store.Profile(&r.ours.scratch, series)
		if r.ours.scratch.Empty() {
			return false
		}
	}
	return true
}

// restart lets both sides write checkpoints, drop their state and load the checkpoints of the same
// or of the other side.
func (r *pair) restart(t *testing.T, e event) string {
	r.see(t)
	theirs, ours := maps.Clone(r.theirs.save(t)), r.ours.save(t, r.history.vpas, time.Now())
	if d := r.compareCheckpoints(theirs, ours); d != "" {
		return d
	}
	// Upstream forever counts a container with only an empty checkpoint among the containers that
	// share the pod's minimum.
	maps.DeleteFunc(theirs, func(name string, _ *upstreamv1.VerticalPodAutoscalerCheckpoint) bool { return ours[name] == nil })
	theirs = *through[storedCheckpoints](t, theirs)
	r.theirs, r.ours = newUpstream(r.history.options), newLoadline(t, r.history.ours())
	r.see(t)
	if e.crossed {
		theirs, ours = ours, theirs
		r.mixed = true
	}
	for i := range r.objects {
		r.theirs.load(t, r.history.vpas[i], theirs)
		r.ours.load(t, r.history.vpas[i], ours)
	}
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		pod := r.running[name]
		r.theirs.take(t, r.begin, r.history.vpas[pod.vpa], pod)
		r.ours.take(r.begin, time.Now(), r.history.vpas[pod.vpa], pod)
	}
	return ""
}

// compareRecommendations returns the differences between the recommendations for a VPA. For a
// resource without samples upstream publishes the floor and Loadline nothing.
func (r *pair) compareRecommendations(t *testing.T, p vpaPlan, object *upstreamv1.VerticalPodAutoscaler) string {
	got, answer := map[string]upstreamv1.RecommendedContainerResources{}, r.ours.recommend(p)
	for _, c := range answer {
		got[c.ContainerName] = c
	}
	if !r.mixed {
		r.answers = append(r.answers, answer)
	}
	states := r.theirs.states(p)
	for _, want := range r.theirs.recommend(t, p, object) {
		state := states[want.ContainerName]
		for _, list := range lists(want) {
			if state.AggregateCPUUsage.IsEmpty() {
				delete(list, corev1.ResourceCPU)
			}
			if state.AggregateMemoryPeaks.IsEmpty() {
				delete(list, corev1.ResourceMemory)
			}
		}
		for i, list := range lists(want) {
			if other := lists(got[want.ContainerName])[i]; !equalLists(list, other) {
				return fmt.Sprintf("container %s of %s\nupstream: %v\nloadline: %v", want.ContainerName, p.name, lists(want), lists(got[want.ContainerName]))
			}
		}
		delete(got, want.ContainerName)
		r.seen.recommendations++
	}
	if len(got) > 0 {
		return fmt.Sprintf("only Loadline recommends for %s: %v", p.name, got)
	}
	return ""
}

func lists(c upstreamv1.RecommendedContainerResources) []corev1.ResourceList {
	return []corev1.ResourceList{c.Target, c.LowerBound, c.UpperBound, c.UncappedTarget}
}

func equalLists(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// compareCheckpoints returns the differences between checkpoints. Loadline writes no checkpoint
// without data.
func (r *pair) compareCheckpoints(theirs, ours storedCheckpoints) string {
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		want, got := theirs[name], ours[name]
		if got == nil {
			if want.Status.TotalSamplesCount != 0 || len(want.Status.MemoryHistogram.BucketWeights) > 0 {
				return fmt.Sprintf("no checkpoint %s, upstream's: %+v", name, want.Status)
			}
			continue
		}
		if want.Spec != got.Spec || !r.equalStatus(&want.Status, &got.Status) {
			return fmt.Sprintf("checkpoint %s\nupstream: %+v %+v\nloadline: %+v %+v", name, want.Spec, want.Status, got.Spec, got.Status)
		}
		r.seen.checkpoints++
	}
	for name := range ours {
		if theirs[name] == nil {
			return "only Loadline writes the checkpoint " + name
		}
	}
	return ""
}

func (r *pair) equalStatus(a, b *upstreamv1.VerticalPodAutoscalerCheckpointStatus) bool {
	return a.Version == b.Version && a.TotalSamplesCount == b.TotalSamplesCount &&
		sameSecond(a.LastUpdateTime.Time, b.LastUpdateTime.Time) &&
		sameSecond(a.FirstSampleStart.Time, b.FirstSampleStart.Time) && sameSecond(a.LastSampleStart.Time, b.LastSampleStart.Time) &&
		r.equalHistogram(&a.CPUHistogram, &b.CPUHistogram, r.history.options.aggregation.CPUHistogramDecayHalfLife) &&
		r.equalHistogram(&a.MemoryHistogram, &b.MemoryHistogram, r.history.options.aggregation.MemoryHistogramDecayHalfLife)
}

func sameSecond(a, b time.Time) bool { return a.IsZero() == b.IsZero() && a.Unix() == b.Unix() }

// equalHistogram compares the stored form of two histograms. Upstream merges the histories of a VPA
// in map order, so a weight between two integers is rounded either way. The merge also sets all
// reference times to the latest one, even of an empty history, so the totals may refer to different
// times.
func (r *pair) equalHistogram(a, b *upstreamv1.HistogramCheckpoint, halfLife time.Duration) bool {
	total := a.TotalWeight
	if later := b.ReferenceTimestamp.Sub(a.ReferenceTimestamp.Time); later != 0 && total != 0 {
		r.seen.moved++
		total *= math.Exp2(-float64(later) / float64(halfLife))
	}
	if math.Abs(total-b.TotalWeight) > 1e-9*total {
		return false
	}
	for bucket := range union(a.BucketWeights, b.BucketWeights) {
		x, y := int(a.BucketWeights[bucket]), int(b.BucketWeights[bucket])
		r.seen.weights++
		if x != y {
			r.seen.near++
		}
		if x < y-1 || x > y+1 {
			return false
		}
	}
	return true
}

func union(a, b map[int]uint32) map[int]uint32 {
	all := maps.Clone(a)
	if all == nil {
		all = map[int]uint32{}
	}
	maps.Copy(all, b)
	return all
}
