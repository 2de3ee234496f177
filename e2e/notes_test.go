package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// editor returns a client of a user with the role edit in one namespace.
func editor(t *testing.T, namespace string) *kubernetes.Clientset {
	t.Helper()
	_, err := cluster.Kube.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "editor-" + namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate.UserName = "editor-" + namespace
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	eventually(t, "the API server knows what the editor may do", func() error {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"}},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("it may not create pods")
		}
		return err
	})
	return client
}

// With deploy/admission-policy only the updater may set the annotations from which it restores
// resources, and the updater continues to work.
func TestAdmissionPolicy_ProtectsUpdaterAnnotations(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "notes", 2)
	before := startWorkload(t, w)
	tenant := editor(t, w.Namespace)
	annotate := func(pod, annotations string) error {
		_, err := tenant.CoreV1().Pods(w.Namespace).Patch(t.Context(), pod, types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`), metav1.PatchOptions{})
		return err
	}

	// The webhook removes these annotations from new pods.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{"loadline.dev/resized-at": "now", "loadline.dev/original": "{}", "loadline.dev/shared": "cpu at 2026-01-02T12:00:00Z after 0", "team": "shop"}}, Spec: w.Template().Spec}
	created, err := tenant.CoreV1().Pods(w.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "shop", created.Annotations["team"])
	require.NotContains(t, created.Annotations, "loadline.dev/resized-at")
	require.NotContains(t, created.Annotations, "loadline.dev/original")
	require.NotContains(t, created.Annotations, "loadline.dev/shared")

	boost := "vpaCpuStartupBoost/" + w.Containers[0].Name // allowed on new pods, because the webhook sets it
	boosted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "boosted", Annotations: map[string]string{boost: `{"requests":{},"limits":{}}`}}, Spec: w.Template().Spec}
	manifest := filepath.Join(cluster.Root, "deploy", "admission-policy")
	require.NoError(t, cluster.Kubectl(t.Context(), "apply", "--validate=strict", "-k", manifest))
	tries := 0
	for _, name := range []string{"loadline.dev/resized-at", "loadline.dev/original", "loadline.dev/shared", boost} {
		eventually(t, "a note of somebody else is refused", func() error {
			tries++ // patches without a change are allowed
			err := annotate(before[0].Name, fmt.Sprintf(`{%q:"%d"}`, name, tries))
			if apierrors.IsForbidden(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is not"))
		})
	}
	require.NoError(t, annotate(before[0].Name, `{"loadline.dev/resized-at":null,"loadline.dev/original":null,"loadline.dev/shared":null}`), "to take one off is allowed")
	require.ErrorContains(t, annotate(before[0].Name, `{"loadline.dev/original":"{}"}`),
		"only system:serviceaccount:kube-system:vpa-updater may set or change the annotation loadline.dev/original, which says what a pod had before it was resized: leave it out")
	require.NoError(t, annotate(before[0].Name, `{"team":"shop"}`))
	created, err = tenant.CoreV1().Pods(w.Namespace).Create(t.Context(), boosted, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Contains(t, created.Annotations, boost)
	require.NoError(t, annotate("boosted", `{"team":"shop"}`))
	require.NoError(t, annotate("boosted", fmt.Sprintf(`{%q:null}`, boost)), "to take it off is allowed")
	require.ErrorContains(t, annotate("boosted", fmt.Sprintf(`{%q:"{}"}`, boost)), "may set or change the annotation "+boost)

	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation)
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitPodsWithCPU(t, w, "60m", 1)
	changed := annotatedPods(t, w)
	require.Len(t, changed, 1, "the updater may")
	require.NoError(t, annotate(changed[0], `{"team":"pay"}`), "what stays is no matter")
	require.True(t, apierrors.IsForbidden(annotate(changed[0], `{"loadline.dev/resized-at":"2026-01-02T12:00:00Z"}`)))
	eventually(t, "the updater takes its note off", func() error {
		if slices.Contains(annotatedPods(t, w), changed[0]) {
			return errors.New("it is there")
		}
		return nil
	})
	awaitRecord(t, w, "a change that did well", func(s *loadlinev1alpha1.SizingRecordStatus) bool { return len(s.Kept) > 0 })
}
