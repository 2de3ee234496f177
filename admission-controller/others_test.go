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
	for _, tc := range []struct {
		name        string
		recorded    types.UID // UID in the record
		annotations map[string]string
		want        string
	}{
		{name: "full rollout", recorded: "uid-fleet", want: "2"},
		{name: "record of a former workload", recorded: "uid-former", want: ""},
		{name: "skipped by its template", recorded: "uid-fleet", annotations: map[string]string{fleet.SkipAnnotation: "true"}, want: ""},
		{name: "mode of its template", recorded: "uid-fleet", annotations: map[string]string{fleet.ModeAnnotation: "Recommend"}, want: ""},
		{name: "not skipped by its template", recorded: "uid-fleet", annotations: map[string]string{fleet.SkipAnnotation: "false"},
			want: "2"},
		{name: "skip annotation of another program", recorded: "uid-fleet", annotations: map[string]string{"attune.io/skip": "true"},
			want: "2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var fleets testkit.Fleets
			fleets.Put(testkit.Namespace, "web", "uid-fleet", 2)
			owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web", Controller: new(true)}
			set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: testkit.Namespace, Name: "web-1", OwnerReferences: []metav1.OwnerReference{owner},
			}}
			kube := fake.NewClientset(set, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testkit.Namespace}})
			policy := sizingPolicy(canary, func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.Workloads = []loadlinev1alpha1.WorkloadSelection{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}}
			})
			made := generatedByRecommender()
			made.Name = fleet.GeneratedVPAName("Fleet", "example.com", "web")
			made.Spec.TargetRef.APIVersion, made.Spec.TargetRef.Kind = "example.com/v1", "Fleet"
			record := recordOf(policy, inPhase(full), func(r *loadlinev1alpha1.SizingRecord) {
				r.Name, r.OwnerReferences = made.Name, []metav1.OwnerReference{{Kind: "Fleet", Name: "web", UID: tc.recorded}}
			})
			clients := &client.Clients{Kube: fleets.In(kube), VPA: vpafake.NewSimpleClientset(made, policy, record)}
			filled, err := fillCaches(t.Context(), Default(), clients)
			require.NoError(t, err)
			go func() { _ = filled.refresh(t.Context()) }()
			pod := testkit.Pod("p", testkit.Container("c", "cpu=100m", ""))
			pod.Annotations = tc.annotations
			answer := filled.handlers[0].Answer(t.Context(), podRequest(t, pod))
			require.NoError(t, answer.Err)
			require.Equal(t, tc.want, cpuOf(answer))
		})
	}
}

func TestForeignAnnotations_SkipNewPods(t *testing.T) {
	for _, key := range fleet.ForeignAnnotations() {
		for _, tc := range []struct {
			name    string
			foreign bool
			want    string // CPU request, empty for none
		}{
			{name: "ignored", want: "2"},
			{name: "respected", foreign: true},
		} {
			t.Run(key+" "+tc.name, func(t *testing.T) {
				config := Default()
				config.Policies.ForeignAnnotations = tc.foreign
				filled, err := fillCaches(t.Context(), config, &client.Clients{
					Kube: clusterWithWeb(map[string]string{key: "true"}),
					VPA:  vpafake.NewSimpleClientset(generatedByRecommender(), sizingPolicy(auto)),
				})
				require.NoError(t, err)
				answer, _ := created(t, filled.handlers[0])
				require.Equal(t, tc.want, cpuOf(answer))
			})
		}
	}
}
