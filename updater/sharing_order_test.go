package updater

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// otherWorkload returns the Deployment "web" of namespace "pay": two pods of 100m on node n1 with a
// recommendation of 500m.
func otherWorkload() (objects []runtime.Object) {
	for _, o := range append(deployment(2, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("100m", "200Mi")
	}), autoscaler(vpav1.UpdateModeInPlaceOrRecreate)) {
		m := o.(metav1.Object)
		m.SetNamespace("pay")
		m.SetUID(types.UID("pay-" + string(m.GetUID())))
		if vpa, is := o.(*vpav1.VerticalPodAutoscaler); is {
			one := &vpa.Status.Recommendation.ContainerRecommendations[0]
			one.LowerBound, one.Target, one.UpperBound = list("400m", "200Mi"), list("500m", "200Mi"), list("600m", "200Mi")
		}
		objects = append(objects, o)
	}
	return objects
}

func TestShareOrder_SharesComeLast(t *testing.T) {
	r := shareWith(t, Default(), append(append(peakingPods(1, func(p *corev1.Pod) {
		unlimited(p)
		p.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
	}), peakingVPA(), sharingOnPolicy(), kubelet("n1", "1900m")), otherWorkload()...)...)
	require.Equal(t, "200m", r.runAt(0), "one of the others takes 400m of the 1500m that are left, of which 1200m would be needed")
	require.EqualValues(t, 1, r.skipped("NodeFull"))
}

// harmedShare is a pod with harm from its share: it restarted twice since it shrank.
func harmedShare(p *corev1.Pod) {
	unlimited(p)
	p.Annotations = map[string]string{convert.SharedAnnotation: "cpu at 2026-01-02T11:59:00Z after 0"}
	p.Spec.Containers[0].Resources.Requests = list("800m", "200Mi")
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 2}}
}

func TestShareOrder_RevertsComeFirst(t *testing.T) {
	r := shareWith(t, Default(), append(append(peakingPods(1, harmedShare), peakingVPA(), sharingOnPolicy(), kubelet("n1", "1800m")), otherWorkload()...)...)
	require.Equal(t, "1400m", r.runAt(0), "there are 800m left, of which it takes 600m, and the others would take 400m each")
	var namespaces []string
	for _, a := range r.kube.Actions() {
		if a.GetVerb() == "patch" && a.GetSubresource() == "resize" {
			namespaces = append(namespaces, a.GetNamespace())
		}
	}
	require.Equal(t, "shop", namespaces[0])
}

func TestShareOrder_RevertAndChangeAreOneResize(t *testing.T) {
	r := shareWith(t, Default(), append(append(peakingPods(2, func(p *corev1.Pod) {
		harmedShare(p)
		p.Spec.Containers[0].Resources.Requests = list("800m", "50Mi")
	}), peakingVPA(), sharingOnPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(0)) }), kubelet("n1", "8")), otherWorkload()...)...)
	r.runOnce(noon)
	var resized []string
	for _, a := range r.kube.Actions() {
		if patch, is := a.(ktesting.PatchAction); is && a.GetSubresource() == "resize" {
			resized = append(resized, a.GetNamespace()+"/"+patch.GetName())
		}
	}
	require.Equal(t, []string{"shop/web-1-0", "shop/web-1-1", "pay/web-1-0"}, resized)
	require.Equal(t, "1400m 200Mi", r.requests("web-1-0"))
}
