package recommender

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/serving"
)

func TestHealth_FailsOnHungIterationOnly(t *testing.T) {
	const healthTimeout = time.Second // longer than a goroutine waits on a busy machine
	for _, tc := range []struct {
		name  string
		hangs bool
	}{
		{name: "hung", hangs: true},
		{name: "slow"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour))
			p := w.parts()
			p.health = serving.NewHealth(healthTimeout)
			p.usageSource.sampleSource = samplesFunc(func(_ context.Context, yield func(usage.Sample)) error {
				for end := time.Now().Add(3 * healthTimeout); time.Now().Before(end); time.Sleep(healthTimeout / 40) {
					for range 1000 { // samples of unknown containers
						if !tc.hangs {
							yield(usage.Sample{})
						}
					}
				}
				return nil
			})
			a := newAssembly(t.Context(), w.config, p)
			t.Cleanup(a.stop)
			loop, err := a.start()
			require.NoError(t, err)
			p.health.Activate()
			var ended atomic.Bool
			go func() {
				loop.RunOnce(t.Context(), w.now)
				ended.Store(true)
			}()
			failed := false
			for !ended.Load() {
				failed = failed || p.health.Check() != nil
				time.Sleep(healthTimeout / 40)
			}
			require.Equal(t, tc.hangs, failed)
			require.NoError(t, p.health.Check(), "it goes on")
		})
	}
}

func TestOOMKill_PublishedBetweenIterations(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour))
	w.config.Interval = 5 * time.Second
	w.setUsage("web-1", "a", 300, 200)
	w.clock = time.Now
	var passes atomic.Int32
	p := w.parts()
	p.usageSource.sampleSource = samplesFunc(func(ctx context.Context, yield func(usage.Sample)) error {
		passes.Add(1)
		return w.samples(ctx, yield)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runElected(ctx, w.config, process.OS{}, p) }()
	require.Eventually(t, func() bool { return len(w.recommendations("web")) == 1 }, time.Minute, 5*time.Millisecond)
	before := w.memory("web")
	killed := aPod("web-1", "web", "a")
	killed.ResourceVersion = "2"
	killed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", FinishedAt: metav1.Now(), ContainerID: "c1"}}
	_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), killed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.memory("web") > before }, time.Minute, 5*time.Millisecond)
	require.EqualValues(t, 1, passes.Load(), "the next pass has not begun yet")
	stop()
	require.NoError(t, <-ended)
	require.Contains(t, w.checkpoint("web-a").Annotations["loadline.dev/open-windows"], `"kill"`)
}
