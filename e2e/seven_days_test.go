package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/e2e/prometheus/server"
)

// systems are the recipes of the seed systems, each under a SizingPolicy of its own. An empty
// recipe is the default of the recommender.
var systems = []struct{ name, recipe string }{
	{"attune", "attune"},
	{"crane", "crane"},
	{"cruisekube", "cruisekube"},
	{"autopilot", "autopilot"},
	{"default", ""},
	{"loadline", "loadline"},
}

// TestHistory_TargetsSurviveRestartsAndLeaderChange restarts recommenders whose only storage is a
// Prometheus with seven days of usage. Live usage comes from the same server, which has samples
// beyond the end of the test.
func TestHistory_TargetsSurviveRestartsAndLeaderChange(t *testing.T) {
	exclusiveTest(t, processThird)
	programs, err := server.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	recommender.Stop()
	t.Cleanup(func() { require.NoError(t, recommender.Start(context.Background())) })
	ns := namespace(t, "seven-days")
	allowLeases(t, ns, "vpa-recommender")
	var workloads []harness.Workload
	for _, s := range systems {
		w := harness.Workload{Namespace: ns, Name: s.name, Replicas: 2, Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "200Mi"}}}
		require.NoError(t, cluster.CreateWorkload(t.Context(), w))
		workloads = append(workloads, w)
	}
	past := sevenDays{end: time.Now().UTC().Truncate(time.Minute)}
	for i, w := range workloads {
		for _, pod := range awaitRunning(t, w) {
			past.add(pod.Name, w.Name, uint64(i), 7*24*time.Hour+2*time.Hour, -time.Hour)
		}
		past.add(w.Name+"-6d4c5b9f77-zx8kq", w.Name, uint64(i), 7*24*time.Hour+2*time.Hour, 3*24*time.Hour) // of an earlier revision
	}
	dir := t.TempDir()
	require.NoError(t, programs.Fill(t.Context(), dir, past.openMetrics()))
	prometheus, err := programs.Start(t.Context(), dir, "scrape_configs: []\n")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prometheus.Stop()) })
	createSystemPolicies(t, ns)

	var pair []*harness.Daemon
	for _, label := range []string{"first", "second"} {
		args := append(leaderElectionFlags(ns), "--vpa-object-namespace="+ns, "--recommender-interval=4s", "--storage=prometheus", "--usage-source=prometheus",
			"--prometheus-address="+prometheus.URL, "--prometheus-cadvisor-job-name=", "--history-length=7d",
			"--container-pod-name-label=pod", "--container-name-label=container", "--metric-for-pod-labels=kube_pod_labels[7d]",
			"--pod-label-prefix=label_", "--pod-namespace-label=namespace", "--pod-name-label=pod")
		d, err := cluster.Daemon(t.Context(), "recommender", "recommender-seven-days-"+label, args...)
		require.NoError(t, err)
		require.NoError(t, d.Start(t.Context()))
		t.Cleanup(d.Stop)
		pair = append(pair, d)
	}
	leader, standby := leaderOf(t, pair)
	before := steadyTargets(t, leader, workloads)

	standby.Stop() // so that the same replica leads again
	for _, restart := range []struct {
		name string
		end  func()
	}{{"stopped", leader.Stop}, {"killed", leader.Kill}, {"stopped again", leader.Stop}} {
		restart.end()
		require.NoError(t, leader.Start(t.Context()))
		requireSameTargets(t, before, steadyTargets(t, leader, workloads), restart.name)
	}
	require.NoError(t, standby.Start(t.Context()))
	leader.Kill()
	requireSameTargets(t, before, steadyTargets(t, standby, workloads), "leader changed")
}

// requireSameTargets accepts a difference of a millionth: the margin of a new container, halved
// every six hours, is still some bytes after seven days.
func requireSameTargets(t *testing.T, before, after map[string]corev1.ResourceList, event string) {
	t.Helper()
	require.Len(t, after, len(before), event)
	for name, target := range before {
		require.Len(t, target, 2, "CPU and memory of %s", name)
		for resource, amount := range target {
			got := after[name][resource]
			require.InEpsilon(t, amount.AsApproximateFloat64(), got.AsApproximateFloat64(), 1e-6, "%s: %s of %s", event, resource, name)
		}
	}
}

