package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

type readyWatch struct {
	mu  sync.Mutex
	min int
}

func watchReady(t *testing.T, w harness.Workload) *readyWatch {
	watch := &readyWatch{min: int(w.Replicas)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for {
			if list, err := cluster.Pods(ctx, w); err == nil {
				ready := 0
				for _, pod := range list {
					if isReady(&pod) {
						ready++
					}
				}
				watch.mu.Lock()
				watch.min = min(watch.min, ready)
				watch.mu.Unlock()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return watch
}

func (w *readyWatch) minReady() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.min
}

// ownRecommender starts a recommender for the VPAs that name it, so that a test can disrupt it
// without affecting others.
func ownRecommender(t *testing.T, name string, args ...string) *harness.Daemon {
	t.Helper()
	own, err := cluster.Daemon(t.Context(), "recommender", "recommender-"+name,
		append([]string{"--recommender-name=" + name, "--recommender-interval=2s"}, args...)...)
	require.NoError(t, err)
	require.NoError(t, own.Start(t.Context()))
	t.Cleanup(own.Stop)
	return own
}

// ownUpdater starts an updater for one of ownNamespaces, so that a test can disrupt it without
// affecting others. It runs until the cluster stops.
func ownUpdater(t *testing.T, ns, label string, args ...string) *harness.Daemon {
	t.Helper()
	require.Contains(t, ownNamespaces, ns, "the shared updater works there, too")
	own, err := cluster.Daemon(t.Context(), "updater", "updater-"+label,
		append([]string{"--vpa-object-namespace=" + ns, "--updater-interval=3s", alpha}, args...)...)
	require.NoError(t, err)
	require.NoError(t, own.Start(t.Context()))
	return own
}

func withRecommender(recommender string) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: recommender}}
	}
}

func withContainerPolicies(policies ...vpav1.ContainerResourcePolicy) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: policies}
	}
}

func onlyContainer(t *testing.T, vpa *vpav1.VerticalPodAutoscaler) vpav1.RecommendedContainerResources {
	t.Helper()
	require.NotNil(t, vpa.Status.Recommendation, "%s has no recommendation", vpa.Name)
	require.Len(t, vpa.Status.Recommendation.ContainerRecommendations, 1)
	return vpa.Status.Recommendation.ContainerRecommendations[0]
}

func awaitCheckpoint(t *testing.T, w harness.Workload, container string, samples int) *vpav1.VerticalPodAutoscalerCheckpoint {
	t.Helper()
	var found *vpav1.VerticalPodAutoscalerCheckpoint
	eventually(t, "checkpoint of "+w.Name, func() (err error) {
		found, err = cluster.VPA.AutoscalingV1().VerticalPodAutoscalerCheckpoints(w.Namespace).Get(t.Context(), w.Name+"-"+container, metav1.GetOptions{})
		if err == nil && found.Status.TotalSamplesCount < samples {
			err = fmt.Errorf("%d samples, expected %d", found.Status.TotalSamplesCount, samples)
		}
		return err
	})
	return found
}

func annotate(t *testing.T, w harness.Workload, annotations map[string]string) {
	t.Helper()
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		parts = append(parts, fmt.Sprintf("%q:%q", key, annotations[key]))
	}
	patch := []byte(`{"metadata":{"annotations":{` + strings.Join(parts, ",") + `}}}`)
	for _, pod := range pods(t, w) {
		_, err := cluster.Kube.CoreV1().Pods(w.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
	}
}

func awaitMemoryUsage(t *testing.T, w harness.Workload, most string) {
	t.Helper()
	limit := quantity(most)
	eventually(t, "usage of "+w.Name, func() error {
		list, err := cluster.Usage.MetricsV1beta1().PodMetricses(w.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + w.Name})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("none is there")
		}
		for _, pod := range list.Items {
			for _, container := range pod.Containers {
				if used := container.Usage[corev1.ResourceMemory]; used.Cmp(*limit) > 0 {
					return fmt.Errorf("%s uses %s of memory", pod.Name, used.String())
				}
			}
		}
		return nil
	})
}

// during calls condition every 200 ms for the given duration.
func during(t *testing.T, d time.Duration, condition func()) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		condition()
		select {
		case <-t.Context().Done():
			t.Fatal("interrupted")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func forIterations(t *testing.T, d *harness.Daemon, count int, condition func()) {
	t.Helper()
	last := iterationCount(t, d) + count + 1
	eventually(t, fmt.Sprintf("%d passes of %s", count, d.Name), func() error {
		condition()
		if left := last - iterationCount(t, d); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

func requireNotLess(t *testing.T, was, is corev1.ResourceList, kind corev1.ResourceName, what string) {
	t.Helper()
	before, now := was[kind], is[kind]
	require.GreaterOrEqual(t, now.Cmp(before), 0, "%s of %s fell from %s to %s", what, kind, before.String(), now.String())
}
