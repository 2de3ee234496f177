package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/convert"
	vpaclient "loadline.dev/loadline/pkg/generated/clientset/versioned"
)

const tenantNamespace = "tenant"

// tenant has the role edit in one namespace, and may edit its VPAs.
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
	config.BearerToken, config.QPS, config.Burst = token.Status.Token, 50, 100
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	vpas, err := vpaclient.NewForConfig(config)
	require.NoError(t, err)
	return &tenant{kube, vpas}
}

// attack is one of the attacks of a tenant or a pod: it is repeated until the time is over.
type attack struct {
	name string
	once func(ctx context.Context, round int) error
	done atomic.Int64 // repetitions without an error
	err  atomic.Value // of the last repetition with an error
}

func (a *attack) run(ctx context.Context) {
	for round := 0; ctx.Err() == nil; round++ {
		if err := a.once(ctx, round); err == nil {
			a.done.Add(1)
		} else if ctx.Err() == nil {
			a.err.Store(err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (n *tenant) attacks() []*attack {
	return []*attack{
		{name: "workloads with large selectors", once: n.largeSelectors},
		{name: "disruption budgets with large selectors", once: n.largeBudgets},
		{name: "container names", once: n.containerNames},
		{name: "VPAs of one target", once: n.manyVPAs},
		{name: "forged annotations", once: n.forgedAnnotations},
		{name: "recipe with a floor", once: n.floor},
		{name: "unfinished headers", once: func(ctx context.Context, _ int) error { return flood(ctx, webhook, 1000, 60<<10, true) }},
		{name: "large headers", once: func(ctx context.Context, _ int) error {
			for _, d := range programs {
				if err := flood(ctx, d.Address, 40, 1<<20, false); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// requirements returns a selector of about a megabyte that selects the pods of an app.
func requirements(app string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	values := make([]string, 100)
	for i := range 150 {
		for k := range values {
			values[k] = fmt.Sprintf("%03d-%03d-%s", i, k, strings.Repeat("x", 50))
		}
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprintf("key-%d", i), Operator: metav1.LabelSelectorOpNotIn, Values: append([]string(nil), values...)})
	}
	return s
}

func (n *tenant) largeSelectors(ctx context.Context, round int) error {
	if round >= 106 {
		return nil
	}
	w := harness.Workload{Namespace: tenantNamespace, Name: fmt.Sprintf("large-%d", round), Containers: []harness.Container{{Name: "app"}}}
	_, err := n.kube.AppsV1().Deployments(w.Namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: requirements(w.Name), Template: w.Template()},
	}, metav1.CreateOptions{})
	if err == nil {
		err = n.createVPA(ctx, w.Name, w.Name, nil)
	}
	return err
}

func (n *tenant) largeBudgets(ctx context.Context, round int) error {
	if round >= 40 {
		return nil
	}
	one := intstr.FromInt32(1)
	_, err := n.kube.PolicyV1().PodDisruptionBudgets(tenantNamespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", round)}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: requirements("names")},
	}, metav1.CreateOptions{})
	return err
}

// containerNames changes the container names of a workload again and again.
func (n *tenant) containerNames(ctx context.Context, round int) error {
	w := harness.Workload{Namespace: tenantNamespace, Name: "names", Replicas: 3}
	usage := map[string]string{}
	for i := range 60 {
		name := fmt.Sprintf("c-%d-%d", round, i)
		w.Containers = append(w.Containers, harness.Container{Name: name, CPU: "1m", Memory: "1Mi"})
		maps.Copy(usage, harness.Uses(name, "5m", "20Mi"))
	}
	w.Annotations = usage
	deployments := n.kube.AppsV1().Deployments(tenantNamespace)
	if round == 0 {
		_, err := deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: w.Name},
			Spec: appsv1.DeploymentSpec{Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}, Template: w.Template()}}, metav1.CreateOptions{})
		if err == nil {
			err = n.createVPA(ctx, w.Name, w.Name, nil)
		}
		return err
	}
	current, err := deployments.Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	current.Spec.Template = w.Template()
	if _, err = deployments.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		return err
	}
	select { // the usage of these names must be seen
	case <-ctx.Done():
	case <-time.After(2 * iteration):
	}
	return nil
}

func (n *tenant) createVPA(ctx context.Context, name, target string, annotations map[string]string) error {
	mode := vpav1.UpdateModeInPlaceOrRecreate
	_, err := n.vpa.AutoscalingV1().VerticalPodAutoscalers(tenantNamespace).Create(ctx, &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: &mode},
		},
	}, metav1.CreateOptions{})
	return err
}

func (n *tenant) manyVPAs(ctx context.Context, round int) error {
	if round >= 100 {
		return nil
	}
	return n.createVPA(ctx, fmt.Sprintf("names-%d", round), "names", nil)
}

// forgedAnnotations writes records of changes that never happened on pods of the tenant.
func (n *tenant) forgedAnnotations(ctx context.Context, round int) error {
	w := harness.Workload{Namespace: tenantNamespace, Name: "forged", Replicas: 200, Containers: []harness.Container{{Name: "app", CPU: "1m", Memory: "1Mi"}}}
	if round == 0 {
		_, err := n.kube.AppsV1().Deployments(tenantNamespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: w.Name},
			Spec: appsv1.DeploymentSpec{Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}, Template: w.Template()}}, metav1.CreateOptions{})
		if err == nil {
			err = n.createVPA(ctx, w.Name, w.Name, nil)
		}
		return err
	}
	pods, err := n.kube.CoreV1().Pods(tenantNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`, convert.ResizedAtAnnotation, time.Now().UTC().Format(time.RFC3339), convert.OriginalAnnotation, "{}")
	for i := range pods.Items {
		if _, err := n.kube.CoreV1().Pods(tenantNamespace).Patch(ctx, pods.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// floor asks for two cores for idle pods.
func (n *tenant) floor(ctx context.Context, round int) error {
	if round > 0 {
		return nil
	}
	w := harness.Workload{Namespace: tenantNamespace, Name: "floor", Replicas: 10, Containers: []harness.Container{{Name: "app", CPU: "1m", Memory: "1Mi"}}, Annotations: harness.Uses("app", "1m", "1Mi")}
	_, err := n.kube.AppsV1().Deployments(tenantNamespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: w.Name},
		Spec: appsv1.DeploymentSpec{Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}, Template: w.Template()}}, metav1.CreateOptions{})
	if err == nil {
		err = n.createVPA(ctx, w.Name, w.Name, map[string]string{"loadline.dev/recipe": "cruisekube:pod-min-cpu=2000"})
	}
	return err
}

// flood opens connections with an unfinished header of some bytes, holds them for five seconds and closes them.
func flood(ctx context.Context, address string, connections, size int, encrypted bool) error {
	var header bytes.Buffer
	header.WriteString("GET /probe HTTP/1.1\r\nHost: a\r\n")
	for i := 0; header.Len() < size; i++ {
		fmt.Fprintf(&header, "%x:\r\n", i)
	}
	var all []net.Conn
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for i := range connections {
		// Pods have different addresses.
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%50))}, Timeout: 5 * time.Second}
		var c net.Conn
		var err error
		if encrypted {
			c, err = (&tls.Dialer{NetDialer: &d, Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
		} else {
			c, err = d.DialContext(ctx, "tcp", address)
		}
		if err != nil {
			continue // refused, as it should be
		}
		all = append(all, c)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(header.Bytes())
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
	return nil
}
