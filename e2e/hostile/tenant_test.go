package hostile

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
	vpaclient "loadline.dev/loadline/pkg/generated/clientset/versioned"
)

const tenantNamespace = "tenant"

// tenant has the role edit in one namespace, and may edit VPAs there.
type tenant struct {
	kube kubernetes.Interface
	vpa  vpaclient.Interface
}

func newTenant(t *testing.T) *tenant {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, cluster.CreateNamespace(ctx, tenantNamespace))
	meta := metav1.ObjectMeta{Namespace: tenantNamespace, Name: "tenant"}
	_, err := cluster.Kube.CoreV1().ServiceAccounts(tenantNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = cluster.Kube.RbacV1().Roles(tenantNamespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "vpas"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"autoscaling.k8s.io"}, Resources: []string{"verticalpodautoscalers"}, Verbs: []string{"*"},
	}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for name, role := range map[string]rbacv1.RoleRef{
		"edit": {APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		"vpas": {APIGroup: rbacv1.GroupName, Kind: "Role", Name: "vpas"},
	} {
		_, err = cluster.Kube.RbacV1().RoleBindings(tenantNamespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantNamespace, Name: meta.Name}}, RoleRef: role}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	hours := int64(4 * 3600)
	token, err := cluster.Kube.CoreV1().ServiceAccounts(tenantNamespace).CreateToken(ctx, meta.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(cluster.Config)
	config.BearerToken, config.QPS, config.Burst = token.Status.Token, 100, 200
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	vpas, err := vpaclient.NewForConfig(config)
	require.NoError(t, err)
	limitSeats(t)
	return &tenant{kube, vpas}
}

// limitSeats limits the tenant to two concurrent API requests, as many as the test machine can
// serve. The API server is not under test.
func limitSeats(t *testing.T) {
	t.Helper()
	flows := cluster.Kube.FlowcontrolV1()
	// Shares are relative. The second level takes most of them, so that one share equals two seats.
	for name, shares := range map[string]int32{"tenant": 1, "unused": 1300} {
		_, err := flows.PriorityLevelConfigurations().Create(t.Context(), &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares, BorrowingLimitPercent: new(int32(0)), LimitResponse: flowcontrolv1.LimitResponse{
					Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 1000},
				},
			}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := flows.FlowSchemas().Create(t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "tenant"}, MatchingPrecedence: 100,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: tenantNamespace, Name: "tenant"}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true,
				}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func workload(name string, replicas int32, containers ...string) harness.Workload {
	w := harness.Workload{Namespace: tenantNamespace, Name: name, Replicas: replicas}
	for _, c := range containers {
		w.Containers = append(w.Containers, harness.Container{Name: c, CPU: "1m", Memory: "1Mi"})
	}
	return w
}

// deploy creates a Deployment. A nil selector selects the labels of its pods.
func (n *tenant) deploy(ctx context.Context, w harness.Workload, selector *metav1.LabelSelector) error {
	if selector == nil {
		selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}
	}
	_, err := n.kube.AppsV1().Deployments(w.Namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: appsv1.DeploymentSpec{Replicas: &w.Replicas, Selector: selector, Template: w.Template()},
	}, metav1.CreateOptions{})
	return err
}

func (n *tenant) autoscale(ctx context.Context, name, target string, changes ...func(*vpav1.VerticalPodAutoscaler)) error {
	mode := vpav1.UpdateModeInPlaceOrRecreate
	vpa := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &mode},
		},
	}
	for _, change := range changes {
		change(vpa)
	}
	_, err := n.vpa.AutoscalingV1().VerticalPodAutoscalers(tenantNamespace).Create(ctx, vpa, metav1.CreateOptions{})
	return err
}

func (n *tenant) autoscaled(ctx context.Context, w harness.Workload, changes ...func(*vpav1.VerticalPodAutoscaler)) error {
	if err := n.deploy(ctx, w, nil); err != nil {
		return err
	}
	return n.autoscale(ctx, w.Name, w.Name, changes...)
}

// each calls do with count numbers from start on, and stops at the first error.
func each(ctx context.Context, start, count int, do func(context.Context, int) error) error {
	return harness.Each(ctx, count, func(ctx context.Context, i int) error { return do(ctx, start+i) })
}

func numbered(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
