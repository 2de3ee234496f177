package doctor

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{key: key}
	a.pem = a.issue(t, plugintest.Now().Add(365*24*time.Hour))
	block, _ := pem.Decode(a.pem)
	a.cert, err = x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return a
}

// issue returns a certificate in PEM. The first one is the self-signed CA.
func (a *authority) issue(t *testing.T, until time.Time) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(until.Unix()), Subject: pkix.Name{CommonName: "vpa"}, NotBefore: plugintest.Now().Add(-365 * 24 * time.Hour), NotAfter: until,
		IsCA: a.cert == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	parent, key := a.cert, a.key
	if parent == nil {
		parent = template
	} else {
		var err error
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template.Subject.CommonName, template.KeyUsage = "vpa-webhook", x509.KeyUsageDigitalSignature
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

type testCluster struct {
	t         *testing.T
	checks    []check
	authority *authority
	resources []*metav1.APIResourceList
	hook      *admissionv1.MutatingWebhookConfiguration
	secret    *corev1.Secret
	pod       *corev1.Pod // of the admission controller
	leases    []*coordinationv1.Lease
	node      *corev1.Node
	vpa       *vpav1.VerticalPodAutoscaler
	more, own []runtime.Object
	forbidden []string // resources that the programs may not access, as RESOURCE or RESOURCE.GROUP
	moves     bool     // checks migrate an existing installation
	accounts  []string // service accounts with all other permissions, nil for all accounts

	deployments []*appsv1.Deployment // of recommender, updater and admission controller
	hidden      bool                 // Deployments cannot be listed
	discovery   error
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	list := func(group string, names ...string) *metav1.APIResourceList {
		l := &metav1.APIResourceList{GroupVersion: group}
		for _, name := range names {
			l.APIResources = append(l.APIResources, metav1.APIResource{Name: name})
		}
		return l
	}
	w := &testCluster{t: t, checks: doctorChecks, authority: newAuthority(t), deployments: plugintest.ManifestDeployments(t), accounts: []string{"vpa-recommender", "vpa-updater", "vpa-admission-controller"}, resources: []*metav1.APIResourceList{
		list("v1", "pods", "pods/resize"), list("metrics.k8s.io/v1beta1", "pods"),
		list("autoscaling.k8s.io/v1", "verticalpodautoscalers", "verticalpodautoscalercheckpoints"), list("loadline.dev/v1alpha1", "sizingpolicies", "sizingrecords"),
	}}
	w.hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vpa-webhook-config"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "vpa.k8s.io",
		ClientConfig: admissionv1.WebhookClientConfig{CABundle: w.authority.pem, Service: &admissionv1.ServiceReference{Namespace: "kube-system", Name: "vpa-webhook"}}}}}
	w.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-tls-certs"}, Data: map[string][]byte{"serverCert.pem": w.authority.issue(t, plugintest.Now().Add(90*24*time.Hour))}}
	w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "webhook", Labels: map[string]string{"app": "vpa-admission-controller"}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for _, name := range []string{"vpa-recommender-lease", "vpa-updater", "vpa-admission-controller"} {
		w.leases = append(w.leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a_b"), RenewTime: new(metav1.NewMicroTime(plugintest.Now())), LeaseDurationSeconds: new(int32(15))}})
	}
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: plugintest.Resources("8", "32Gi"), NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.35.0"}}}
	w.vpa = &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(plugintest.Before(600))}, Spec: vpav1.VerticalPodAutoscalerSpec{
		TargetRef:      &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: plugintest.Resources("100m", "100Mi"), MaxAllowed: plugintest.Resources("4", "8Gi")}}},
	}}
	w.vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}}
	w.vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{ContainerName: "a", Target: plugintest.Resources("1", "1Gi")}}}
	w.more = []runtime.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-webhook"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "vpa-admission-controller"}}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"}}},
	}
	w.own = []runtime.Object{&vpav1.VerticalPodAutoscalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-a"}, Spec: vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: "web"},
		Status: vpav1.VerticalPodAutoscalerCheckpointStatus{LastUpdateTime: metav1.NewTime(plugintest.Before(20))}}}
	return w
}

func hpa(labels map[string]string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: labels}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Metrics:        []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}}}}}
}

// byAmount returns an HPA with an absolute amount of CPU as target, which does not depend on
// requests.
func byAmount() *autoscalingv2.HorizontalPodAutoscaler {
	h := hpa(nil)
	h.Spec.Metrics[0].Resource.Target.Type = autoscalingv2.AverageValueMetricType
	return h
}

