package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/e2e/replay"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// Replays a recording through the metrics API, one minute per iteration. Every comparison must
// match the backtester: across a memory window, OOM kills and resizes, a handover to another
// recommender, and kill -9.
//
// The recording ends now, because the recommender uses the real clock for the state that is open at
// the end.
func TestReplay_LiveRecommenderMatchesBacktest(t *testing.T) {
	parallelTest(t)
	r := newLiveReplay(t)
	for _, stop := range r.stops() {
		r.advance(t, stop.at)
		stop.do(t)
	}
	for _, l := range r.lived {
		require.Equal(t, len(l.compared) < len(kinds), l.restarted > 0, "%s was killed for want of memory %d times", l.Workload.Name, l.restarted)
	}
	fmt.Printf("replay: %d workloads, %d recorded minutes, compared %d times; %d out-of-memory kills, %d resizes; %d times the recommender was killed\n",
		len(r.lived), len(r.lived[0].Recording.Samples), r.comparisons, r.kills, r.resizes, r.deaths)
}

type liveReplay struct {
	api   *replay.API
	own   [2]*harness.Daemon // the second writes all checkpoints in each iteration, so that kill -9 loses nothing
	now   int                // index of the running one
	lived []*replayedWorkload
	start time.Time
	end   time.Time
	last  time.Time // last recorded minute that was served

	comparisons, kills, resizes, deaths int
}

func newLiveReplay(t *testing.T) *liveReplay {
	t.Helper()
	const name = "replay"
	ns, r := namespace(t, name), &liveReplay{end: time.Now().Truncate(time.Second)}
	// More than a day, so that the memory window of the last hours is the second one.
	day, err := replay.Seconds(recordings("growing", "spiky")...)
	require.NoError(t, err)
	day.Cut(28*60).Name, day.CPURequest, day.MemoryRequest = "day", "500m", "512Mi"
	// A container that is too small and gets OOM-killed.
	tight, err := replay.Seconds(recordings("spiky", "growing")...)
	require.NoError(t, err)
	tight.Cut(20*60).Name, tight.CPURequest, tight.MemoryRequest = "tight", "500m", "310Mi"
	for _, one := range []*replay.Recording{day, tight} {
		one.EndAt(r.end)
	}
	r.start = day.Start

	free, limited := []string{"vpa", "loadline", "autopilot"}, []string{"vpa", "loadline:memory-lower=0.5", "cruisekube"}
	unlimited, err := replay.Backtest(t.Context(), pluginBinary(t), t.TempDir(), "none", true, free, day)
	require.NoError(t, err)
	for _, text := range free {
		l := deploy(t, ns, name, text, day, "")
		l.story = unlimited
		r.lived = append(r.lived, l)
	}
	narrow, err := replay.Backtest(t.Context(), pluginBinary(t), t.TempDir(), memoryHeadroom, true, limited, tight)
	require.NoError(t, err)
	for _, text := range limited {
		l := deploy(t, ns, name, text, tight, limitOf(resource.MustParse(tight.MemoryRequest)).String())
		// The backtester replays CPU separately, in a container without kills.
		l.story, l.compared = narrow, []corev1.ResourceName{corev1.ResourceMemory}
		r.lived = append(r.lived, l)
	}
	r.api, err = replay.NewAPI(cluster.Config, r.start)
	require.NoError(t, err)
	t.Cleanup(r.api.Close)
	for _, l := range r.lived {
		r.api.Play(l.Pod)
	}
	for i, interval := range []string{"10m", "0s"} {
		r.own[i] = replayRecommender(t, name, fmt.Sprint(name, i), "--recommender-interval=20ms", "--checkpoints-interval="+interval)
		require.NoError(t, r.api.Redirect(filepath.Join(cluster.Dir, fmt.Sprint(name, i, ".kubeconfig"))))
	}
	require.NoError(t, r.own[0].Start(t.Context()))
	return r
}

// replayRecommender prepares a recommender for a namespace that publishes exact bounds without
// delay.
func replayRecommender(t *testing.T, name, label string, args ...string) *harness.Daemon {
	t.Helper()
	own, err := cluster.Daemon(t.Context(), "recommender", label, append([]string{
		"--recommender-name=" + name, "--vpa-object-namespace=" + name, "--status-tolerance=0", "--kube-api-qps=-1"}, args...)...)
	require.NoError(t, err)
	t.Cleanup(own.Stop)
	return own
}

