package admission

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/pkg/flags"
)

func container(t *testing.T) corev1.Container {
	t.Helper()
	manifest, err := os.ReadFile("../deploy/base/admission-controller/deployment.yaml")
	require.NoError(t, err)
	var deployment appsv1.Deployment
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096).Decode(&deployment))
	require.Equal(t, "Deployment", deployment.Kind)
	return deployment.Spec.Template.Spec.Containers[0]
}

func objectIn(t *testing.T, file, kind string, into any) {
	t.Helper()
	manifest, err := os.ReadFile("../deploy/" + file)
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var meta metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &meta))
		if meta.Kind == kind {
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), into))
			return
		}
	}
	t.Fatalf("no %s in %s", kind, file)
}

// A subject that can create any webhook can read and change every object in the cluster.
func TestManifestRBAC_LimitsWebhookConfigurationWrites(t *testing.T) {
	var role rbacv1.ClusterRole
	objectIn(t, "base/admission-controller/rbac.yaml", "ClusterRole", &role)
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, "mutatingwebhookconfigurations") {
			require.Equal(t, []string{certs.ConfigurationName}, rule.ResourceNames)
			require.Equal(t, []string{"get", "patch"}, rule.Verbs)
		}
	}
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	objectIn(t, "base/admission-controller/deployment.yaml", "MutatingWebhookConfiguration", &configuration)
	require.Equal(t, certs.ConfigurationName, configuration.Name, "so it must be there")
	require.Nil(t, configuration.Webhooks, "or kubectl apply would take them away")
}

func TestManifestNetworkPolicy_AllowsRequiredIngress(t *testing.T) {
	var deployment appsv1.Deployment
	objectIn(t, "base/admission-controller/deployment.yaml", "Deployment", &deployment)
	var policy networkingv1.NetworkPolicy
	objectIn(t, "network-policy/network-policy.yaml", "NetworkPolicy", &policy)
	pod := deployment.Spec.Template
	require.Equal(t, deployment.Namespace, policy.Namespace)
	require.Equal(t, pod.Labels, policy.Spec.PodSelector.MatchLabels)
	var ports []int
	for _, rule := range policy.Spec.Ingress {
		ports = append(ports, rule.Ports[0].Port.IntValue())
	}
	require.Equal(t, []int{int(pod.Spec.Containers[0].Ports[0].ContainerPort), int(pod.Spec.Containers[0].Ports[1].ContainerPort)}, ports)
	from := policy.Spec.Ingress[0].From
	require.Len(t, from, 2)
	require.NotEqual(t, "0.0.0.0/0", from[0].IPBlock.CIDR)
	require.Equal(t, pod.Labels, from[1].PodSelector.MatchLabels, "each replica probes the Service before its heartbeat")
	require.Empty(t, policy.Spec.Ingress[1].From)
}

func portOf(c corev1.Container, port intstr.IntOrString) int {
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort)
		}
	}
	return port.IntValue()
}

// /health-check succeeds before the webhook serves, so it cannot signal readiness.
func TestManifestReadinessProbe_ChecksWebhook(t *testing.T) {
	c := container(t)
	ready := c.ReadinessProbe.HTTPGet
	require.Equal(t, server.ProbePath, ready.Path)
	require.Equal(t, corev1.URISchemeHTTPS, ready.Scheme)
	require.Equal(t, Default().Port, portOf(c, ready.Port))
}

// A hanging webhook must not delay pods for long, and an unavailable one must not refuse them.
func TestManifest_FailsOpenWithShortTimeout(t *testing.T) {
	config, fs := Default(), flags.New("admission-controller")
	config.AddFlags(fs)
	require.NoError(t, fs.Parse(container(t).Args))
	require.NoError(t, config.Validate())
	require.Empty(t, config.Warnings())
	require.LessOrEqual(t, config.TimeoutSeconds, 5)
	require.False(t, config.FailurePolicy)
	require.True(t, config.Register)
}

func TestManifestLivenessProbe_AllowsSlowStart(t *testing.T) {
	c := container(t)
	live := c.LivenessProbe
	require.Equal(t, "/health-check", live.HTTPGet.Path)
	require.Equal(t, Default().Serving.Address, ":"+(&intstr.IntOrString{IntVal: int32(portOf(c, live.HTTPGet.Port))}).String())
	gaveUp := time.Duration(live.InitialDelaySeconds+live.PeriodSeconds*(live.FailureThreshold-1)) * time.Second
	require.LessOrEqual(t, server.StartGrace+3*time.Second, gaveUp, "the third probe must find it healthy, although the process starts later than the container")
}
