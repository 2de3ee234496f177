package client

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

// Policies are cluster-scoped, so a program that is restricted to one namespace reads them as well.
func TestVPAFactory_ReadsPoliciesAndRecordsOfNamespace(t *testing.T) {
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

// Any user may write annotations of 256 KiB on a workload without pods, which each program would
// cache.
func TestTrimWorkload_TruncatesPolicyAnnotations(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Annotations = map[string]string{fleet.ModeAnnotation: strings.Repeat("x", 120<<10), fleet.SkipAnnotation: "true", "else": "x"}
	d.Spec.Template.Annotations = d.Annotations
	object, err := Trim(d)
	require.NoError(t, err)
	kept := object.(*appsv1.Deployment)
	want := map[string]string{fleet.ModeAnnotation: strings.Repeat("x", convert.AnnotationLimit(fleet.ModeAnnotation)+1), fleet.SkipAnnotation: "true"}
	require.Equal(t, want, kept.Annotations)
	require.Equal(t, want, kept.Spec.Template.Annotations)
}

// A starting API server may forbid access for a short time.
func TestOptionalSync_RetriesBeforeGivingUp(t *testing.T) {
	for refusals, want := range map[int]bool{2: true, 100: false} {
		synctest.Test(t, func(t *testing.T) {
			own, asked := fake.NewSimpleClientset(), 0
			own.PrependReactor("list", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return asked <= refusals, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "sizingpolicies"}, "", nil)
			})
			factory := VPAFactory(own, "")
			policies := factory.Loadline().V1alpha1().SizingPolicies().Informer()
			synced, err := OptionalSync(policies, "There are none")
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			factory.Start(ctx.Done())
			defer func() { stop(); factory.Shutdown() }()
			require.NoError(t, Sync(ctx, map[string]cache.InformerSynced{"sizingpolicies": synced}))
			require.Equal(t, want, policies.HasSynced())
			if !want {
				require.Equal(t, 4, asked)
			}
		})
	}
}
