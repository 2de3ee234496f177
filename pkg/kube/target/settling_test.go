package target

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type progress struct{ settling, replacing bool }

func progressOf(t *testing.T, kind string, o runtime.Object) progress {
	t.Helper()
	r := newResolver(t, scaled{}.scale, o)
	key := Key{Namespace: "ns", Kind: kind, Name: "x"}
	return progress{r.Settling(key), r.Replacing(key)}
}

func TestSettling_Deployments(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   progress
	}{
		{name: "at rest", change: func(*appsv1.Deployment) {}},
		{name: "default of one replica", change: func(d *appsv1.Deployment) { d.Spec.Replicas = nil; d.Status = seen(1, 1, 1) }},
		{name: "zero replicas", change: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)); d.Status = seen(0, 0, 0) }},
		{name: "unobserved template", change: func(d *appsv1.Deployment) { d.Generation = 5 }, want: progress{settling: true}},
		{
			name: "template rolled out to no pod", change: func(d *appsv1.Deployment) { d.Status = seen(3, 0, 3) },
			want: progress{true, true},
		},
		{
			name: "template rolled out to some pods", change: func(d *appsv1.Deployment) { d.Status = seen(4, 2, 3) },
			want: progress{true, true},
		},
		{
			name: "old pods are terminating", change: func(d *appsv1.Deployment) { d.Status = seen(4, 3, 4) },
			want: progress{replacing: true},
		},
		{
			name: "updated pods are unavailable", change: func(d *appsv1.Deployment) { d.Status = seen(3, 3, 2) },
			want: progress{settling: true},
		},
		{
			name: "scaled up", change: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)); d.Status = seen(3, 3, 3) },
			want: progress{settling: true},
		},
		{
			name:   "scaled up with starting pods",
			change: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)); d.Status = seen(5, 5, 3) },
			want:   progress{settling: true},
		},
		{name: "scaled down", change: func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) }},
		{
			name: "paused during a rollout", change: func(d *appsv1.Deployment) { d.Spec.Paused = true; d.Status = seen(4, 2, 3) },
			want: progress{settling: true},
		},
		{name: "rollout past its deadline", change: func(d *appsv1.Deployment) {
			d.Status = seen(4, 2, 3)
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
		}, want: progress{settling: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &appsv1.Deployment{
				ObjectMeta: named("x"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector()}, Status: seen(3, 3, 3),
			}
			d.Generation = 4
			tc.change(d)
			require.Equal(t, tc.want, progressOf(t, "Deployment", d))
		})
	}
}

func seen(replicas, updated, available int32) appsv1.DeploymentStatus {
	return appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available}
}

func TestSettling_StatefulSets(t *testing.T) {
	partition := func(s *appsv1.StatefulSet, n int32) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n}
	}
	rolls := func(s *appsv1.StatefulSet, updated, available int32) {
		s.Status.UpdateRevision, s.Status.UpdatedReplicas, s.Status.AvailableReplicas = "b", updated, available
	}
	for _, tc := range []struct {
		name   string
		change func(*appsv1.StatefulSet)
		want   progress
	}{
		{name: "at rest", change: func(*appsv1.StatefulSet) {}},
		{name: "at rest with no pod counted as updated", change: func(s *appsv1.StatefulSet) { s.Status.UpdatedReplicas = 0 }},
		{name: "unobserved template", change: func(s *appsv1.StatefulSet) { s.Generation = 5 }, want: progress{settling: true}},
		{
			name: "template rolled out to one of three pods", change: func(s *appsv1.StatefulSet) { rolls(s, 1, 3) },
			want: progress{true, true},
		},
		{
			name: "all pods updated and one unavailable", change: func(s *appsv1.StatefulSet) { rolls(s, 3, 2) },
			want: progress{settling: true},
		},
		{name: "partition completed", change: func(s *appsv1.StatefulSet) { partition(s, 2); rolls(s, 1, 3) }},
		{
			name: "partition in progress", change: func(s *appsv1.StatefulSet) { partition(s, 1); rolls(s, 1, 3) },
			want: progress{true, true},
		},
		{name: "partition above the replicas", change: func(s *appsv1.StatefulSet) { partition(s, 7); rolls(s, 0, 3) }},
		{name: "OnDelete with old pods", change: func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			rolls(s, 1, 3)
		}},
		{name: "OnDelete with a deleted pod", change: func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			rolls(s, 1, 2)
		}, want: progress{settling: true}},
		{
			name: "scaled up with starting pods", change: func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) },
			want: progress{settling: true},
		},
		{name: "scaled down", change: func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &appsv1.StatefulSet{
				ObjectMeta: named("x"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector()},
				Status: appsv1.StatefulSetStatus{
					ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3, CurrentRevision: "a", UpdateRevision: "a",
				},
			}
			s.Generation = 4
			tc.change(s)
			require.Equal(t, tc.want, progressOf(t, "StatefulSet", s))
		})
	}
}

