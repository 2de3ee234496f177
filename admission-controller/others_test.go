package admission

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// The policy selects the Fleet web by name. A ReplicaSet of the Fleet creates the pods, and the
// canary is complete.
func TestPodHandler_AppliesPolicyToCustomWorkloads(t *testing.T) {
	for name, c := range map[string]struct {
		recorded    types.UID // UID in the record
		annotations map[string]string
		want        string
	}{
		"sized":                 {"uid-fleet", nil, "2"},
		"record of another":     {"uid-former", nil, ""},
		"out by its template":   {"uid-fleet", map[string]string{fleet.SkipAnnotation: "true"}, ""},
		"mode of its template":  {"uid-fleet", map[string]string{fleet.ModeAnnotation: "Recommend"}, ""},
		"not out":               {"uid-fleet", map[string]string{fleet.SkipAnnotation: "false"}, "2"},
		"foreign, not asked to": {"uid-fleet", map[string]string{"attune.io/skip": "true"}, "2"},
	} {
		var fleets testkit.Fleets
		fleets.Put(testkit.Namespace, "web", "uid-fleet", 2)
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: "web-1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web", Controller: new(true)}}}}
		kube := fake.NewClientset(set, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testkit.Namespace}})
		policy := sizingPolicy(canary, func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Workloads = []loadlinev1alpha1.WorkloadSelection{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}}
		})
		made := generatedByRecommender()
		made.Name, made.Spec.TargetRef.APIVersion, made.Spec.TargetRef.Kind = fleet.GeneratedVPAName("Fleet", "example.com", "web"), "example.com/v1", "Fleet"
		record := recordOf(policy, inPhase(full), func(r *loadlinev1alpha1.SizingRecord) {
			r.Name, r.OwnerReferences = made.Name, []metav1.OwnerReference{{Kind: "Fleet", Name: "web", UID: c.recorded}}
		})
		filled, err := fillCaches(t.Context(), Default(), &client.Clients{Kube: fleets.In(kube), VPA: vpafake.NewSimpleClientset(made, policy, record)})
		require.NoError(t, err)
		go func() { _ = filled.refresh(t.Context()) }()
		pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
		pod.Annotations = c.annotations
		answer := filled.handlers[0].Answer(t.Context(), podRequest(t, pod))
		require.NoError(t, answer.Err)
		require.Equal(t, c.want, cpuOf(answer), name)
	}
}

func TestForeignAnnotations_SkipNewPods(t *testing.T) {
	for _, key := range fleet.ForeignAnnotations() {
		for want, foreign := range map[string]bool{"2": false, "": true} {
			config := Default()
			config.Policies.ForeignAnnotations = foreign
			filled, err := fillCaches(t.Context(), config, &client.Clients{Kube: clusterWithWeb(map[string]string{key: "true"}), VPA: vpafake.NewSimpleClientset(generatedByRecommender(), sizingPolicy(auto))})
			require.NoError(t, err)
			answer, _ := created(t, filled.handlers[0])
			require.Equal(t, want, cpuOf(answer), key)
		}
	}
}
