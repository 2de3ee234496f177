package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"

	"loadline.dev/loadline/admission-controller/heartbeat"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/pkg/flags"
)

func container(t *testing.T) corev1.Container {
	t.Helper()
	manifest, err := os.ReadFile("../deploy/admission-controller.yaml")
	require.NoError(t, err)
	var deployment appsv1.Deployment
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096).Decode(&deployment))
	require.Equal(t, "Deployment", deployment.Kind)
	return deployment.Spec.Template.Spec.Containers[0]
}

func portOf(c corev1.Container, port intstr.IntOrString) int {
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort)
		}
	}
	return port.IntValue()
}

// /health-check answers before the webhook does; traffic must not be sent then.
func TestReadinessIsThatOfTheWebhook(t *testing.T) {
	c := container(t)
	ready := c.ReadinessProbe.HTTPGet
	require.Equal(t, server.ProbePath, ready.Path)
	require.Equal(t, corev1.URISchemeHTTPS, ready.Scheme)
	require.Equal(t, Default().Port, portOf(c, ready.Port))
}

// A webhook that hangs must not hold the pods of a cluster up for long, and one that
// is away must not refuse them.
func TestOurManifestKeepsNoPodWaiting(t *testing.T) {
	config, fs := Default(), flags.New("admission-controller")
	config.AddFlags(fs)
	require.NoError(t, fs.Parse(container(t).Args))
	require.NoError(t, config.Validate())
	require.Empty(t, config.Warnings())
	require.LessOrEqual(t, config.TimeoutSeconds, 5)
	require.False(t, config.FailurePolicy)
	require.True(t, config.Register)
}

func TestASlowStartSurvivesTheLivenessProbe(t *testing.T) {
	c := container(t)
	live := c.LivenessProbe
	require.Equal(t, "/health-check", live.HTTPGet.Path)
	require.Equal(t, Default().Serving.Address, ":"+(&intstr.IntOrString{IntVal: int32(portOf(c, live.HTTPGet.Port))}).String())
	gaveUp := time.Duration(live.InitialDelaySeconds+live.PeriodSeconds*(live.FailureThreshold-1)) * time.Second
	require.LessOrEqual(t, heartbeat.StartGrace+3*time.Second, gaveUp, "the third probe must find it healthy, although the process starts later than the container")
}