type stop struct {
	at time.Time
	do func(*testing.T)
}

// stops returns all actions in order of time: comparisons, the kills and resizes of limited
// containers in the backtest, and the stops of the recommender in the second memory window.
func (r *liveReplay) stops() []stop {
	var all []stop
	for _, after := range []time.Duration{2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour} {
		all = append(all, stop{r.start.Add(after), r.compare})
	}
	for after := 2 * time.Hour; after < r.end.Sub(r.start); after += 2 * time.Hour {
		all = append(all, stop{r.start.Add(after), r.compare})
	}
	for _, l := range r.lived {
		again := backoff{}
		for _, e := range l.story.Others(l.key(corev1.ResourceMemory)) {
			if len(l.compared) == len(kinds) {
				continue // without a limit its size does not affect the recommendation
			}
			if e.Event == "kill" {
				until := again.next(e.At)
				all = append(all, stop{e.At, func(t *testing.T) { r.kill(t, l, e, until) }})
			} else {
				all = append(all, stop{e.At, func(t *testing.T) { l.resize(t, e.To); r.resizes++ }})
			}
		}
	}
	all = append(all, stop{r.start.Add(25*time.Hour + 30*time.Minute), r.handOver}, stop{r.start.Add(26*time.Hour + 30*time.Minute), r.killRecommender},
		stop{r.start.Add(27*time.Hour + 10*time.Minute), r.killRecommender}, stop{r.end, r.compare})
	slices.SortStableFunc(all, func(a, b stop) int { return a.at.Compare(b.at) })
	return all
}

// backoff is the backtester's restart delay: a minute, plus ten seconds that double with each kill
// up to five minutes, reset after ten minutes without a kill.
type backoff struct {
	up    time.Time
	pause time.Duration
}

func (b *backoff) next(kill time.Time) (up time.Time) {
	if b.pause == 0 || kill.Sub(b.up) >= 10*time.Minute {
		b.pause = 10 * time.Second
	}
	b.up = kill.Add(time.Minute + b.pause)
	b.pause = min(2*b.pause, 5*time.Minute)
	return b.up
}

const replayPatience = 2 * time.Minute

func (r *liveReplay) advance(t *testing.T, until time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), replayPatience)
	defer cancel()
	last, err := r.api.Advance(ctx, until)
	require.NoError(t, err, "the log is %s", r.own[r.now].Log)
	r.last = last
}

func (r *liveReplay) awaitPass(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), replayPatience)
	defer cancel()
	require.NoError(t, r.api.AwaitPass(ctx), "the log is %s", r.own[r.now].Log)
}

func (r *liveReplay) compare(t *testing.T) {
	t.Helper()
	var found []string
	for _, l := range r.lived {
		if r.last.Before(l.Recording.Start) {
			continue
		}
		found = append(found, l.differences(t, func(k replay.Key) (replay.Event, bool) {
			e, err := l.story.Recommendation(k, r.last)
			require.NoError(t, err)
			return e, true
		})...)
	}
	if len(found) > 0 {
		t.Fatalf("with usage up to %s, %s after the start:\n%s", r.last.UTC(), r.last.Sub(r.start), strings.Join(found, "\n"))
	}
	r.comparisons++
}

// kill repeats a kill of the backtest. The pod has the same limit as there, and no usage until it
// runs again.
func (r *liveReplay) kill(t *testing.T, l *replayedWorkload, e replay.Event, again time.Time) {
	t.Helper()
	pod, err := cluster.Kube.CoreV1().Pods(l.Pod.Namespace).Get(t.Context(), l.Pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	limit := pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceMemory]
	require.Zero(t, limit.Cmp(resource.MustParse(e.Limit)), "pod %s: its memory limit at %s is %s, in the backtester %s", l.Pod.Name, e.At, limit.String(), e.Limit)
	before := r.taken(t)
	r.api.Down(l.Pod, e.At, again)
	l.kill(t, e.At, again)
	eventually(t, "the recommender sees the kill of "+l.Pod.Name, func() error {
		if now := r.taken(t); now != before+1 {
			return fmt.Errorf("it has taken %v kills, before %v", now, before)
		}
		return nil
	})
	r.awaitPass(t)
	r.kills++
}

