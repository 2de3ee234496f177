package policies

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// userObjects returns objects without statuses.
func (c *cluster) userObjects() (objects []runtime.Object) {
	workloads, err := c.kube.AppsV1().Deployments("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	all, err := c.vpas.LoadlineV1alpha1().SizingPolicies().List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for i := range all.Items {
		p := all.Items[i].DeepCopy()
		p.Status = loadlinev1alpha1.SizingPolicyStatus{}
		objects = append(objects, p)
	}
	if mine := c.vpasByName()["mine"]; mine != nil {
		objects = append(objects, mine.DeepCopy())
	}
	return append(objects, workloads.DeepCopy())
}

// runAndRecordWrites requires that user objects stay unchanged.
func (c *cluster) runAndRecordWrites(passes int, every time.Duration) []string {
	c.t.Helper()
	before := c.userObjects()
	c.kube.ClearActions()
	c.vpas.ClearActions()
	for range passes {
		c.runOnce(every)
	}
	actions := append(c.kube.Actions(), c.vpas.Actions()...)
	require.Equal(c.t, before, c.userObjects())
	for _, a := range actions {
		if named, ok := a.(interface{ GetName() string }); ok && a.GetVerb() != "get" && a.GetResource().Resource == "verticalpodautoscalers" {
			require.Equal(c.t, "deployment-web", named.GetName())
		}
	}
	return testkit.Writes(actions...)
}

// GitOps tools must see no drift in policies, workloads and user VPAs.
func TestRunOnce_LeavesUserObjectsUnchanged(t *testing.T) {
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Annotations = map[string]string{applied: "{}"}
		p.Spec.VPAMetadata = &loadlinev1alpha1.VPAMetadata{Labels: map[string]string{"owner": "platform"}}
	})
	runInCluster(t, func(c *cluster) {
		require.Equal(t, []string{"create verticalpodautoscalers", "patch sizingpolicies/status status"}, c.runAndRecordWrites(3, time.Minute))
		require.Empty(t, c.runAndRecordWrites(30, time.Minute), "once")
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.VPAMetadata.Annotations = map[string]string{"why": "fleet"}
			s.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "app", MinAllowed: testkit.List("cpu=1")}}}
		})
		require.Equal(t, []string{"patch verticalpodautoscalers metadata.annotations.why", "patch verticalpodautoscalers spec.resourcePolicy.containerPolicies"}, c.runAndRecordWrites(3, time.Minute))
		require.NoError(t, c.vpas.Tracker().Add(newUserVPA("mine", "web")))
		require.Contains(t, c.runAndRecordWrites(3, time.Minute), "patch verticalpodautoscalers metadata.annotations.loadline.dev/unselected-since")
		require.Contains(t, c.runAndRecordWrites(3, 12*time.Hour), "delete verticalpodautoscalers")
		require.Empty(t, c.runAndRecordWrites(30, time.Minute))
		require.NoError(t, c.vpas.LoadlineV1alpha1().SizingPolicies().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		require.Empty(t, c.runAndRecordWrites(3, 12*time.Hour))
		require.Contains(t, c.vpasByName(), "mine")
	}, policy, deployment("web"))
}

// Metadata that the policy no longer sets also stays.
func TestGeneratedVPA_KeepsForeignMetadata(t *testing.T) {
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.VPAMetadata = &loadlinev1alpha1.VPAMetadata{Labels: map[string]string{"owner": "platform", "tier": "all"}, Annotations: map[string]string{"why": "fleet"}}
	})
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		theirs := func(change func(*vpav1.VerticalPodAutoscaler)) {
			v := c.vpasByName()["deployment-web"].DeepCopy()
			change(v)
			require.NoError(t, c.vpas.Tracker().Update(vpav1.SchemeGroupVersion.WithResource("verticalpodautoscalers"), v, v.Namespace))
		}
		theirs(func(v *vpav1.VerticalPodAutoscaler) { v.Labels["app.kubernetes.io/instance"] = "shop" })
		require.Empty(t, c.runAndRecordWrites(5, time.Minute))
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.VPAMetadata = nil })
		require.Empty(t, c.runAndRecordWrites(5, time.Minute), "what it asked for before stays")
		theirs(func(v *vpav1.VerticalPodAutoscaler) {
			v.Labels["owner"] = "shop"
			delete(v.Labels, "tier")
			delete(v.Annotations, "why")
			v.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "another", Operation: metav1.ManagedFieldsOperationApply}}
		})
		require.Empty(t, c.runAndRecordWrites(5, time.Minute))
		v := c.vpasByName()["deployment-web"]
		require.Equal(t, map[string]string{"loadline.dev/policy": "shop", "app.kubernetes.io/instance": "shop", "owner": "shop"}, v.Labels)
		require.Empty(t, v.Annotations)
	}, policy, deployment("web"))
}

func TestRunOnce_CreatesEachVPAOnce(t *testing.T) {
	var workloads []runtime.Object
	for i := range 500 {
		workloads = append(workloads, deployment(fmt.Sprint("web", i)))
	}
	runInCluster(t, func(c *cluster) {
		for range 12 { // 20 a second
			c.runOnce(interval)
		}
		made := len(c.vpasByName())
		creates := 0
		for _, a := range c.vpas.Actions() {
			if _, ok := a.(clienttesting.CreateAction); ok {
				creates++
			}
		}
		require.Equal(t, 500, made)
		require.Equal(t, made, creates)
		require.Empty(t, c.recordVPAWrites(30))
	}, append(workloads, shopPolicy())...)
}

func (c *cluster) recordVPAWrites(passes int) []string {
	c.vpas.ClearActions()
	for range passes {
		c.runOnce(interval)
	}
	return vpaWrites(c)
}

// The cached spec of a VPA in a full namespace differs from the stored spec.
func TestKeeper_DoesNotRewriteRefusedVPAs(t *testing.T) {
	policy := shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.VPAMetadata = &loadlinev1alpha1.VPAMetadata{Annotations: map[string]string{"why": "fleet"}, Labels: map[string]string{"owner": "platform"}}
		p.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "app", MinAllowed: testkit.List("cpu=1")}}}
	})
	runInCluster(t, func(c *cluster) {
		require.NotEmpty(t, c.recordVPAWrites(3))
		v := c.vpasByName()["deployment-web"].DeepCopy()
		v.Spec.ResourcePolicy, v.Annotations = nil, map[string]string{"": "", vpav1.UnreadableAnnotation: client.NamespaceFull}
		v.Labels = map[string]string{"": "", fleet.PolicyLabel: "shop"}
		_, err := c.vpas.AutoscalingV1().VerticalPodAutoscalers(v.Namespace).Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Empty(t, c.recordVPAWrites(3))
	}, policy, deployment("web"))
}
