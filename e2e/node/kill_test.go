package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// shippedNamespace is the namespace of the programs with the arguments of the manifests.
const shippedNamespace = "shipped"

// Limits after an OOM kill, in parallel with other tests. On its own the test needs less than 10
// seconds. An iteration that the kill does not trigger takes up to a minute.
const (
	maxIncreaseDelay = 30 * time.Second
	maxKills         = 2
)

// Kills all replicas at about the same time, before the first of the iterations, which run once a
// minute as shipped.
func TestOOMKill_EachReplicaGrowsWithinSeconds(t *testing.T) {
	t.Parallel()
	startShipped(t)
	zero := intstr.FromInt32(0)
	for _, tc := range []struct {
		name     string
		replicas int32
		memory   string // schedule
		budget   *intstr.IntOrString
		settled  bool // the VPA has a recommendation before the kill
	}{
		{name: "two", replicas: 2, memory: "20Mi:8s,270Mi"},
		{name: "three", replicas: 3, memory: "20Mi:8s,270Mi"},
		{name: "budget-spent", replicas: 2, memory: "20Mi:8s,270Mi", budget: &zero},
		{name: "settled", replicas: 2, memory: "20Mi:150s,270Mi", budget: &zero, settled: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := harness.Workload{Namespace: shippedNamespace, Name: "kill-" + tc.name, Replicas: tc.replicas}
			require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate))
			if tc.budget != nil {
				_, err := cluster.Kube.PolicyV1().PodDisruptionBudgets(w.Namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
					Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: tc.budget, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			create(t, &w, burner{Container: harness.Container{CPU: "25m", Memory: "250Mi", MemoryLimit: "250Mi"}, cpu: "10m", memory: tc.memory})
			if tc.settled {
				eventually(t, 140*time.Second, "there is a recommendation", func() error { // two iterations, if the metrics of the first are late
					_, err := target(t.Context(), w)
					return err
				})
			}
			grown := awaitGrowth(t, w, tc.replicas)
			during(t, 20*time.Second, "no further kills", func() error {
				pods, err := cluster.Pods(t.Context(), w)
				for i := range pods {
					pod := &pods[i]
					if _, known := grown[pod.UID]; !known {
						err = errors.Join(err, fmt.Errorf("pod %s is a replacement", pod.Name))
					}
					if restarts(pod) > maxKills {
						err = errors.Join(err, fmt.Errorf("pod %s was killed %d times", pod.Name, restarts(pod)))
					}
				}
				return err
			})
			for _, delay := range grown {
				require.LessOrEqual(t, delay, maxIncreaseDelay, "delays from kill to increase: %v", grown)
			}
		})
	}
}

// awaitGrowth waits until the kubelet has applied more memory to each replica after its first kill,
// and returns the delays by pod.
func awaitGrowth(t *testing.T, w harness.Workload, replicas int32) map[types.UID]time.Duration {
	t.Helper()
	killed, grown := map[types.UID]time.Time{}, map[types.UID]time.Duration{}
	eventually(t, longestWait, "each replica of "+w.Name+" has more memory in force", func() error {
		pods, err := cluster.Pods(t.Context(), w)
		if err != nil {
			return err
		}
		now := time.Now()
		for i := range pods {
			pod := &pods[i]
			if _, known := killed[pod.UID]; !known {
				if at, ok := outOfMemoryAt(pod); ok {
					killed[pod.UID] = at
				}
			}
			if _, done := grown[pod.UID]; done || killed[pod.UID].IsZero() || running(pod) != nil {
				continue
			}
			limit := pod.Spec.Containers[0].Resources.Limits.Memory().Value()
			if applied := pod.Status.ContainerStatuses[0].Resources; limit > 270<<20 && applied != nil && applied.Limits.Memory().Value() == limit {
				grown[pod.UID] = now.Sub(killed[pod.UID])
				took(t, fmt.Sprintf("%s: memory in force at replica %d, since the kill", w.Name, len(grown)), killed[pod.UID])
			}
		}
		if len(grown) < int(replicas) {
			return fmt.Errorf("%d of %d were killed, %d have more memory", len(killed), replicas, len(grown))
		}
		return nil
	})
	return grown
}

func outOfMemoryAt(pod *corev1.Pod) (time.Time, bool) {
	if len(pod.Status.ContainerStatuses) != 1 {
		return time.Time{}, false
	}
	status := pod.Status.ContainerStatuses[0]
	for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.Reason == "OOMKilled" {
			return state.Terminated.FinishedAt.Time, true
		}
	}
	return time.Time{}, false
}

// startShipped runs a recommender and an updater with the arguments of the manifests, for
// shippedNamespace only.
func startShipped(t *testing.T) {
	t.Helper()
	require.NoError(t, cluster.CreateNamespace(t.Context(), shippedNamespace))
	for _, name := range []string{"recommender", "updater"} {
		d, err := cluster.ShippedDaemon(t.Context(), name, name+"-shipped", "--vpa-object-namespace="+shippedNamespace)
		require.NoError(t, err)
		require.NoError(t, d.Start(context.WithoutCancel(t.Context())))
		t.Cleanup(d.Stop)
	}
}