func (r *liveReplay) taken(t *testing.T) float64 {
	t.Helper()
	metrics, err := r.own[r.now].Metrics(t.Context())
	require.NoError(t, err)
	return metrics[`loadline_recommender_ooms_total{result="accepted"}`]
}

func (r *liveReplay) handOver(t *testing.T) {
	t.Helper()
	r.compare(t)
	r.own[r.now].Stop()
	for _, l := range r.lived {
		if len(l.compared) == len(kinds) {
			r.compareCheckpoint(t, l)
		}
	}
	r.now++
	r.restart(t)
}

func (r *liveReplay) killRecommender(t *testing.T) {
	t.Helper()
	r.compare(t)
	r.own[r.now].Kill()
	r.deaths++
	r.restart(t)
}

// restart starts the recommender, and compares its recommendations from checkpoints alone.
func (r *liveReplay) restart(t *testing.T) {
	t.Helper()
	require.NoError(t, r.own[r.now].Start(t.Context()))
	r.awaitPass(t)
	r.compare(t)
}

// compareCheckpoint compares the checkpoint of a workload with a store and a sketch that are filled
// with the same samples.
func (r *liveReplay) compareCheckpoint(t *testing.T, l *replayedWorkload) {
	t.Helper()
	owner := checkpoint.Owner{Namespace: l.Workload.Namespace, VPA: l.Workload.Name}
	got, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalerCheckpoints(owner.Namespace).
		Get(t.Context(), checkpoint.ObjectName(owner, replay.Container), metav1.GetOptions{})
	require.NoError(t, err)
	record, err := checkpoint.NewRecord(owner, replay.Container, l.content(t, r.last, got.Status.LastUpdateTime.Time), got.Status.LastUpdateTime.Time)
	require.NoError(t, err)
	require.NoError(t, record.DropErr)
	want := record.Object()
	text := func(status any) string {
		raw, err := json.Marshal(status)
		require.NoError(t, err)
		return string(raw)
	}
	require.JSONEq(t, text(want.Status), text(got.Status), "status of checkpoint %s", got.Name)
	require.Equal(t, want.Annotations[checkpoint.OpenWindows], got.Annotations[checkpoint.OpenWindows], "open windows of checkpoint %s", got.Name)
}

func (l *replayedWorkload) content(t *testing.T, last, now time.Time) checkpoint.Content {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	needs, config := book.ForAnnotation(l.recipe).Needs, usage.DefaultConfig()
	store, known := usage.NewStore(config), sketch.New(needs)
	known.SetLimitRatio(sketch.NoLimitRatio) // workloads with compared checkpoints have no limit
	known.SetDeclared(convert.Amount(resources.Memory, resource.MustParse(l.Recording.MemoryRequest)))
	key := usage.ContainerKey{Namespace: l.Pod.Namespace, Pod: l.Pod.Name, Container: replay.Container}
	series, _ := store.Track(key, usage.SeriesKey{Namespace: key.Namespace, Container: key.Container}, l.Recording.Start)
	for at := l.Recording.Start; !at.After(last); at = at.Add(replay.Minute) {
		s, some := l.Recording.At(at)
		require.True(t, some)
		for k, use := range [resources.Kinds]*resource.Quantity{resource.NewScaledQuantity(s.Nanocores, resource.Nano), resource.NewQuantity(s.Bytes, resource.BinarySI)} {
			a := convert.Amount(resources.Kind(k), *use)
			require.Equal(t, usage.Accepted, store.Observe(usage.Sample{Container: key, Kind: resources.Kind(k), At: at.UTC(), Amount: a}))
			if resources.Kind(k) == resources.CPU && needs.Starting(at.Sub(l.Recording.Start), 0) {
				known.ObserveStart("", at, a, 0)
				continue
			}
			known.Observe(at, resources.Kind(k), a, 0)
		}
	}
	p := usage.NewProfile(config.Shape)
	store.Profile(&p, series)
	store.RemovePeaks(&p, now, series)
	c := checkpoint.Content{Target: target.NewKey(l.Workload.Namespace, "apps/v1", "Deployment", l.Workload.Name), Image: p.Image(), Windows: map[string]usage.Window{}}
	for of, w := range store.Windows(now, series) {
		c.Windows[of.Pod] = w
	}
	if needs.Any() {
		c.Sketch = known.Image()
	}
	return c
}
