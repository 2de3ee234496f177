package target

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
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
	for what, c := range map[string]struct {
		change func(*appsv1.Deployment)
		want   progress
	}{
		"at rest":                             {func(*appsv1.Deployment) {}, progress{}},
		"one, by default":                     {func(d *appsv1.Deployment) { d.Spec.Replicas = nil; d.Status = seen(1, 1, 1) }, progress{}},
		"none":                                {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)); d.Status = seen(0, 0, 0) }, progress{}},
		"a new template that nobody has seen": {func(d *appsv1.Deployment) { d.Generation = 5 }, progress{settling: true}},
		"a new template, no pod of it":        {func(d *appsv1.Deployment) { d.Status = seen(3, 0, 3) }, progress{true, true}},
		"a new template, some pods":           {func(d *appsv1.Deployment) { d.Status = seen(4, 2, 3) }, progress{true, true}},
		"a new template, old pods still go":   {func(d *appsv1.Deployment) { d.Status = seen(4, 3, 4) }, progress{replacing: true}},
		"a new template, not available":       {func(d *appsv1.Deployment) { d.Status = seen(3, 3, 2) }, progress{settling: true}},
		"scaled up":                           {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)); d.Status = seen(3, 3, 3) }, progress{settling: true}},
		"scaled up, pods are starting":        {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)); d.Status = seen(5, 5, 3) }, progress{settling: true}},
		"scaled down":                         {func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(2)) }, progress{}},
		"paused amid a rollout":               {func(d *appsv1.Deployment) { d.Spec.Paused = true; d.Status = seen(4, 2, 3) }, progress{settling: true}},
		"a rollout that has missed its deadline": {func(d *appsv1.Deployment) {
			d.Status = seen(4, 2, 3)
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse}}
		}, progress{settling: true}},
	} {
		d := &appsv1.Deployment{ObjectMeta: named("x"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector()}, Status: seen(3, 3, 3)}
		d.Generation = 4
		c.change(d)
		require.Equal(t, c.want, progressOf(t, "Deployment", d), what)
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
	for what, c := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   progress
	}{
		"at rest":                             {func(*appsv1.StatefulSet) {}, progress{}},
		"at rest, counted as none updated":    {func(s *appsv1.StatefulSet) { s.Status.UpdatedReplicas = 0 }, progress{}},
		"a new template that nobody has seen": {func(s *appsv1.StatefulSet) { s.Generation = 5 }, progress{settling: true}},
		"a new template, one pod of three":    {func(s *appsv1.StatefulSet) { rolls(s, 1, 3) }, progress{true, true}},
		"all updated, one not available":      {func(s *appsv1.StatefulSet) { rolls(s, 3, 2) }, progress{settling: true}},
		"a partition, its part done":          {func(s *appsv1.StatefulSet) { partition(s, 2); rolls(s, 1, 3) }, progress{}},
		"a partition, its part under way":     {func(s *appsv1.StatefulSet) { partition(s, 1); rolls(s, 1, 3) }, progress{true, true}},
		"a partition that is larger than it":  {func(s *appsv1.StatefulSet) { partition(s, 7); rolls(s, 0, 3) }, progress{}},
		"OnDelete, waits for people": {func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			rolls(s, 1, 3)
		}, progress{}},
		"OnDelete, a pod was deleted": {func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			rolls(s, 1, 2)
		}, progress{settling: true}},
		"scaled up, the new pods are starting": {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) }, progress{settling: true}},
		"scaled down":                          {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) }, progress{}},
	} {
		s := &appsv1.StatefulSet{ObjectMeta: named("x"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector()},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3, CurrentRevision: "a", UpdateRevision: "a"}}
		s.Generation = 4
		c.change(s)
		require.Equal(t, c.want, progressOf(t, "StatefulSet", s), what)
	}
}

func TestSettling_DaemonSets(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   progress
	}{
		"at rest":                             {func(*appsv1.DaemonSet) {}, progress{}},
		"no node for it":                      {func(d *appsv1.DaemonSet) { d.Status = appsv1.DaemonSetStatus{ObservedGeneration: 4} }, progress{}},
		"a new template that nobody has seen": {func(d *appsv1.DaemonSet) { d.Generation = 5 }, progress{settling: true}},
		"a new template, some pods":           {func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 2 }, progress{true, true}},
		"a new node, its pod is starting": {func(d *appsv1.DaemonSet) {
			d.Status.DesiredNumberScheduled, d.Status.CurrentNumberScheduled = 4, 4
			d.Status.UpdatedNumberScheduled = 4
		}, progress{settling: true}},
		"a node is gone": {func(d *appsv1.DaemonSet) { d.Status.DesiredNumberScheduled = 2 }, progress{}},
		"OnDelete, waits for people": {func(d *appsv1.DaemonSet) {
			d.Status.UpdatedNumberScheduled, d.Spec.UpdateStrategy.Type = 1, appsv1.OnDeleteDaemonSetStrategyType
		}, progress{}},
		"OnDelete, a pod is not available": {func(d *appsv1.DaemonSet) {
			d.Status.NumberAvailable, d.Spec.UpdateStrategy.Type = 2, appsv1.OnDeleteDaemonSetStrategyType
		}, progress{settling: true}},
	} {
		d := &appsv1.DaemonSet{ObjectMeta: named("x"), Spec: appsv1.DaemonSetSpec{Selector: selector()},
			Status: appsv1.DaemonSetStatus{ObservedGeneration: 4, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3}}
		d.Generation = 4
		c.change(d)
		require.Equal(t, c.want, progressOf(t, "DaemonSet", d), what)
	}
}

func TestSettling_OtherWorkloads(t *testing.T) {
	r := newResolver(t, scaled{}.scale)
	for _, key := range []Key{
		{Namespace: "ns", Kind: "Deployment", Name: "gone"}, {Namespace: "ns", Kind: "ReplicaSet", Name: "x"},
		{Namespace: "ns", Kind: "CronJob", Name: "x"}, {Namespace: "ns", Group: "example.com", Kind: "Deployment", Name: "x"},
	} {
		require.False(t, r.Settling(key), key)
		require.False(t, r.Replacing(key), key)
	}
}
