package policies

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
)

// policyForWorkloads selects the Fleet web by default.
func policyForWorkloads(entries ...loadlinev1alpha1.WorkloadSelection) *loadlinev1alpha1.SizingPolicy {
	if len(entries) == 0 {
		entries = []loadlinev1alpha1.WorkloadSelection{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}}
	}
	return shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.Namespaces.Names, p.Spec.Workloads = []string{"*"}, entries
	})
}

func podOwnedBy(name, apiVersion, kind, owner string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, Controller: new(true)}}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

const fleetVPAName = "fleet-web-d310aed9b0"

func withFleet(t *testing.T, test func(c *cluster), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, objects...)
		c.fleets.Put("shop", "web", "uid-fleet", 2)
		c.start()
		test(c)
	})
}

func TestCustomKind_GetsGeneratedVPA(t *testing.T) {
	require.Equal(t, fleetVPAName, fleet.GeneratedVPAName("Fleet", "example.com", "web"))
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: podOwnedBy("", "example.com/v1", "Fleet", "web").OwnerReferences}}
	for name, objects := range map[string][]runtime.Object{
		"its own pods":         {podOwnedBy("web-a", "example.com/v1", "Fleet", "web")},
		"another version":      {podOwnedBy("web-a", "example.com/v1beta1", "Fleet", "web")},
		"pods of a ReplicaSet": {set, podOwnedBy("web-a", "apps/v1", "ReplicaSet", "web-1"), podOwnedBy("web-b", "apps/v1", "ReplicaSet", "web-1")},
	} {
		withFleet(t, func(c *cluster) {
			c.runOnce(0)
			require.Len(t, c.vpasByName(), 1, name)
			v := c.vpasByName()[fleetVPAName]
			require.NotNil(t, v, name)
			require.Equal(t, &autoscalingv1.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}, v.Spec.TargetRef)
			require.Equal(t, []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web", UID: "uid-fleet"}}, v.OwnerReferences)
			require.Equal(t, vpav1.UpdateModeOff, *v.Spec.UpdatePolicy.UpdateMode)
			c.runOnce(time.Minute)
			require.Equal(t, "Served", c.ready("shop").Reason)
			require.EqualValues(t, 1, c.policy("shop").Status.Counts.Selected)
			require.Equal(t, "example.com/v1", c.policy("shop").Status.Workloads[0].Ref.APIVersion)
			require.Empty(t, c.policy("shop").Status.Errors)
		}, append(objects, policyForWorkloads(), deployment("web"))...)
	}
}

// A workload without pods gets its VPA with the first pod.
func TestCustomKind_KeepsVPAWithoutPods(t *testing.T) {
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.Len(t, c.vpasByName(), 1)
		require.NoError(t, c.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-a", metav1.DeleteOptions{}))
		c.fleets.Put("shop", "web", "uid-fleet", 0)
		for range 4 {
			c.runOnce(12 * time.Hour)
			require.Contains(t, c.vpasByName(), fleetVPAName)
			require.NotContains(t, c.vpasByName()[fleetVPAName].Annotations, fleet.UnselectedAnnotation)
			require.EqualValues(t, 1, c.policy("shop").Status.Counts.Selected)
		}
		// The policy no longer selects it.
		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Workloads[0].Name = "other" })
		c.runOnce(time.Minute)
		require.Contains(t, c.vpasByName()[fleetVPAName].Annotations, fleet.UnselectedAnnotation)
		c.runOnce(25 * time.Hour)
		require.Empty(t, c.vpasByName())
	}, policyForWorkloads(), podOwnedBy("web-a", "example.com/v1", "Fleet", "web"))
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.Empty(t, c.vpasByName())
		require.Equal(t, "NothingSelected", c.ready("shop").Reason)
	}, policyForWorkloads())
}

// While the workload cannot be read, the VPA stays unchanged.
func TestCustomKind_MarksVPAOfDeletedWorkload(t *testing.T) {
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.NoError(t, c.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-a", metav1.DeleteOptions{}))
		c.fleets.Break(http.StatusForbidden)
		c.runWithRefresh(time.Hour)
		require.NotContains(t, c.vpasByName()[fleetVPAName].Annotations, fleet.UnselectedAnnotation)
		c.fleets.Break(0)
		c.fleets.Delete("shop", "web")
		c.runWithRefresh(time.Hour)
		require.Contains(t, c.vpasByName()[fleetVPAName].Annotations, fleet.UnselectedAnnotation)
		c.fleets.Put("shop", "web", "uid-again", 1)
		c.runWithRefresh(3 * time.Hour)
		require.NotContains(t, c.vpasByName()[fleetVPAName].Annotations, fleet.UnselectedAnnotation)
		require.EqualValues(t, "uid-again", c.vpasByName()[fleetVPAName].OwnerReferences[1].UID, "as after an orphaning delete")
	}, policyForWorkloads(), podOwnedBy("web-a", "example.com/v1", "Fleet", "web"))
}

