package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Kills the recommender at random times. No published memory target may fall, no recommendation may
// disappear, and each instance must accept the previous checkpoints. Usage never rises, so a
// falling memory target means lost history.
//
// LOADLINE_KILL_LOOP sets the duration, LOADLINE_KILL_SEED repeats a run.
func TestRecommender_KillLoopLosesNothing(t *testing.T) {
	parallelTest(t)
	seed := uint64(setting(t, "LOADLINE_KILL_SEED", time.Now().UnixNano(), func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }))
	long := setting(t, "LOADLINE_KILL_LOOP", 150*time.Second, time.ParseDuration)
	fmt.Printf("kill loop: %s with LOADLINE_KILL_SEED=%d\n", long, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ns := namespace(t, "kill-loop")
	steady := harness.Workload{
		Namespace: ns, Name: "steady", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}, {Name: "sidecar", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Merge(harness.Uses("app", "500m", "700Mi"), harness.Uses("sidecar", "100m", "400Mi")),
	}
	falling := harness.Workload{
		Namespace: ns, Name: "falling", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "500m", "900Mi"),
	}
	for _, w := range []harness.Workload{steady, falling} {
		require.NoError(t, cluster.CreateWorkload(t.Context(), w))
		require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender("killed")))
	}
	seen := watchTargets(t, ns)
	own := ownRecommender(t, "killed", "--recommender-interval=1s")
	start, kills, fell := time.Now(), 0, false
	for time.Since(start) < long {
		time.Sleep(2*time.Second + time.Duration(random.Int64N(int64(3*time.Second))))
		require.Zero(t, rejected(t, own), "a checkpoint was not usable after %d kills", kills)
		own.Kill()
		require.NoError(t, own.Start(t.Context()))
		kills++
		if !fell && time.Since(start) > long/2 && seen.published("falling/app") {
			fell = true
			annotate(t, falling, harness.Uses("app", "300m", "320Mi"))
		}
		require.Empty(t, seen.losses(), "after %d kills", kills)
	}
	require.True(t, fell, "no target of falling was published after %d kills", kills)
	for _, w := range []harness.Workload{steady, falling} {
		awaitRecommendation(t, w)
	}
	during(t, 5*time.Second, func() { require.Empty(t, seen.losses(), "after %d kills", kills) })
	require.Zero(t, rejected(t, own))
	require.Empty(t, errorLines(t, own))
	fmt.Printf("kill loop: %d kills, %d states of VPAs seen, nothing lost\n", kills, seen.count())
}

func setting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	require.NoError(t, err, "%s=%s", name, text)
	return value
}

func rejected(t *testing.T, d *harness.Daemon) float64 {
	t.Helper()
	metrics, err := d.Metrics(t.Context())
	require.NoError(t, err)
	return metrics[`loadline_recommender_checkpoint_writes_total{result="rejected"}`]
}

// targetWatch watches all states of the VPAs of a namespace and records losses.
type targetWatch struct {
	mu     sync.Mutex
	last   map[string]corev1.ResourceList // by VPA/container
	states int
	lost   []string
}

func watchTargets(t *testing.T, ns string) *targetWatch {
	t.Helper()
	w := &targetWatch{last: map[string]corev1.ResourceList{}}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(ns).Watch(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(4 * 3600))})
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); events.Stop(); <-done })
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			w.note(event)
		}
		if ctx.Err() == nil {
			w.lose("the watch ended")
		}
	}()
	return w
}

func (w *targetWatch) lose(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = append(w.lost, fmt.Sprintf(format, args...))
}

// slack is the tolerated fall of a CPU target: CPU usage is measured anew each time, and a
// histogram bucket is 5 % wide.
const slack = 0.9

func (w *targetWatch) note(event watch.Event) {
	vpa, ok := event.Object.(*vpav1.VerticalPodAutoscaler)
	if !ok {
		w.lose("watch: %v", event.Object)
		return
	}
	now := map[string]corev1.ResourceList{}
	if r := vpa.Status.Recommendation; r != nil {
		for _, c := range r.ContainerRecommendations {
			now[vpa.Name+"/"+c.ContainerName] = c.Target
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states++
	for name, was := range w.last {
		is, there := now[name]
		if !strings.HasPrefix(name, vpa.Name+"/") {
			continue
		}
		if !there {
			w.lost = append(w.lost, name+" has no recommendation any more")
		} else if is.Memory().Cmp(*was.Memory()) < 0 || is.Cpu().AsApproximateFloat64() < slack*was.Cpu().AsApproximateFloat64() {
			w.lost = append(w.lost, fmt.Sprintf("%s fell from %s, %s to %s, %s", name, was.Cpu(), was.Memory(), is.Cpu(), is.Memory()))
		}
	}
	for name, is := range now {
		w.last[name] = is
	}
}

func (w *targetWatch) losses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lost...)
}

func (w *targetWatch) published(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.last[name]
	return ok
}

func (w *targetWatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states
}
