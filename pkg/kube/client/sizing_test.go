package client

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

// Whoever runs a program for one namespace has the policies of the cluster all the same.
func TestPoliciesAreReadWhateverTheNamespaceAndRecordsOfItOnly(t *testing.T) {
	record := func(namespace string) *loadlinev1alpha1.SizingRecord {
		return &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Name: "deployment-web", Namespace: namespace}}
	}
	policy := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	factory := VPAFactory(fake.NewSimpleClientset(policy, record("shop"), record("other")), "shop")
	policies, records := factory.Loadline().V1alpha1().SizingPolicies(), factory.Loadline().V1alpha1().SizingRecords()
	synced := map[string]cache.InformerSynced{"sizingpolicies": policies.Informer().HasSynced, "sizingrecords": records.Informer().HasSynced}
	factory.Start(t.Context().Done())
	require.NoError(t, Sync(t.Context(), synced))
	got, err := policies.Lister().Get("p")
	require.NoError(t, err)
	require.Empty(t, got.ManagedFields)
	all, err := records.Lister().List(labels.Everything())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "shop", all[0].Namespace)
}