// Any user may create VPAs that look generated, for workloads that do not exist.
func TestCustomKind_ReadsUnlistedInBackground(t *testing.T) {
	objects := []runtime.Object{shopPolicy(), deployment("web")}
	for i := range 100 {
		name := fmt.Sprint("nothing-", i)
		objects = append(objects, &vpav1.VerticalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fleet.GeneratedVPAName("Fleet", "example.com", name), Labels: map[string]string{fleet.PolicyLabel: "shop"}},
			Spec: vpav1.VerticalPodAutoscalerSpec{
				TargetRef:    &autoscalingv1.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: name},
				UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)},
			},
		})
	}
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.Zero(t, c.fleets.Asked())
		require.Contains(t, c.vpasByName(), "deployment-web")
		c.runWithRefresh(time.Minute)
		require.Positive(t, c.fleets.Asked(), "they are read in turns")
	}, objects...)
}

// The garbage collector deletes a VPA with a stale owner. Replaced custom objects are noticed late.
func TestCustomKind_ReplacedWorkloadOwnsVPA(t *testing.T) {
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.NoError(t, c.vpas.AutoscalingV1().VerticalPodAutoscalers("shop").Delete(t.Context(), fleetVPAName, metav1.DeleteOptions{})) // as the garbage collector does
		c.fleets.Put("shop", "web", "uid-again", 1)
		c.runOnce(time.Second)
		require.Empty(t, c.vpasByName(), "it would have the former owner")
		c.runOnce(time.Second)
		require.EqualValues(t, "uid-again", c.vpasByName()[fleetVPAName].OwnerReferences[0].UID)
	}, policyForWorkloads(), podOwnedBy("web-a", "example.com/v1", "Fleet", "web"))
}

func TestCustomKind_ReportsSelectionErrors(t *testing.T) {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: podOwnedBy("", "example.com/v1", "Fleet", "web").OwnerReferences}}
	for _, tc := range []struct {
		name  string
		entry loadlinev1alpha1.WorkloadSelection
		owner *corev1.Pod
		want  string
	}{
		{
			name: "missing kind", entry: loadlinev1alpha1.WorkloadSelection{APIVersion: "example.com/v1", Kind: "Flet", Name: "web"},
			owner: podOwnedBy("web-a", "example.com/v1", "Flet", "web"),
			want: `spec.workloads: Flet.example.com cannot be selected: find the resource of kind Flet.example.com: ` +
				`no matches for kind "Flet" in group "example.com": name a kind that is installed and has a scale subresource`,
		},
		{
			name:  "kind without a scale subresource",
			entry: loadlinev1alpha1.WorkloadSelection{APIVersion: "example.com/v1", Kind: "Crate", Name: "web"},
			owner: podOwnedBy("web-a", "example.com/v1", "Crate", "web"),
			want: "spec.workloads: Crate.example.com cannot be selected: kind Crate.example.com: the kind has no scale subresource: " +
				"name a kind that is installed and has a scale subresource",
		},
		{
			name: "missing object", entry: loadlinev1alpha1.WorkloadSelection{APIVersion: "example.com/v1", Kind: "Fleet", Name: "other"},
			owner: podOwnedBy("web-a", "example.com/v1", "Fleet", "other"),
			want:  "Fleet.example.com other does not exist in namespace shop: not a workload that a policy can select",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withFleet(t, func(c *cluster) {
				c.runOnce(0)
				require.Empty(t, c.vpasByName())
				require.Equal(t, []string{tc.want}, c.policy("shop").Status.Errors)
				require.Equal(t, "NothingSelected", c.ready("shop").Reason)
			}, policyForWorkloads(tc.entry), tc.owner, set)
		})
	}
	withFleet(t, func(c *cluster) {
		c.fleets.Break(http.StatusForbidden)
		c.runOnce(0)
		require.Empty(t, c.vpasByName())
		require.Len(t, c.policy("shop").Status.Errors, 1)
		require.Contains(t, c.policy("shop").Status.Errors[0], "read the scale subresource of Fleet.example.com web in namespace shop: ")
	}, policyForWorkloads(), podOwnedBy("web-a", "example.com/v1", "Fleet", "web"))
}

func TestCustomKind_CountsUserVPA(t *testing.T) {
	person := newUserVPA("mine", "web")
	person.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.Len(t, c.vpasByName(), 1, "only that of the person")
		require.EqualValues(t, 1, c.policy("shop").Status.Counts.Selected)
	}, policyForWorkloads(), person)
}

// The pod template of a custom kind is unknown, so annotations are read from its pods.
func TestCustomKind_ReadsPodAnnotations(t *testing.T) {
	out := podOwnedBy("web-b", "example.com/v1", "Fleet", "web")
	out.Annotations = map[string]string{fleet.SkipAnnotation: "true"}
	other := podOwnedBy("other", "example.com/v1", "Fleet", "other")
	other.Annotations = map[string]string{fleet.ModeAnnotation: "Observe"}
	withFleet(t, func(c *cluster) {
		c.runOnce(0)
		require.Empty(t, c.vpasByName())
		require.EqualValues(t, 1, c.policy("shop").Status.Counts.Refused)
		require.NoError(t, c.kube.CoreV1().Pods("shop").Delete(t.Context(), "web-b", metav1.DeleteOptions{}))
		c.runOnce(time.Minute)
		require.Len(t, c.vpasByName(), 1)
		require.EqualValues(t, "Recommend", c.policy("shop").Status.Workloads[0].Mode)
	}, policyForWorkloads(), podOwnedBy("web-a", "example.com/v1", "Fleet", "web"), out, other)
}
