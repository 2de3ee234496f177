package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

var programs = []string{"recommender", "updater", "admission-controller"}

// Startup errors are one line that names the cause, without a stack trace, and a non-zero exit
// code.
func TestPrograms_ReportStartupErrors(t *testing.T) {
	parallelTest(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { taken.Close() })
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, program := range programs {
		for name, c := range map[string]struct {
			args []string
			says []string
		}{
			"unknown flag":        {[]string{"--no-such-flag=1"}, []string{"no-such-flag"}},
			"bad value":           {[]string{"--kube-api-qps=fast"}, []string{"kube-api-qps", "fast"}},
			"contradictory flags": {[]string{"--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"}, []string{"--vpa-object-namespace", "--ignored-vpa-object-namespaces"}},
			"kubeconfig nowhere":  {[]string{"--kubeconfig=" + nowhere, "--address=127.0.0.1:0"}, []string{"kubeconfig", nowhere}},
			"port in use":         {[]string{"--kubeconfig=" + cluster.Kubeconfig(), "--address=" + taken.Addr().String()}, []string{taken.Addr().String(), "in use"}},
			"unknown gate":        {[]string{"--feature-gates=NoSuchGate=true"}, []string{"NoSuchGate"}},
		} {
			t.Run(program+"/"+name, func(t *testing.T) {
				out, code := runProgram(t, program, c.args...)
				require.NotZero(t, code, out)
				require.NotContains(t, out, "goroutine ", "a stack trace is no message")
				require.True(t, hasLineWith(out, c.says), "no line names %v in:\n%s", c.says, out)
			})
		}
	}
}

func TestPrograms_ReportUnreachableAPIServer(t *testing.T) {
	parallelTest(t)
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, harness.WriteKubeconfig(kubeconfig, "https://"+address))
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			out, code := runProgram(t, program, "--kubeconfig="+kubeconfig, "--address=127.0.0.1:0")
			require.NotZero(t, code, out)
			require.NotContains(t, out, "goroutine ")
			require.True(t, hasLineWith(out, []string{address}), "no line names the server %s in:\n%s", address, out)
		})
	}
}

func hasLineWith(out string, words []string) bool {
	for line := range strings.Lines(out) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return true
		}
	}
	return false
}

func runProgram(t *testing.T, program string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "bin", program), args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "%s %v did not end:\n%s", program, args, out)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	require.NoError(t, err)
	return string(out), 0
}

// The schema rejects a VPA without a target. A VPA with a nonexistent target gets a condition, and
// other VPAs of the namespace are unaffected.
func TestVPA_ReportsMissingTarget(t *testing.T) {
	parallelTest(t)
	ns := namespace(t, "bad-targets")
	err := cluster.CreateVPA(t.Context(), harness.Workload{Namespace: ns, Name: "no-target"}, vpav1.UpdateModeOff,
		func(vpa *vpav1.VerticalPodAutoscaler) { vpa.Spec.TargetRef = nil })
	require.ErrorContains(t, err, "spec.targetRef")

	missing := harness.Workload{Namespace: ns, Name: "missing"}
	require.NoError(t, cluster.CreateVPA(t.Context(), missing, vpav1.UpdateModeInPlaceOrRecreate))
	good := harness.Workload{
		Namespace: ns, Name: "good", Replicas: 1,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "200m", "300Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), good))
	require.NoError(t, cluster.CreateVPA(t.Context(), good, vpav1.UpdateModeOff))
	awaitRecommendation(t, good)
	eventually(t, "condition on the VPA without a target object", func() error {
		for _, condition := range getVPA(t, missing).Status.Conditions {
			if condition.Type == vpav1.ConfigUnsupported && condition.Status == corev1.ConditionTrue && strings.Contains(condition.Message, "missing") {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", getVPA(t, missing).Status.Conditions)
	})
}

// The younger VPA gets a condition that names the older one.
func TestVPA_OlderOfTwoControlsTheTarget(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{
		Namespace: namespace(t, "two-vpas"), Name: "contested", Replicas: 2,
		Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "300Mi"}},
		Annotations: harness.Uses("app", "400m", "320Mi"),
	}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
			{ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceCPU: *quantity("100m")}},
		}}
	}))
	time.Sleep(1100 * time.Millisecond) // creation timestamps have a resolution of one second
	younger := w
	younger.Name = "aaa-younger"
	require.NoError(t, cluster.CreateVPA(t.Context(), younger, vpav1.UpdateModeInPlaceOrRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.TargetRef.Name = w.Name
	}))
	eventually(t, "the younger VPA names the older", func() error {
		for _, condition := range getVPA(t, younger).Status.Conditions {
			if strings.Contains(condition.Message, "contested") {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", getVPA(t, younger).Status.Conditions)
	})
	eventually(t, "the pods follow the older VPA, whose maximum is 100m", func() error {
		for _, pod := range pods(t, w) {
			if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu(); cpu.MilliValue() != 100 {
				return fmt.Errorf("%s requests %s", pod.Name, cpu)
			}
		}
		return nil
	})
}
