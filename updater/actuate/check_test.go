package actuate

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/updater/view"
)

// A cached pod has owner references without UID, those of the API server are complete.
func TestCheck_CachedPodWithoutOwnerUID(t *testing.T) {
	live := livePod("ReplicaSet", "apps/v1")
	live.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	kube := fake.NewClientset(live, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()},
	})
	var created *corev1.Pod
	kube.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		created = a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
		return true, created, nil
	})
	cached := live.DeepCopy()
	cached.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
	checker := &Checker{Kube: kube, Config: &disruption.Config{MinReplicas: 1, Tolerance: 0.5}}
	require.NoError(t, checker.Check(t.Context(), Change{
		Action: disruption.Action{Subject: disruption.Subject{Namespace: "shop", Pod: "web-1", UID: "pod"}},
		Target: cached, Reading: view.NewReading(&vpav1.VerticalPodAutoscaler{}, convert.LimitRanges{}),
	}))
	require.NotNil(t, created, "the replacement was checked")
	require.Equal(t, "owner", string(created.OwnerReferences[0].UID))
}