func TestDoctor_IgnoresHPAWithAverageValue(t *testing.T) {
	w := newTestCluster(t)
	w.checks, w.more = []check{{"horizontal autoscalers", checkHPAs}}, append(w.more, byAmount())
	require.Empty(t, w.examine(t).Findings)
	w = newTestCluster(t)
	w.checks, w.more = []check{{"horizontal autoscalers", checkHPAs}}, append(w.more, hpa(nil))
	require.Len(t, w.examine(t).Findings, 1)
}

func TestDoctor_ContainerPolicyWithoutContainer(t *testing.T) {
	has := func(w *testCluster, containers ...string) {
		for _, object := range w.more {
			switch o := object.(type) {
			case *appsv1.Deployment:
				o.Spec.Template.Spec.Containers = []corev1.Container{{Name: containers[0]}}
			case *corev1.Pod:
				if o.Labels["app"] == "web" {
					for _, name := range containers {
						o.Spec.Containers = append(o.Spec.Containers, corev1.Container{Name: name})
					}
				}
			}
		}
	}
	for _, tc := range []struct {
		name, policy string
		containers   []string
		want         string
	}{
		{name: "a typo", policy: "ap", containers: []string{"app"}, want: `container policy "ap" is no container of Deployment web, which has app: the policy has no effect, unless a webhook adds that container`},
		{name: "the right name", policy: "app", containers: []string{"app"}},
		{name: "the wildcard", policy: "*", containers: []string{"app"}},
		{name: "a container that a webhook added", policy: "proxy", containers: []string{"app", "proxy"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTestCluster(t)
			w.checks = []check{{"container policies", checkContainerNames}}
			w.vpa.Spec.ResourcePolicy.ContainerPolicies[0].ContainerName = tc.policy
			has(w, tc.containers...)
			var got string
			for _, f := range w.examine(t).Findings {
				got += f.Problem
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func (w *testCluster) examine(t *testing.T) *doctorReport {
	t.Helper()
	var objects []runtime.Object
	for _, l := range w.leases {
		objects = append(objects, l)
	}
	for _, d := range w.deployments {
		objects = append(objects, d)
	}
	objects = append(objects, w.hook, w.secret, w.pod, w.node)
	kube := kubefake.NewClientset(append(objects, w.more...)...)
	kube.Resources = w.resources
	kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		r := review.Spec.ResourceAttributes
		_, account, _ := strings.Cut(review.Spec.User, "system:serviceaccount:kube-system:")
		name := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		review.Status.Allowed = !slices.Contains(w.forbidden, name) && !slices.Contains(w.forbidden, name+"."+r.Group) && (w.accounts == nil || slices.Contains(w.accounts, account))
		return true, review, nil
	})
	if w.hidden {
		plugintest.Forbid(&kube.Fake, "deployments")
	}
	if w.discovery != nil {
		kube.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, w.discovery })
	}
	e := examination{kube: kube, own: fake.NewSimpleClientset(append(w.own, w.vpa)...), now: plugintest.Now(), programs: "kube-system", migrating: w.moves}
	return e.examine(t.Context(), w.checks)
}

func TestDoctor_HealthyCluster(t *testing.T) {
	a := newTestCluster(t).examine(t)
	require.Empty(t, a.Findings)
	require.Empty(t, a.Unchecked)
	require.Len(t, a.Checked, len(doctorChecks))
}

// By default, a policy does not change resources that an HPA scales on.
func TestDoctor_IgnoresHPAUnderPolicy(t *testing.T) {
	under := func(says *loadlinev1alpha1.HPAHandling, policies ...string) *doctorReport {
		w := newTestCluster(t)
		w.vpa.Name, w.vpa.Labels = convert.GeneratedName(w.vpa), map[string]string{fleet.PolicyLabel: "shop"}
		w.more = append(w.more, hpa(nil))
		for _, name := range policies {
			w.own = append(w.own, &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: loadlinev1alpha1.SizingPolicySpec{Rollout: &loadlinev1alpha1.Rollout{HPA: says}}})
		}
		return w.examine(t)
	}
	found := func(a *doctorReport) bool {
		return slices.ContainsFunc(a.Findings, func(f finding) bool { return f.Check == "horizontal autoscalers" })
	}
	require.False(t, found(under(nil, "shop")))
	require.True(t, found(under(new(loadlinev1alpha1.HPAProceed), "shop")))
	require.True(t, found(under(nil, "other")), "its policy is gone")
}

