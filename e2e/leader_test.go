package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Kills the leader of two recommenders. The standby keeps published recommendations and serves a
// new VPA.
func TestLeaderElection_StandbyTakesOver(t *testing.T) {
	parallelTest(t)
	ns := namespace(t, "standby")
	allowLeases(t, ns, "vpa-recommender")
	pair := []*harness.Daemon{}
	for _, label := range []string{"first", "second"} {
		d, err := cluster.Daemon(t.Context(), "recommender", "recommender-standby-"+label,
			append([]string{"--recommender-name=standby", "--recommender-interval=2s"}, leaderElectionFlags(ns)...)...)
		require.NoError(t, err)
		require.NoError(t, d.Start(t.Context()))
		t.Cleanup(d.Stop)
		pair = append(pair, d)
	}
	w := harness.Workload{
		Namespace: ns, Name: "db", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "700m", "900Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff, withRecommender("standby")))
	before := onlyContainer(t, awaitRecommendation(t, w))
	awaitCheckpoint(t, w, "app", 1)

	leader, standby := leaderOf(t, pair)
	leader.Kill()
	killed := time.Now()
	later := w
	later.Name = "later"
	require.NoError(t, cluster.CreateWorkload(t.Context(), later))
	require.NoError(t, cluster.CreateVPA(t.Context(), later, vpav1.UpdateModeOff, withRecommender("standby")))
	eventually(t, "the standby works", func() error {
		onlyContainer(t, getVPA(t, w))
		if iterationCount(t, standby) < 2 {
			return errors.New("no pass yet")
		}
		return nil
	})
	require.Less(t, time.Since(killed), 40*time.Second)
	awaitRecommendation(t, later)
	after := onlyContainer(t, getVPA(t, w))
	for _, kind := range kinds {
		requireNotLess(t, before.Target, after.Target, kind, "target")
	}
	require.NoError(t, leader.Start(t.Context()))
	during(t, 4*time.Second, func() { require.Zero(t, iterationCount(t, leader), "both work at once") })
}

func leaderElectionFlags(ns string) []string {
	return []string{"--leader-elect=true", "--leader-elect-resource-namespace=" + ns,
		"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=1s"}
}

// leaderOf waits until one of two replicas has completed an iteration, and returns it and the other
// one.
func leaderOf(t *testing.T, pair []*harness.Daemon) (leader, standby *harness.Daemon) {
	t.Helper()
	eventually(t, "one of the replicas works", func() error {
		if leader, standby = pair[0], pair[1]; iterationCount(t, leader) == 0 {
			leader, standby = standby, leader
		}
		if iterationCount(t, leader) == 0 {
			return errors.New("no pass yet")
		}
		return nil
	})
	require.Zero(t, iterationCount(t, standby), "both work at once")
	return leader, standby
}

func iterationCount(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	metrics, err := d.Metrics(t.Context())
	require.NoError(t, err)
	return int(metrics[iterationMetric(d)])
}

func iterationMetric(d *harness.Daemon) string {
	return "vpa_" + d.Name + `_execution_latency_seconds_count{step="total"}`
}

// allowLeases lets replicas of a program elect a leader in the given namespace. deploy/ grants this
// in one namespace only.
func allowLeases(t *testing.T, ns, account string) {
	t.Helper()
	name := metav1.ObjectMeta{Namespace: ns, Name: "leases"}
	_, err := cluster.Kube.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = cluster.Kube.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: name,
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.SystemNamespace, Name: account}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "leases"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the permission is in force", func() error {
		answer, err := cluster.KubectlOutput(t.Context(), "auth", "can-i", "create", "leases.coordination.k8s.io", "-n", ns,
			"--as=system:serviceaccount:"+harness.SystemNamespace+":"+account)
		if err != nil {
			return fmt.Errorf("%s: %w", answer, err)
		}
		return nil
	})
}
