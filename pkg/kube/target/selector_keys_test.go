package target

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/kube/client"
)

func TestSelectorKeys_FollowControllers(t *testing.T) {
	with := func(key string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: "x"}}
	}
	kube := fake.NewClientset(
		&appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "deployment", Operator: metav1.LabelSelectorOpExists}}}}},
		&appsv1.StatefulSet{ObjectMeta: named("s"), Spec: appsv1.StatefulSetSpec{Selector: with("stateful")}},
		&appsv1.DaemonSet{ObjectMeta: named("d"), Spec: appsv1.DaemonSetSpec{Selector: with("daemon")}},
		&corev1.ReplicationController{ObjectMeta: named("r"), Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"controller": "x"}}},
		&appsv1.ReplicaSet{ObjectMeta: named("alone"), Spec: appsv1.ReplicaSetSpec{Selector: with("alone")}},
		&appsv1.ReplicaSet{ObjectMeta: named("owned", owner("argoproj.io/v1alpha1", "Rollout", "r")), Spec: appsv1.ReplicaSetSpec{Selector: with("generation")}},
		&batchv1.Job{ObjectMeta: named("j"), Spec: batchv1.JobSpec{Selector: with("job")}},
	)
	f := client.Factory(kube, "", time.Hour, "")
	r := New(f, nil)
	keys, err := r.SelectorKeys()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	t.Cleanup(func() { stop(); f.Shutdown() })
	require.NoError(t, client.Sync(ctx, r.Synced()))
	for _, key := range []string{"deployment", "stateful", "daemon", "controller", "alone"} {
		require.Eventually(t, func() bool { return keys.Contains("ns", key) }, time.Minute, time.Millisecond, key)
		require.False(t, keys.Contains("other", key), key)
	}
	require.False(t, keys.Contains("ns", "generation"))
	require.False(t, keys.Contains("ns", "job"))

	changed, err := kube.AppsV1().StatefulSets("ns").Get(ctx, "s", metav1.GetOptions{})
	require.NoError(t, err)
	changed.Spec.Selector = with("other")
	_, err = kube.AppsV1().StatefulSets("ns").Update(ctx, changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, kube.AppsV1().DaemonSets("ns").Delete(ctx, "d", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		return keys.Contains("ns", "other") && !keys.Contains("ns", "stateful") && !keys.Contains("ns", "daemon")
	}, time.Minute, time.Millisecond)
}

// A late delete event carries the last known state.
func TestSelectorKeys_ForgetsUnusedKeys(t *testing.T) {
	k := &SelectorKeys{counts: map[string]map[string]int{}}
	d := &appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Selector: selector()}}
	k.count(d, 1)
	k.count(d, 1)
	k.count(d, -1)
	require.True(t, k.Contains("ns", "app"))
	k.count(d, -1)
	k.count(cache.DeletedFinalStateUnknown{}, -1)
	require.Empty(t, k.counts)
}