func TestDoctor_Findings(t *testing.T) {
	for _, tc := range []struct {
		name                string
		seed                func(*testCluster)
		check, problem, fix string
	}{
		{name: "no metrics API", check: "metrics API", problem: "there is no metrics API", fix: "install metrics-server",
			seed: func(w *testCluster) { w.resources = slices.Delete(w.resources, 1, 2) }},
		{name: "no definition of checkpoints", check: "definitions", problem: "the definition is not installed",
			fix:  "kubectl apply -k deploy/crds",
			seed: func(w *testCluster) { w.resources[2].APIResources = w.resources[2].APIResources[:1] }},
		{name: "no definition of policies", check: "definitions", problem: "there are no SizingPolicies",
			fix:  "kubectl apply -k deploy/crds",
			seed: func(w *testCluster) { w.resources[3].APIResources = w.resources[3].APIResources[:1] }},
		{name: "no webhook", check: "webhook", problem: "it does not exist, so new pods are not sized", fix: "kubectl apply -k dist/deploy",
			seed: func(w *testCluster) { w.hook.Name = "other" }},
		{name: "webhook configuration without webhooks", check: "webhook", problem: "it has no webhook",
			fix:  "kubectl -n kube-system logs -l app=vpa-admission-controller",
			seed: func(w *testCluster) { w.hook.Webhooks = nil }},
		{name: "CA of another authority", check: "webhook", problem: "has not issued the certificate",
			fix:  "restart the admission controller",
			seed: func(w *testCluster) { w.hook.Webhooks[0].ClientConfig.CABundle = newAuthority(w.t).pem }},
		{name: "no CA in the webhook", check: "webhook", problem: "has no CA that can be read", fix: "restart the admission controller",
			seed: func(w *testCluster) { w.hook.Webhooks[0].ClientConfig.CABundle = nil }},
		{name: "no Service", check: "webhook", problem: "it does not exist, so the API server does not reach",
			fix:  "kubectl apply -k dist/deploy",
			seed: func(w *testCluster) { w.hook.Webhooks[0].ClientConfig.Service.Name = "gone" }},
		{name: "no ready pod behind the Service", check: "webhook", problem: "no pod behind it is ready",
			fix:  "get pods -l app=vpa-admission-controller",
			seed: func(w *testCluster) { w.pod.Status.Conditions = nil }},
		{name: "no recommender", check: "leases", problem: "no recommender holds it", fix: "get pods -l app=vpa-recommender",
			seed: func(w *testCluster) { w.leases[0].Spec.RenewTime = new(metav1.NewMicroTime(plugintest.Before(5))) }},
		{name: "no updater", check: "leases", problem: "no updater holds it", fix: "get pods -l app=vpa-updater",
			seed: func(w *testCluster) { w.leases[1].Name = "other" }},
		{name: "no admission controller", check: "leases", problem: "does not renew it", fix: "get pods -l app=vpa-admission-controller",
			seed: func(w *testCluster) { w.leases[2].Spec.RenewTime = new(metav1.NewMicroTime(plugintest.Before(5))) }},
		{name: "HPA on the same resource", check: "horizontal autoscalers",
			problem: "HorizontalPodAutoscaler web scales Deployment web by cpu", fix: "controlledResources",
			seed: func(w *testCluster) { w.more = append(w.more, hpa(nil)) }},
		{name: "ScaledObject of KEDA", check: "horizontal autoscalers", problem: "the ScaledObject web-so of KEDA scales",
			fix: "controlledResources",
			seed: func(w *testCluster) {
				w.more = append(w.more, hpa(map[string]string{"scaledobject.keda.sh/name": "web-so"}))
			}},
		{name: "two VPAs with one target", check: "two VPAs on one target", problem: "VPA web has the same target",
			fix: "delete one of the two",
			seed: func(w *testCluster) {
				other := w.vpa.DeepCopy()
				other.Name = "web-2"
				w.own = append(w.own, other)
			}},
		{name: "missing target", check: "targets", problem: "its target Deployment gone does not exist", fix: "correct spec.targetRef",
			seed: func(w *testCluster) { w.vpa.Spec.TargetRef.Name = "gone" }},
		{name: "VPA without a target reference", check: "targets", problem: "it has no spec.targetRef", fix: "set spec.targetRef",
			seed: func(w *testCluster) { w.vpa.Spec.TargetRef = nil }},
		{name: "target with an owner", check: "targets", problem: "belongs to StatefulSet top",
			fix: "let spec.targetRef name StatefulSet top",
			seed: func(w *testCluster) {
				w.more[1].(*appsv1.Deployment).OwnerReferences = plugintest.OwnedBy("StatefulSet", "top")
				w.more = append(w.more, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "top"}})
			}},
		{name: "unreadable VPA", check: "unreadable VPAs", problem: "it cannot be read, so its pods are skipped: spec: x",
			fix:  "correct that field",
			seed: func(w *testCluster) { w.vpa.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"} }},
		{name: "more containers than recommendations", check: "limits", problem: "100 of 400 containers get no recommendation",
			fix: "split the workload",
			seed: func(w *testCluster) {
				w.vpa.Status.Conditions = append(w.vpa.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{
					Type: "TooManyContainers", Status: corev1.ConditionTrue, Message: "100 of 400 containers get no recommendation",
				})
			}},
		{name: "status too large", check: "limits", problem: "the status exceeds 256 KiB", fix: "spec.resourcePolicy",
			seed: func(w *testCluster) {
				w.vpa.Status.Conditions = append(w.vpa.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{
					Type: "StatusTooLarge", Status: corev1.ConditionTrue, Message: "the status exceeds 256 KiB",
				})
			}},
		{name: "tripped fuse", check: "fuses", problem: "2 of 5 rounds were reverted",
			fix: "kubectl annotate --overwrite sizingpolicy fleet loadline.dev/acknowledge=",
			seed: func(w *testCluster) {
				tripped := metav1.Condition{
					Type: convert.ConditionFuseTripped, Status: metav1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(plugintest.Before(5)), Message: "2 of 5 rounds were reverted",
				}
				w.own = append(w.own, &loadlinev1alpha1.SizingPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
					Status:     loadlinev1alpha1.SizingPolicyStatus{Conditions: []metav1.Condition{tripped}},
				})
			}},
		{name: "recommender that is not installed", check: "recommenders",
			problem: `it selects recommender "fast", and its status is empty`, fix: "--recommender-name=fast",
			seed: func(w *testCluster) {
				w.vpa.Status.Conditions, w.vpa.Spec.Recommenders = nil, []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "fast"}}
			}},
		{name: "API server without resizes in place", check: "resize in place", problem: "it does not resize pods in place",
			fix:  "Kubernetes 1.33",
			seed: func(w *testCluster) { w.resources[0].APIResources = w.resources[0].APIResources[:1] }},
		{name: "kubelet without resizes in place", check: "resize in place", problem: "its kubelet v1.32.0 does not resize",
			fix:  "a kubelet of version 1.33",
			seed: func(w *testCluster) { w.node.Status.NodeInfo.KubeletVersion = "v1.32.0" }},
		{name: "disruption budget of zero", check: "disruption budgets", problem: "it never allows an eviction", fix: "maxUnavailable: 1",
			seed: func(w *testCluster) {
				w.more = append(w.more, &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "never"},
					Spec: policyv1.PodDisruptionBudgetSpec{
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					},
					Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, DesiredHealthy: 2},
				})
			}},
		{name: "LimitRange below minAllowed", check: "LimitRanges",
			problem: "minAllowed of container * is 100m of cpu, and a LimitRange allows 50m at most", fix: "lower minAllowed",
			seed: func(w *testCluster) {
				w.more = append(w.more, limitRange(corev1.LimitRangeItem{Max: plugintest.Resources("50m", "1Gi")}))
			}},
		{name: "LimitRange above maxAllowed", check: "LimitRanges", problem: "maxAllowed of container * is 8192 MiB of memory",
			fix: "raise maxAllowed",
			seed: func(w *testCluster) {
				w.more = append(w.more, limitRange(corev1.LimitRangeItem{Min: plugintest.Resources("1", "9Gi")}))
			}},
		{name: "nodes below minAllowed", check: "size of nodes",
			problem: "minAllowed of container * is 100 MiB of memory, and the largest node has 50 MiB", fix: "add larger nodes",
			seed: func(w *testCluster) {
				w.node.Status.Allocatable = plugintest.Resources("1", "50Mi")
				w.vpa.Status.Recommendation = nil
			}},
		{name: "nodes below the target", check: "size of nodes", problem: "its containers are recommended 1000m of cpu in all",
			fix:  "set maxAllowed",
			seed: func(w *testCluster) { w.node.Status.Allocatable = plugintest.Resources("900m", "32Gi") }},
		{name: "missing permission", check: "permissions", problem: `it may not patch pods/resize of API group ""`,
			fix:  "kubectl apply -k dist/deploy",
			seed: func(w *testCluster) { w.forbidden = []string{"pods/resize"} }},
		{name: "certificate that expires soon", check: "certificate", problem: "expires at 2026-03-04T08:00:00Z",
			fix: "restart the admission controller",
			seed: func(w *testCluster) {
				w.secret.Data["serverCert.pem"] = w.authority.issue(w.t, plugintest.Now().Add(48*time.Hour))
			}},
		{name: "expired certificate", check: "certificate", problem: "expired at 2026-03-02T07:55:00Z",
			fix: "renew it with whoever issues it",
			seed: func(w *testCluster) {
				w.secret.Data = map[string][]byte{"tls.crt": w.authority.issue(w.t, plugintest.Before(5))}
			}},
		{name: "no readable certificate", check: "certificate", problem: "it has no certificate that can be read",
			fix:  "delete it and restart",
			seed: func(w *testCluster) { w.secret.Data = nil }},
		{name: "stale checkpoints", check: "checkpoints", problem: "were last saved at 2026-03-01T22:00:00Z",
			fix: "see whether its recommender runs",
			seed: func(w *testCluster) {
				w.own[0].(*vpav1.VerticalPodAutoscalerCheckpoint).Status.LastUpdateTime = metav1.NewTime(plugintest.Before(600))
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTestCluster(t)
			own := w.hook.Webhooks[0] // with --webhook-failure-policy-fail there are two webhooks
			own.Name = "own.vpa.k8s.io"
			if tc.check == "webhook" && strings.HasPrefix(tc.problem, "no pod") {
				w.hook.Webhooks = append(w.hook.Webhooks, own)
			}
			tc.seed(w)
			a := w.examine(t)
			require.Len(t, a.Findings, 1, a.Findings)
			require.Empty(t, a.Unchecked)
			f := a.Findings[0]
			require.Equal(t, tc.check, f.Check)
			require.Contains(t, f.Problem, tc.problem)
			require.Contains(t, f.Fix, tc.fix)
		})
	}
}