func TestSettling_DaemonSets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*appsv1.DaemonSet)
		want   progress
	}{
		{name: "at rest", change: func(*appsv1.DaemonSet) {}},
		{name: "no matching node", change: func(d *appsv1.DaemonSet) { d.Status = appsv1.DaemonSetStatus{ObservedGeneration: 4} }},
		{name: "unobserved template", change: func(d *appsv1.DaemonSet) { d.Generation = 5 }, want: progress{settling: true}},
		{
			name: "template rolled out to some pods", change: func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 2 },
			want: progress{true, true},
		},
		{name: "pod of a new node is starting", change: func(d *appsv1.DaemonSet) {
			d.Status.DesiredNumberScheduled, d.Status.CurrentNumberScheduled = 4, 4
			d.Status.UpdatedNumberScheduled = 4
		}, want: progress{settling: true}},
		{name: "node is gone", change: func(d *appsv1.DaemonSet) { d.Status.DesiredNumberScheduled = 2 }},
		{name: "OnDelete with old pods", change: func(d *appsv1.DaemonSet) {
			d.Status.UpdatedNumberScheduled, d.Spec.UpdateStrategy.Type = 1, appsv1.OnDeleteDaemonSetStrategyType
		}},
		{name: "OnDelete with an unavailable pod", change: func(d *appsv1.DaemonSet) {
			d.Status.NumberAvailable, d.Spec.UpdateStrategy.Type = 2, appsv1.OnDeleteDaemonSetStrategyType
		}, want: progress{settling: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &appsv1.DaemonSet{
				ObjectMeta: named("x"), Spec: appsv1.DaemonSetSpec{Selector: selector()},
				Status: appsv1.DaemonSetStatus{
					ObservedGeneration: 4, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3,
					UpdatedNumberScheduled: 3, NumberAvailable: 3,
				},
			}
			d.Generation = 4
			tc.change(d)
			require.Equal(t, tc.want, progressOf(t, "DaemonSet", d))
		})
	}
}

func TestSettling_OtherWorkloads(t *testing.T) {
	d := &appsv1.Deployment{
		ObjectMeta: named("x"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector()}, Status: seen(4, 2, 3),
	}
	d.Generation = 4
	set := &appsv1.ReplicaSet{ObjectMeta: named("x"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Selector: selector()}}
	r := newResolver(t, scaled{}.scale, d, set, &batchv1.CronJob{ObjectMeta: named("x")})
	for _, tc := range []struct {
		name string
		key  Key
		want progress
	}{
		{name: "Deployment during a rollout", key: Key{Namespace: "ns", Kind: "Deployment", Name: "x"}, want: progress{true, true}},
		{name: "missing Deployment", key: Key{Namespace: "ns", Kind: "Deployment", Name: "gone"}},
		{name: "ReplicaSet without pods", key: Key{Namespace: "ns", Kind: "ReplicaSet", Name: "x"}},
		{name: "CronJob", key: Key{Namespace: "ns", Kind: "CronJob", Name: "x"}},
		{name: "custom kind named Deployment", key: Key{Namespace: "ns", Group: "example.com", Kind: "Deployment", Name: "x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, progress{r.Settling(tc.key), r.Replacing(tc.key)})
		})
	}
}
