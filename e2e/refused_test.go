package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// The status of the SizingPolicy contains the API server's message, the pods stay unchanged, and
// other namespaces are unaffected.
func TestSizingPolicy_ReportsRejectedGeneratedVPAs(t *testing.T) {
	parallelTest(t)
	w, other := newWorkload(t, "refused", 2), newWorkload(t, "refused-not", 2)
	before := startWorkload(t, w)
	startWorkload(t, other)
	const name = "no-vpas"
	policies := cluster.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := cluster.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{vpav1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"verticalpodautoscalers"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.metadata.namespace != %q", w.Namespace), Message: "VPAs are not for this team"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	eventually(t, "VPAs are refused", func() error {
		_, err := vpas.Create(t.Context(), &vpav1.VerticalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"},
			Spec:       vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: w.Name}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("they are not")
		}
		if !strings.Contains(err.Error(), "not for this team") {
			return err
		}
		return nil
	})

	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Namespaces = loadlinev1alpha1.NamespaceSelection{Names: []string{w.Namespace, other.Namespace}}
	})
	awaitGeneratedVPA(t, other.Namespace, "deployment-"+other.Name)
	eventually(t, "the policy says why there is no VPA", func() error {
		p, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), w.Namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(p.Status.Errors, func(s string) bool {
			return strings.Contains(s, w.Namespace) && strings.Contains(s, "VPAs are not for this team")
		}) {
			return fmt.Errorf("its errors are %q", p.Status.Errors)
		}
		return nil
	})
	forIterations(t, updater, 5, func() { requireSameSizes(t, w, before) })

	require.NoError(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
	require.NoError(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
	awaitGeneratedVPA(t, w.Namespace, "deployment-"+w.Name)
}