func limitRange(item corev1.LimitRangeItem) *corev1.LimitRange {
	item.Type = corev1.LimitTypeContainer
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

func TestDoctor_ReportsUncheckedParts(t *testing.T) {
	w := newTestCluster(t)
	w.discovery = errors.New("the server is currently unable to handle the request")
	a := w.examine(t)
	require.Equal(t, "metrics API", a.Findings[0].Check, "an API that fails is a finding")
	require.Contains(t, a.Unchecked, "definitions: the server is currently unable to handle the request")
	require.Contains(t, a.text(), "! not checked: definitions: ")
	require.NotContains(t, a.Checked, "definitions")
}

func TestDoctor_OutputMatchesDocs(t *testing.T) {
	w := newTestCluster(t)
	w.forbidden = []string{"pods/resize"}
	w.more = append(w.more, hpa(nil))
	a := w.examine(t)
	plugintest.InTheDocs(t, "doctor", a.text())
	require.True(t, a.has(severityError))
	require.Len(t, a.Tables()[0].Rows, 2)
}

func TestDoctor_PermissionsMatchManifests(t *testing.T) {
	given := map[string][]string{} // rules by role
	bound := map[string][]string{} // roles by service account
	for _, file := range []string{"shared", "recommender", "updater", "admission-controller"} {
		text, err := os.ReadFile("../../deploy/base/" + file + "/rbac.yaml")
		require.NoError(t, err)
		for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
				Rules    []struct{ APIGroups, Resources, Verbs []string }
				RoleRef  struct{ Name string }
				Subjects []struct{ Name string }
			}
			require.NoError(t, yaml.Unmarshal(part, &o))
			for _, r := range o.Rules {
				for _, group := range r.APIGroups {
					for _, resource := range r.Resources {
						for _, verb := range r.Verbs {
							p := permission{group: group, resource: resource, verb: verb}
							given[o.Metadata.Name] = append(given[o.Metadata.Name], fmt.Sprint(p))
						}
					}
				}
			}
			for _, s := range o.Subjects {
				bound[s.Name] = append(bound[s.Name], o.RoleRef.Name)
			}
		}
	}
	for program, all := range requiredPermissions {
		for _, p := range all {
			require.True(t, slices.ContainsFunc(bound["vpa-"+program], func(role string) bool { return slices.Contains(given[role], fmt.Sprint(p)) }), "%s %v", program, p)
		}
	}
}

func TestDoctor_CommandLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "help", args: []string{"--help"}, code: 0, want: "Usage: kubectl loadline doctor [flags]"},
		{name: "invalid value", args: []string{"--fail-on=often"}, code: 2, want: "--fail-on=often: must be never, error, warning"},
		{name: "missing kubeconfig", args: []string{"--kubeconfig=/nowhere/at/all"}, code: 1, want: "kubectl loadline doctor: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), Commands(), append([]string{"doctor"}, tc.args...), &out, &errOut))
			require.Contains(t, out.String()+errOut.String(), tc.want)
		})
	}
}
