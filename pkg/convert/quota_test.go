package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/testkit"
)

func TestQuota_ReadsAllResourceNames(t *testing.T) {
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{
		Hard: testkit.List("cpu=1 requests.cpu=900m limits.memory=10Ki pods=5"),
		Used: testkit.List("cpu=500m requests.cpu=500m limits.memory=12Ki"),
	}}
	want := disruption.Quota{
		Requests: resources.List{}.With(resources.CPU, 400),
		Limits:   resources.List{}.With(resources.Memory, -2048),
	}
	require.Equal(t, want, Quota(q), "the smaller of two counts; one can be exceeded")
	q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
	q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpNotIn, Values: []string{"low"}}}}
	want.Scopes = []disruption.ScopeRule{{Scope: disruption.ScopeNotTerminating, Operator: disruption.ScopeExists}, {Scope: disruption.ScopePriorityClass, Operator: disruption.ScopeNotIn, Values: []string{"low"}}}
	require.Equal(t, want, Quota(q))

	q = &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: testkit.List("cpu=100500u")}}
	require.Equal(t, resources.Amount(100), Quota(q).Requests.Value(resources.CPU), "a bound is rounded down")
}

func TestTraits_ReadPodSpec(t *testing.T) {
	require.Equal(t, disruption.PodTraits{}, Traits(&corev1.Pod{}))
	require.Equal(t, disruption.PodTraits{Terminating: true, Class: "high"}, Traits(&corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: new(int64), PriorityClassName: "high"}}))
	here := corev1.PodAffinityTerm{TopologyKey: "zone"}
	named := corev1.PodAffinityTerm{Namespaces: []string{"other"}}
	selected := corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}
	for _, tc := range []struct {
		name     string
		affinity corev1.Affinity
		want     bool
	}{
		{name: "node affinity", affinity: corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}},
		{
			name: "affinity in the own namespace",
			affinity: corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{here},
			}},
		},
		{
			name: "required affinity with another namespace",
			affinity: corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{here, named},
			}},
			want: true,
		},
		{
			name: "preferred affinity with selected namespaces",
			affinity: corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: selected}},
			}},
			want: true,
		},
		{
			name: "required anti-affinity with selected namespaces",
			affinity: corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{selected},
			}},
			want: true,
		},
		{
			name: "preferred anti-affinity with another namespace",
			affinity: corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: named}},
			}},
			want: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Traits(&corev1.Pod{Spec: corev1.PodSpec{Affinity: &tc.affinity}}).CrossNamespace)
		})
	}
}
