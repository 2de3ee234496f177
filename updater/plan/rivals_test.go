package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"loadline.dev/loadline/pkg/testkit"
)

// The webhook test uses the same table, because both must select the same VPA.
func TestReader_SelectsSameVPAAsWebhook(t *testing.T) {
	controller := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: new(true)}
	set := &appsv1.ReplicaSet{ObjectMeta: meta(testkit.Namespace, "web-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector(), Replicas: new(int32(1))}}
	set.OwnerReferences = []metav1.OwnerReference{controller}
	for _, c := range testkit.AllRivals() {
		pod := testkit.Pod("p")
		pod.UID = "p"
		objects := []runtime.Object{pod, set, &appsv1.Deployment{ObjectMeta: meta(testkit.Namespace, "web"), Spec: appsv1.DeploymentSpec{Selector: selector()}}}
		for _, vpa := range c.VPAs {
			objects = append(objects, vpa)
		}
		r := newReader(t, objects...)
		var got string
		for _, v := range read(t, r).VPAs {
			require.Len(t, v.Pods, 1, c.Name)
			got += v.Name
		}
		require.Equal(t, c.Updater, got, c.Name)

		boosts, found, err := r.Controlling(t.Context(), pod, false)
		require.NoError(t, err, c.Name)
		require.Equal(t, c.Webhook != "", found, c.Name)
		if found {
			require.Equal(t, c.Webhook, boosts.Object.Name, "boosts are taken back as they were given: "+c.Name)
		}
	}
}

func TestReader_FallsBackWhenFirstVPAIsDeleted(t *testing.T) {
	rivals := testkit.AllRivals()[0]
	set := &appsv1.StatefulSet{ObjectMeta: meta(testkit.Namespace, "web"), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: new(int32(1))}}
	pod := controlled(testkit.Namespace, "web-0", "apps/v1", "StatefulSet", "web")
	objects := []runtime.Object{set, pod}
	for _, vpa := range rivals.VPAs {
		vpa.Spec.TargetRef.Kind = "StatefulSet"
		objects = append(objects, vpa)
	}
	r := newReader(t, objects...)
	require.Empty(t, read(t, r).VPAs)
	require.NoError(t, r.VPAs.(vpaStore).remove(rivals.VPAs[1]))
	require.Equal(t, "young", read(t, r).VPAs[0].Name)
}

func TestReader_SkipsStaticPods(t *testing.T) {
	r := newReader(t, targeting("v", "a", "v1", "Node", "n"), controlled("a", "kube-proxy", "v1", "Node", "n"),
		targeting("w", "a", "example.com/v1", "Room", "blue"))
	require.Empty(t, read(t, r).VPAs)
}
