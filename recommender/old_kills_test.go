package recommender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/recipe"
)

// The pod status shows a kill for as long as the container runs. The kill counts with the memory
// request at that time or without one.
func TestRestart_IgnoresLaterResizeForOldKills(t *testing.T) {
	resize := func(at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "updater", Subresource: "resize", Time: new(metav1.NewTime(at))}
	}
	for _, name := range recipe.Names() {
		for _, tc := range []struct {
			name    string
			managed func(killed time.Time) []metav1.ManagedFieldsEntry
			size    string // memory request after the kill
			stays   bool
		}{
			{name: "resized after the kill", size: "512Mi", managed: func(killed time.Time) []metav1.ManagedFieldsEntry {
				return []metav1.ManagedFieldsEntry{{Manager: "kubelet", Subresource: "status"}, resize(killed.Add(time.Minute))}
			}},
			{name: "resized at an unknown time", size: "512Mi", managed: func(time.Time) []metav1.ManagedFieldsEntry { return nil }},
			{name: "resized before the kill", size: "300Mi", stays: true, managed: func(killed time.Time) []metav1.ManagedFieldsEntry {
				return []metav1.ManagedFieldsEntry{resize(killed.Add(-time.Minute))}
			}},
			{name: "never resized", size: "300Mi", stays: true, managed: func(time.Time) []metav1.ManagedFieldsEntry {
				return []metav1.ManagedFieldsEntry{{Manager: "kubelet", Subresource: "status"}}
			}},
		} {
			t.Run(name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				running := aPod("web-1", "web", "a")
				running.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("300Mi")
				w := withPrometheus(t, newWorld(t, deployment("web"), running, webVPA(name)), prometheusWithHistory(t, "other", nil))
				w.config.Output.Tolerance = 0
				w.now = time.Now().Truncate(time.Second)
				w.start()
				w.setUsage("web-1", "a", 100, 280)
				w.iterate(12)
				killed := w.now
				w.setOOMKilled("2", "c1", "300Mi", killed)
				w.oomsPending()
				w.iterate(1)
				if len(w.recommendations("web")) == 0 {
					return // the recipe needs more usage
				}
				first := w.memory("web")
				pod, err := w.kube.CoreV1().Pods("ns").Get(t.Context(), "web-1", metav1.GetOptions{})
				require.NoError(t, err)
				var before int64
				for range 3 {
					pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(tc.size)
					pod.ManagedFields = tc.managed(killed)
					_, err := w.kube.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{})
					require.NoError(t, err)
					w.start().iterate(12)
					got := w.memory("web")
					require.LessOrEqual(t, got, first)
					if tc.stays {
						require.Equal(t, first, got)
					}
					if before > 0 {
						require.Equal(t, before, got)
					}
					before = got
				}
			})
		}
	}
}
