package updater

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/actuate"
)

func (r *rolling) ready(name string, status corev1.ConditionStatus, since time.Duration) {
	r.change(name, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(since))}}
	})
}

// The API server refuses resizes for a quarter of an hour after a crash loop was seen.
func TestRevert_DelayedByAPIServerErrors(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	broken := failCalls(r.kube, "patch", "pods", "resize")
	_, err := r.sync("web-1-0", time.Minute)
	require.Error(t, err)
	*broken = false
	r.judge(16 * time.Minute)
	require.Equal(t, "100m 100m", r.sizes(), "what was seen in time is taken back")
}

func TestNote_DropsForged(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	r.restarted("web-1-1", 5)
	r.change("web-1-1", func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[convert.ResizedAtAnnotation] = noon.Format(time.RFC3339)
		p.Annotations[convert.OriginalAnnotation] = `{"app":{"requests":{"cpu":"64","memory":"512Gi"},"limits":{},"target":{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{}},"restarts":0,"ready":true}}`
	})
	r.judge(time.Minute)
	require.Equal(t, "100m 100m", r.sizes())
	require.Empty(t, r.noted())
	require.Zero(t, r.records(), "nothing is remembered of it")
}

// A forged note may claim a pending resize, which names no known time, or harm, which needs no
// evidence.
func TestNote_DropsForgedDeferred(t *testing.T) {
	r := newRolling(t, 2, autoPolicy())
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.judge(5 * time.Minute)
	require.Equal(t, []string{"web-1-1"}, r.at(6*time.Minute))
	r.judge(11 * time.Minute)
	r.at(12 * time.Minute)
	require.NotEmpty(t, r.record().Rounds[0].Outcome)
	before := r.record()
	r.change("web-1-1", func(p *corev1.Pod) {
		p.Annotations[convert.ResizedAtAnnotation] = noon.Add(30*time.Minute).Format(time.RFC3339) + " deferred"
		p.Annotations[convert.OriginalAnnotation] = `{"app":{"requests":{"cpu":"64","memory":"512Gi"},"limits":{},"target":{},"harm":"OOMKilled"}}`
	})
	for _, after := range []time.Duration{30 * time.Minute, 31 * time.Minute, 32 * time.Minute} {
		r.judge(after)
	}
	require.Equal(t, "50m 50m", r.sizes())
	require.Empty(t, r.noted())
	require.Equal(t, before, r.record())
	require.Zero(t, r.reverts())
}

// The cache is stale: another client raised the pod's resources meanwhile.
func TestRevert_StaleCacheLowersNothing(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	old := r.pod("web-1-0").DeepCopy()
	r.change("web-1-0", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("400m", "400Mi"), Limits: list("1", "800Mi")}
	})
	c := r.loop.runner.Executor.(*actuate.Cluster)
	require.Error(t, c.Revert(t.Context(), old, []policy.ContainerTarget{{Name: "app", Requests: resources.List{}.With(resources.CPU, 100)}}))
	require.Equal(t, "400m 400Mi", r.requests("web-1-0"), "a revert lowers nothing")
}

// Cluster.restoreNote may write back the note of a change that has ended.
func TestNote_RemovedAgainIfRestored(t *testing.T) {
	r := newRolling(t, 3, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	old := r.pod("web-1-0").DeepCopy().Annotations
	r.judge(5 * time.Minute)
	require.Empty(t, r.noted())
	r.change("web-1-0", func(p *corev1.Pod) {
		for _, k := range []string{convert.ResizedAtAnnotation, convert.OriginalAnnotation} {
			p.Annotations[k] = old[k]
		}
	})
	for i := range 3 {
		r.judge(time.Duration(6+i*300) * time.Minute)
	}
	require.Empty(t, r.noted())
}

type hookedExecutor struct {
	actuate.Executor
	before func(pod string)
}

func (h *hookedExecutor) Resize(ctx context.Context, c actuate.Change) (rollout.Change, error) {
	h.before(c.Pod)
	return h.Executor.Resize(ctx, c)
}

func TestRun_StopsForWorkloadAfterRevert(t *testing.T) {
	r := newRolling(t, 8, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(0)) }))
	r.loop.runner.Executor = &hookedExecutor{r.loop.runner.Executor, func(pod string) {
		if pod == "web-1-2" {
			r.settled("web-1-0")
			r.await("the note", func(c *corev1.Pod) bool { return convert.HasNotedChange(c) }, "web-1-0")
			r.restarted("web-1-0", 2)
			_, err := r.observer.Sync(t.Context(), cache.NewObjectName("shop", "web-1-0"), noon)
			require.NoError(t, err)
		}
	}}
	r.at(0)
	require.Equal(t, []string{"web-1-1", "web-1-2"}, r.noted(), "those on their way; no other one is changed")
	for _, name := range r.noted() {
		r.settled(name)
		r.restarted(name, 2)
	}
	r.judge(2 * time.Minute)
	s := r.record()
	require.EqualValues(t, 1, s.ConsecutiveReverts, "one bad target is one round")
	require.Equal(t, strings.TrimSpace(strings.Repeat("100m ", 8)), r.sizes())
}

// The cooldown of the policy is shortened.
func TestCooldown_EventOncePerHour(t *testing.T) {
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	r.at(0)
	r.judge(5 * time.Minute)
	r.at(6 * time.Minute)
	r.judge(11 * time.Minute)
	r.at(12 * time.Minute)
	r.recommend("20m", "20Mi")
	r.edit(func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Cooldown = &metav1.Duration{Duration: 20 * time.Minute}
	})
	r.drainEvents()
	count := 0
	for i := range 20 {
		r.at(time.Duration(13+i) * time.Minute)
		for _, e := range r.drainEvents() {
			if strings.Contains(e, "CooldownActive") {
				count++
			}
		}
	}
	require.LessOrEqual(t, count, 2)
}
