package actuate

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/updater/snapshot"
)

// livePod returns a running pod with fields that the API server, the scheduler and the updater set.
func livePod(kind, apiVersion string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "pod", ResourceVersion: "7",
			Labels:          map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: "web-1", appsv1.ControllerRevisionHashLabelKey: "new"},
			Annotations:     map[string]string{convert.ResizedAnnotation: "true", convert.ObservedAnnotation: "app", "team": "blue", batchv1.JobCompletionIndexAnnotation: "3"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "owner", Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", Hostname: "web-1", Priority: new(int32(5)), PriorityClassName: "high", ServiceAccountName: "live",
			Tolerations:         []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}},
			Affinity:            &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			Volumes:             []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-1"}}}},
			Containers:          []corev1.Container{{Name: "app", Image: "live"}},
			EphemeralContainers: []corev1.EphemeralContainer{{}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"team": "red"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "template", Containers: []corev1.Container{{Name: "app", Image: "template"}}},
	}
}

func TestReplacement_MatchesControllerPod(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set := func(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			Selector: selector, Template: template(), VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}},
			Status: appsv1.StatefulSetStatus{UpdateRevision: "new"}}
		if change != nil {
			change(s)
		}
		return s
	}
	partition := func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
		s.Status.UpdateRevision = "newer"
	}
	later := func(s *appsv1.StatefulSet) {
		partition(s)
		s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1))
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	}
	for _, tc := range []struct {
		name, kind, apiVersion string
		owner                  runtime.Object
		image                  string
		claim, daemon, index   bool
	}{
		{name: "ReplicaSet", kind: "ReplicaSet", apiVersion: "apps/v1", image: "template",
			owner: &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template()}}},
		{name: "StatefulSet", kind: "StatefulSet", apiVersion: "apps/v1", owner: set(nil), image: "template", claim: true},
		{name: "StatefulSet below its partition", kind: "StatefulSet", apiVersion: "apps/v1", owner: set(partition), image: "live", claim: true},
		{name: "StatefulSet with ordinals from 1 on", kind: "StatefulSet", apiVersion: "apps/v1", owner: set(later), image: "live", claim: true},
		{name: "DaemonSet", kind: "DaemonSet", apiVersion: "apps/v1", image: "template", daemon: true,
			owner: &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template()}}},
		{name: "ReplicationController", kind: "ReplicationController", apiVersion: "v1", image: "template",
			owner: &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels, Template: new(template())}}},
		{name: "Job", kind: "Job", apiVersion: "batch/v1", image: "template", index: true,
			owner: &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Selector: selector, Template: template()}}},
		{name: "custom resource", kind: "Rollout", apiVersion: "example.com/v1", image: "live", claim: true,
			owner: &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template()}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			evicted := livePod(tc.kind, tc.apiVersion)
			change := Change{Object: evicted, Autoscaler: snapshot.NewVPA(&vpav1.VerticalPodAutoscaler{}, &convert.LimitRanges{})}
			owner, err := readController(t.Context(), fake.NewClientset(tc.owner), nil, change, evicted.OwnerReferences[0])
			require.NoError(t, err)
			require.True(t, owner.selector.Matches(labels.Set(evicted.Labels)))
			pod := replacement(owner, evicted)

			require.Empty(t, pod.Name)
			require.Equal(t, "web-", pod.GenerateName)
			require.Equal(t, "shop", pod.Namespace)
			require.Empty(t, pod.UID)
			require.Equal(t, corev1.PodStatus{}, pod.Status)
			require.Empty(t, pod.Spec.NodeName, "no node is chosen yet")
			require.Nil(t, pod.Spec.Priority, "admission derives it")
			require.Empty(t, pod.Spec.EphemeralContainers, "no pod is created with these")
			require.Equal(t, tc.image, pod.Spec.Containers[0].Image)
			require.Equal(t, "owner", string(pod.OwnerReferences[0].UID))
			require.Nil(t, pod.OwnerReferences[0].BlockOwnerDeletion)
			require.Equal(t, "web", pod.Labels["app"])
			require.NotContains(t, pod.Annotations, convert.ResizedAnnotation)
			require.NotContains(t, pod.Annotations, convert.ObservedAnnotation)
			require.Contains(t, pod.Annotations, "team")
			require.Equal(t, tc.claim, len(pod.Spec.Volumes) == 1, "volumes of claim templates")
			if tc.daemon {
				require.Equal(t, evicted.Spec.Affinity, pod.Spec.Affinity)
				require.Equal(t, evicted.Spec.Tolerations, pod.Spec.Tolerations)
			}
			if tc.index {
				require.Equal(t, "3", pod.Annotations[batchv1.JobCompletionIndexAnnotation])
			}
			require.Equal(t, "n1", evicted.Spec.NodeName, "the pod of the API server stays as it is")
		})
	}
}
