package target

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/client"
)

func TestRolling_DetectsRollouts(t *testing.T) {
	d := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		o := &appsv1.Deployment{ObjectMeta: named("x"), Status: appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3}}
		o.Generation = 4
		change(o)
		return o
	}
	s := func(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		o := &appsv1.StatefulSet{ObjectMeta: named("x"), Status: appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 1, CurrentRevision: "a", UpdateRevision: "b"}}
		o.Generation = 4
		change(o)
		return o
	}
	ds := func(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		o := &appsv1.DaemonSet{ObjectMeta: named("x"), Status: appsv1.DaemonSetStatus{ObservedGeneration: 4, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 3}}
		o.Generation = 4
		change(o)
		return o
	}
	require.False(t, deploymentRolls(d(func(*appsv1.Deployment) {})))
	require.True(t, deploymentRolls(d(func(o *appsv1.Deployment) { o.Status.Replicas = 4 })), "old pods are there")
	require.True(t, deploymentRolls(d(func(o *appsv1.Deployment) { o.Generation = 5 })), "the controller has not seen the change")
	require.False(t, deploymentRolls(d(func(o *appsv1.Deployment) { o.Status.Replicas, o.Spec.Paused = 4, true })))
	require.False(t, deploymentRolls(d(func(o *appsv1.Deployment) {
		o.Status.Replicas = 4
		o.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
	})), "it has missed its deadline")
	require.True(t, statefulSetRolls(s(func(*appsv1.StatefulSet) {})))
	require.False(t, statefulSetRolls(s(func(o *appsv1.StatefulSet) { o.Status.CurrentRevision = "b" })))
	require.False(t, statefulSetRolls(s(func(o *appsv1.StatefulSet) { o.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType })))
	require.False(t, statefulSetRolls(s(func(o *appsv1.StatefulSet) {
		o.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
	})), "the part that was asked for is done")
	require.False(t, daemonSetRolls(ds(func(*appsv1.DaemonSet) {})))
	require.True(t, daemonSetRolls(ds(func(o *appsv1.DaemonSet) { o.Status.UpdatedNumberScheduled = 2 })))
	require.False(t, daemonSetRolls(ds(func(o *appsv1.DaemonSet) {
		o.Status.UpdatedNumberScheduled, o.Spec.UpdateStrategy.Type = 2, appsv1.OnDeleteDaemonSetStrategyType
	})))

	r := newResolver(t, scaled{}.scale, d(func(o *appsv1.Deployment) { o.Status.Replicas = 4 }), s(func(*appsv1.StatefulSet) {}), ds(func(*appsv1.DaemonSet) {}))
	require.True(t, r.Rolling(Key{Namespace: "ns", Kind: "Deployment", Name: "x"}), "what the caches keep is enough to tell")
	require.True(t, r.Rolling(Key{Namespace: "ns", Kind: "StatefulSet", Name: "x"}))
	require.False(t, r.Rolling(Key{Namespace: "ns", Kind: "DaemonSet", Name: "x"}))
	require.False(t, r.Rolling(Key{Namespace: "ns", Kind: "Job", Name: "x"}))
	require.False(t, r.Rolling(Key{Namespace: "ns", Group: "example.com", Kind: "Room", Name: "x"}))
}

func TestMemoizeWorkloads_FollowsChanges(t *testing.T) {
	n := int32(3)
	kube := fake.NewClientset(&appsv1.ReplicaSet{ObjectMeta: named("x"), Spec: appsv1.ReplicaSetSpec{Selector: selector(), Replicas: &n}})
	f := client.Factory(kube, "", time.Hour, "")
	r := New(f, scaled{}.scale)
	require.NoError(t, r.MemoizeWorkloads())
	ctx, stop := context.WithCancel(t.Context())
	defer f.Shutdown()
	defer stop()
	f.Start(ctx.Done())
	require.NoError(t, client.Sync(ctx, r.Synced()))
	key := Key{Namespace: "ns", Kind: "ReplicaSet", Name: "x"}
	require.Eventually(t, func() bool {
		r.Replicas(ctx, key)
		r.workloads.mu.RLock()
		defer r.workloads.mu.RUnlock()
		return len(r.workloads.known) == 1
	}, time.Minute, time.Millisecond)
	first, err := r.Select(ctx, "ns", ref("apps/v1", "ReplicaSet", "x"), nil)
	require.NoError(t, err)
	again, err := r.Select(ctx, "ns", ref("apps/v1", "ReplicaSet", "x"), first)
	require.NoError(t, err)
	require.Same(t, first, again)
	require.Zero(t, testing.AllocsPerRun(10, func() { r.Replicas(ctx, key) }))

	more := int32(7)
	_, err = kube.AppsV1().ReplicaSets("ns").Update(ctx, &appsv1.ReplicaSet{ObjectMeta: named("x"), Spec: appsv1.ReplicaSetSpec{Selector: selector(), Replicas: &more}}, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { got, _ := r.Replicas(ctx, key); return got == 7 }, time.Minute, time.Millisecond)
	require.NoError(t, kube.AppsV1().ReplicaSets("ns").Delete(ctx, "x", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { _, known := r.Replicas(ctx, key); return !known }, time.Minute, time.Millisecond)
}

// A workload that is being deleted gets no new objects, but its labels and annotations apply as
// long as it has pods.
func TestWorkload_DeletedIsKnownUntilGone(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: named("x")}
	deployment.Labels, deployment.Annotations = map[string]string{"tier": "web"}, map[string]string{"loadline.dev/skip": "true"}
	deployment.Spec.Template.Annotations = map[string]string{"loadline.dev/mode": "Observe"}
	for goes, shown := range map[bool]int{false: 1, true: 0} {
		deployment := deployment.DeepCopy()
		if goes {
			deployment.DeletionTimestamp, deployment.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
		}
		r := newResolver(t, scaled{}.scale, deployment)
		seen := 0
		r.Each(func(Workload) { seen++ })
		require.Equal(t, shown, seen)
		w, there := r.Workload(Key{Namespace: "ns", Kind: "Deployment", Name: "x"})
		require.True(t, there)
		require.Equal(t, deployment.Labels, w.Labels)
		require.Equal(t, deployment.Annotations, w.Annotations)
		require.Equal(t, deployment.Spec.Template.Annotations, w.TemplateAnnotations)
	}
}
