package target

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func revised(hash string) map[string]string {
	return map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
}

func statefulSet(strategy appsv1.StatefulSetUpdateStrategyType, partition int32, current, update string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: named("x"), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: new(int32(3))}}
	s.Spec.UpdateStrategy.Type = strategy
	if strategy != appsv1.OnDeleteStatefulSetStrategyType {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition}
	}
	s.Generation, s.Status.ObservedGeneration = 2, 2
	s.Status.CurrentRevision, s.Status.UpdateRevision = current, update
	return s
}

func TestResolver_KeepsRevisionOfStatefulSets(t *testing.T) {
	const onDelete, rolling = appsv1.OnDeleteStatefulSetStrategyType, appsv1.RollingUpdateStatefulSetStrategyType
	unseen := statefulSet(onDelete, 0, "a", "a")
	unseen.Generation = 3
	offset := statefulSet(rolling, 2, "a", "b")
	offset.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 10}
	for _, tc := range []struct {
		name     string
		set      *appsv1.StatefulSet
		pod      string
		revision string
		want     bool
	}{
		{name: "at rest", set: statefulSet(rolling, 0, "a", "a"), pod: "x-0", revision: "a", want: true},
		{name: "OnDelete, older", set: statefulSet(onDelete, 0, "a", "b"), pod: "x-0", revision: "a"},
		{name: "OnDelete, newest", set: statefulSet(onDelete, 0, "a", "b"), pod: "x-0", revision: "b", want: true},
		{name: "OnDelete, rolled back", set: statefulSet(onDelete, 0, "a", "a"), pod: "x-0", revision: "b"},
		{name: "OnDelete, template not seen yet", set: unseen, pod: "x-0", revision: "a"},
		{name: "rolling, not replaced yet", set: statefulSet(rolling, 0, "a", "b"), pod: "x-0", revision: "a"},
		{name: "rolling, replaced", set: statefulSet(rolling, 0, "a", "b"), pod: "x-2", revision: "b", want: true},
		{name: "below the partition", set: statefulSet(rolling, 2, "a", "b"), pod: "x-1", revision: "a", want: true},
		{name: "below the partition, replaced by hand", set: statefulSet(rolling, 2, "a", "b"), pod: "x-1", revision: "b"},
		{name: "at the partition, older", set: statefulSet(rolling, 2, "a", "b"), pod: "x-2", revision: "a"},
		{name: "at the partition, newest", set: statefulSet(rolling, 2, "a", "b"), pod: "x-2", revision: "b", want: true},
		{name: "ordinals begin at 10, below", set: offset, pod: "x-11", revision: "a", want: true},
		{name: "ordinals begin at 10, at", set: offset, pod: "x-12", revision: "a"},
		{name: "no label", set: statefulSet(onDelete, 0, "a", "b"), pod: "x-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newResolver(t, scaled{}.scale, runtime.Object(tc.set))
			require.Equal(t, tc.want, r.KeepsRevision(Key{Namespace: "ns", Kind: "StatefulSet", Name: "x"}, tc.pod, revised(tc.revision)))
		})
	}
}

func TestResolver_KeepsRevisionOfDaemonSets(t *testing.T) {
	daemons := func(updated int32) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: named("x"), Spec: appsv1.DaemonSetSpec{Selector: selector()}}
		d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
		d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		d.Status.CurrentNumberScheduled, d.Status.UpdatedNumberScheduled = 3, updated
		return d
	}
	for _, tc := range []struct {
		name       string
		updated    int32
		generation string
		want       bool
	}{
		{name: "all have the newest", updated: 3, generation: "1", want: true},
		{name: "older", updated: 1, generation: "1"},
		{name: "newest", updated: 1, generation: "2", want: true},
		{name: "no label", updated: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newResolver(t, scaled{}.scale, runtime.Object(daemons(tc.updated)))
			require.Equal(t, tc.want, r.KeepsRevision(Key{Namespace: "ns", Kind: "DaemonSet", Name: "x"}, "x-abc", map[string]string{"pod-template-generation": tc.generation}))
		})
	}
}

func TestResolver_IgnoresDisruption(t *testing.T) {
	const ignore, fail, count = batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionCount
	on := func(action batchv1.PodFailurePolicyAction, condition corev1.PodConditionType) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: condition, Status: corev1.ConditionTrue}}}
	}
	exits := func(action batchv1.PodFailurePolicyAction, operator batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: operator, Values: codes}}
	}
	const in, notIn = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	disruption := on(ignore, corev1.DisruptionTarget)
	for _, tc := range []struct {
		name  string
		rules []batchv1.PodFailurePolicyRule
		want  bool
	}{
		{name: "no policy"},
		{name: "ignores disruptions", rules: []batchv1.PodFailurePolicyRule{disruption}, want: true},
		{name: "ignores another condition", rules: []batchv1.PodFailurePolicyRule{on(ignore, "ConfigIssue")}},
		{name: "counts disruptions first", rules: []batchv1.PodFailurePolicyRule{on(count, corev1.DisruptionTarget), disruption}},
		{name: "fails for a code of the program first", rules: []batchv1.PodFailurePolicyRule{exits(fail, in, 42), disruption}, want: true},
		{name: "fails for SIGTERM first", rules: []batchv1.PodFailurePolicyRule{exits(fail, in, 143), disruption}},
		{name: "fails for SIGKILL first", rules: []batchv1.PodFailurePolicyRule{exits(fail, in, 1, 137), disruption}},
		{name: "fails for all other codes first", rules: []batchv1.PodFailurePolicyRule{exits(fail, notIn, 1), disruption}},
		{name: "fails for all codes but those of signals", rules: []batchv1.PodFailurePolicyRule{exits(fail, notIn, 137, 143), disruption}, want: true},
		{name: "fails for a code afterwards", rules: []batchv1.PodFailurePolicyRule{disruption, exits(fail, in, 143)}, want: true},
		{name: "ignores codes alone", rules: []batchv1.PodFailurePolicyRule{exits(ignore, in, 137, 143)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: named("x"), Spec: batchv1.JobSpec{Selector: selector()}}
			if tc.rules != nil {
				job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: tc.rules}
			}
			r := newResolver(t, scaled{}.scale, runtime.Object(job))
			require.Equal(t, tc.want, r.IgnoresDisruption(Key{Namespace: "ns", Kind: "Job", Name: "x"}))
		})
	}
	require.False(t, newResolver(t, scaled{}.scale).IgnoresDisruption(Key{Namespace: "ns", Kind: "Job", Name: "gone"}), "an unknown Job may count it")
}
