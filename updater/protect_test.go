package updater

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
)

// ownedBy returns a workload of another kind with the VPA and the pods of the Deployment web.
func ownedBy(mode vpav1.UpdateMode, workload runtime.Object, apiVersion, kind string, change func(*corev1.Pod)) []runtime.Object {
	vpa := autoscaler(mode)
	vpa.Spec.TargetRef.APIVersion, vpa.Spec.TargetRef.Kind = apiVersion, kind
	objects := []runtime.Object{vpa, workload}
	for _, o := range deployment(3, change) {
		if pod, ok := o.(*corev1.Pod); ok {
			pod.OwnerReferences = owner(kind, "web")
			pod.OwnerReferences[0].APIVersion = apiVersion
			objects = append(objects, pod)
		}
	}
	return objects
}

func workloadMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", Generation: 1}
}

func webSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func job(policy *batchv1.PodFailurePolicy) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: workloadMeta(), Spec: batchv1.JobSpec{Selector: webSelector(), PodFailurePolicy: policy}}
}

func onDelete(current, update string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: workloadMeta(),
		Spec: appsv1.StatefulSetSpec{Selector: webSelector(), Replicas: new(int32(3)),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 3, AvailableReplicas: 3, CurrentRevision: current, UpdateRevision: update}}
}

// An eviction may cost only the time of a restart. Otherwise the pod is resized in place or stays
// unchanged.
func TestEviction_OnlyOfPodsThatComeBackUnchanged(t *testing.T) {
	ignored := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}}}
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	onFailure := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	older := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "controller-revision-hash": "a"} }
	annotated := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	asDeployment := func(change func(*corev1.Pod)) func(vpav1.UpdateMode) []runtime.Object {
		return func(mode vpav1.UpdateMode) []runtime.Object { return append(deployment(3, change), autoscaler(mode)) }
	}
	asJob := func(policy *batchv1.PodFailurePolicy, change func(*corev1.Pod)) func(vpav1.UpdateMode) []runtime.Object {
		return func(mode vpav1.UpdateMode) []runtime.Object {
			return ownedBy(mode, job(policy), "batch/v1", "Job", change)
		}
	}
	asSet := func(current, update string) func(vpav1.UpdateMode) []runtime.Object {
		return func(mode vpav1.UpdateMode) []runtime.Object {
			return ownedBy(mode, onDelete(current, update), "apps/v1", "StatefulSet", older)
		}
	}
	for _, tc := range []struct {
		name    string
		objects func(vpav1.UpdateMode) []runtime.Object
		reason  reason.Reason // empty: evicted
	}{
		{name: "Job", objects: asJob(nil, never), reason: reason.CountsAsFailure},
		{name: "Job with restarts", objects: asJob(nil, onFailure), reason: reason.CountsAsFailure},
		{name: "Job that ignores disruptions", objects: asJob(ignored, never)},
		{name: "pods that run to completion", objects: asDeployment(never), reason: reason.CountsAsFailure},
		{name: "older revision", objects: asSet("a", "b"), reason: reason.OlderRevision},
		{name: "newest revision", objects: asSet("a", "a")},
		{name: "safe-to-evict", objects: asDeployment(annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")), reason: reason.ProtectedFromEviction},
		{name: "safe-to-evict that allows it", objects: asDeployment(annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "true"))},
		{name: "do-not-disrupt", objects: asDeployment(annotated("karpenter.sh/do-not-disrupt", "true")), reason: reason.ProtectedFromEviction},
		{name: "do-not-disrupt for a time", objects: asDeployment(annotated("karpenter.sh/do-not-disrupt", "1h")), reason: reason.ProtectedFromEviction},
		{name: "do-not-disrupt that allows it", objects: asDeployment(annotated("karpenter.sh/do-not-disrupt", "false"))},
		{name: "prefer-no-eviction", objects: asDeployment(annotated("descheduler.alpha.kubernetes.io/prefer-no-eviction", "")), reason: reason.ProtectedFromEviction},
		{name: "another annotation", objects: asDeployment(annotated("example.com/safe-to-evict", "false"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), tc.objects(vpav1.UpdateModeRecreate)...)
			w.runOnce(noon)
			if tc.reason == "" {
				require.NotEmpty(t, w.evictions())
				return
			}
			require.Empty(t, w.evictions())
			require.EqualValues(t, 3, w.value("loadline_updater_skipped_pods", "reason", string(tc.reason)))

			config := Default()
			config.Disruption.FreeResizes = true
			w = newWorld(t, config, tc.objects(vpav1.UpdateModeInPlaceOrRecreate)...)
			w.runOnce(noon)
			require.Empty(t, w.evictions())
			for _, name := range []string{"web-1-0", "web-1-1", "web-1-2"} {
				require.Equal(t, "200m", w.pod(name).Spec.Containers[0].Resources.Requests.Cpu().String(), name)
			}
		})
	}
}
