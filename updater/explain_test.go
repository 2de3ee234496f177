package updater

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

func (w *world) explain(name string) *explanation.Pod {
	w.t.Helper()
	answer, err := w.explainer.Explain(w.t.Context(), "shop", name)
	require.NoError(w.t, err)
	require.IsType(w.t, &explanation.Pod{}, answer)
	return answer.(*explanation.Pod)
}

// The environment, arguments and labels of the container must not appear in an answer.
func TestExplainPod_Golden(t *testing.T) {
	secret := func(p *corev1.Pod) {
		p.Labels["secret"] = "hidden"
		c := &p.Spec.Containers[0]
		c.Env, c.Args = []corev1.EnvVar{{Name: "SECRET", Value: "hidden"}}, []string{"--token=hidden"}
	}
	canary := func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(50))}
	}
	for _, tc := range []struct {
		name  string
		world func(*testing.T) *rolling
	}{
		{name: "resized", world: func(t *testing.T) *rolling {
			return roll(t, Default(), append(deployment(2, secret), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
		}},
		{name: "mode-off", world: func(t *testing.T) *rolling { return roll(t, Default(), web(vpav1.UpdateModeOff, 2)...) }},
		{name: "no-vpa", world: func(t *testing.T) *rolling { return roll(t, Default(), deployment(2, secret)...) }},
		{name: "too-young", world: func(t *testing.T) *rolling {
			return roll(t, Default(), append(deployment(2, func(p *corev1.Pod) {
				p.Status.StartTime = &metav1.Time{Time: noon.Add(-time.Minute)}
				p.Spec.Containers[0].Resources.Requests = list("190m", "190Mi")
			}), autoscaler(vpav1.UpdateModeRecreate))...)
		}},
		{name: "recommend-only", world: func(t *testing.T) *rolling {
			return newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeRecommend))
		}},
		{name: "canary", world: func(t *testing.T) *rolling {
			return newRolling(t, 4, sizingPolicy(loadlinev1alpha1.RolloutModeCanary, canary))
		}},
		{name: "outside-window", world: func(t *testing.T) *rolling {
			return newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
			}))
		}},
		{name: "shares", world: func(t *testing.T) *rolling { return newSharing(t, 3, sharingOnPolicy()) }},
		{name: "shares-dry-run", world: func(t *testing.T) *rolling {
			return newSharing(t, 3, sharingPolicy(loadlinev1alpha1.SharingDryRun, automatic))
		}},
		{name: "does-not-share", world: func(t *testing.T) *rolling {
			return newSharing(t, 3, sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("vpa") }))
		}},
		{name: "leaves", world: func(t *testing.T) *rolling {
			return newSharing(t, 3, sharingOnPolicy(evicting), kubelet("n1", "1200m"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.world(t)
			_, err := w.explainer.Explain(t.Context(), "shop", "web-1-0")
			require.ErrorIs(t, err, explanation.ErrNotReady)
			w.runOnce(noon)
			for _, p := range w.pods() {
				w.settled(p.Name)
			}
			text, err := json.Marshal(w.explain("web-1-0"))
			require.NoError(t, err)
			require.NotContains(t, string(text), "hidden")
			require.Less(t, len(text), 4<<10)
			var indented bytes.Buffer
			require.NoError(t, json.Indent(&indented, text, "", "  "))
			file := "testdata/explain/" + tc.name + ".json"
			if os.Getenv("UPDATE_GOLDEN") != "" {
				require.NoError(t, os.WriteFile(file, indented.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), indented.String())
		})
	}
}

func TestExplainPod_UnknownPod(t *testing.T) {
	config := Default()
	config.Kube.IgnoredNamespaces = "hidden"
	hidden := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hidden", Name: "web-1-0", UID: "uid-hidden"}}
	w := newWorld(t, config, append(web(vpav1.UpdateModeRecreate, 1), hidden)...)
	require.Eventually(t, func() bool {
		_, err := w.caches.pods.Core().V1().Pods().Lister().Pods("hidden").Get("web-1-0")
		return err == nil
	}, time.Minute, time.Millisecond)
	w.runOnce(noon)
	for _, tc := range []struct{ name, namespace, pod string }{
		{name: "unknown pod", namespace: "shop", pod: "other"},
		{name: "ignored namespace", namespace: "hidden", pod: "web-1-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := w.explainer.Explain(t.Context(), tc.namespace, tc.pod)
			require.ErrorIs(t, err, explanation.ErrUnknown)
		})
	}
}

// The race detector finds writes to shared state.
func TestExplainPod_ConcurrentWithLoop(t *testing.T) {
	w := newSharing(t, 4, sharingOnPolicy())
	w.runOnce(noon)
	w.explainer.clock = nil // the test clock is not safe for goroutines
	stop, ended := make(chan struct{}), make(chan error, 1)
	var explaining sync.WaitGroup
	explaining.Go(func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if _, err := w.explainer.Explain(t.Context(), "shop", "web-1-0"); err != nil {
				ended <- err
				return
			}
		}
	})
	for minute := range 15 {
		w.runAt(time.Duration(minute) * time.Minute)
	}
	close(stop)
	explaining.Wait()
	require.NoError(t, <-ended)
}

func TestExplainPod_ReportsSkippedIterations(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 1)...)
	alive := false
	w.loop.alive = func(context.Context, time.Time) (bool, error) { return alive, nil }
	w.runOnce(noon)
	_, err := w.explainer.Explain(t.Context(), "shop", "web-1-0")
	require.ErrorIs(t, err, explanation.ErrNotReady)
	require.ErrorContains(t, err, "the status Lease of the admission controller is missing or stale")
	alive = true
	w.runOnce(noon.Add(time.Minute))
	require.Empty(t, w.explain("web-1-0").Waiting)
	alive = false
	w.runOnce(noon.Add(2 * time.Minute))
	e := w.explain("web-1-0")
	require.Equal(t, noon.Add(time.Minute), e.AsOf)
	require.Contains(t, e.Waiting, "the status Lease of the admission controller is missing or stale")
}

func TestExplainPod_NewAndTerminatingPods(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(3, func(p *corev1.Pod) {
		if p.Name == "web-1-1" {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/wait"}
		}
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.runOnce(noon)
	require.Equal(t, reason.Terminating, w.explain("web-1-1").Skip.Reason)
	pod := w.pod("web-1-0").DeepCopy()
	pod.Name, pod.UID, pod.CreationTimestamp = "web-1-3", "uid-3", metav1.NewTime(noon.Add(time.Second))
	_, err := w.kube.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	w.await("the pod", func(*corev1.Pod) bool { return true }, pod.Name)
	require.Contains(t, w.explain(pod.Name).Waiting, "newer than the last iteration")
}

func TestExplainPod_ReportsOnlySharedResources(t *testing.T) {
	second := sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Namespaces.Names, s.Sharing.Resources = []string{"pay"}, []corev1.ResourceName{"cpu", "memory"}
	})
	second.Name = "pay"
	w := shareWith(t, Default(), append(append(peakingPods(2, unlimited), peakingVPA(), sharingOnPolicy(), second), payWorkload()...)...)
	w.runOnce(noon)
	e := w.explain("web-1-0")
	require.NotNil(t, e.Share.CPU)
	require.Nil(t, e.Share.Memory)
}