// createSystemPolicies creates a policy for the workload of each system.
func createSystemPolicies(t *testing.T, ns string) {
	t.Helper()
	for _, s := range systems {
		p := &loadlinev1alpha1.SizingPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + s.name},
			Spec: loadlinev1alpha1.SizingPolicySpec{
				Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{ns}},
				Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment", Name: s.name}},
				Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeRecommend)},
			},
		}
		if s.recipe != "" {
			p.Spec.Recipe = &s.recipe
		}
		_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, cluster.VPA.LoadlineV1alpha1().SizingPolicies().Delete(context.Background(), p.Name, metav1.DeleteOptions{}))
		})
	}
}

// steadyTargets returns the targets of all workloads after a replica has loaded all history and has
// completed two more iterations.
func steadyTargets(t *testing.T, leader *harness.Daemon, workloads []harness.Workload) map[string]corev1.ResourceList {
	t.Helper()
	loaded := -1
	eventually(t, "two iterations after the history", func() error {
		metrics, err := leader.Metrics(t.Context())
		if err != nil {
			return err
		}
		n := int(metrics[iterationMetric(leader)])
		if loaded < 0 && n > 0 && metrics["loadline_recommender_history_complete"] == 1 && metrics["loadline_recommender_history_pending_vpas"] == 0 {
			loaded = n
		}
		if loaded < 0 || n < loaded+2 {
			return errors.New("not yet")
		}
		return nil
	})
	targets := map[string]corev1.ResourceList{}
	for _, w := range workloads {
		made := w
		made.Name = "deployment-" + w.Name
		targets[w.Name] = onlyContainer(t, awaitRecommendation(t, made)).Target
	}
	return targets
}

// steady is the time before the end from which usage is constant: live usage must be no news.
const steady = 70 * time.Minute

// sevenDays is usage with a daily rhythm and noise, one sample a minute. The same seed gives the
// same usage relative to the end.
type sevenDays struct {
	end        time.Time
	cpu        strings.Builder
	memory     strings.Builder
	labels     strings.Builder
	containers uint64
}

// add adds the samples of a pod from one time before the end to another, which is after the end
// where it is negative.
func (d *sevenDays) add(pod, app string, seed uint64, from, till time.Duration) {
	d.containers++
	random := rand.New(rand.NewPCG(seed, d.containers))
	series := fmt.Sprintf(`{namespace="seven-days",pod=%q,container="app"}`, pod)
	seconds := 0.0
	for before := from; before >= till; before -= time.Minute {
		at := d.end.Add(-before)
		day, noise := 1+math.Sin(2*math.Pi*before.Hours()/24+float64(seed)), random.Float64()
		if before < steady {
			day, noise = 1, 0.5
		}
		seconds += (0.05 + 0.15*day*(0.5+noise)) * 60
		bytes := (150 + 100*day + 50*noise) * (1 << 20)
		fmt.Fprintf(&d.cpu, "container_cpu_usage_seconds_total%s %s %d\n", series, strconv.FormatFloat(seconds, 'f', 3, 64), at.Unix())
		fmt.Fprintf(&d.memory, "container_memory_working_set_bytes%s %d %d\n", series, int64(bytes), at.Unix())
		fmt.Fprintf(&d.labels, "kube_pod_labels{namespace=\"seven-days\",pod=%q,label_app=%q} 1 %d\n", pod, app, at.Unix())
	}
}

func (d *sevenDays) openMetrics() string {
	return "# TYPE container_cpu_usage_seconds counter\n" + d.cpu.String() + "# TYPE container_memory_working_set_bytes gauge\n" + d.memory.String() +
		"# TYPE kube_pod_labels gauge\n" + d.labels.String() + "# EOF\n"
}
