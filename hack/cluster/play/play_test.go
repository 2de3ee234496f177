package play

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/hack/cluster/trace"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// pod returns a pod on node n that has been running since the epoch, with the given containers.
func pod(annotations map[string]string, names ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: epoch}},
	}
	for _, name := range names {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, ContainerID: "id-" + name,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: epoch}}},
		})
	}
	return p
}

func TestReadDemand_PrefersContainerAnnotation(t *testing.T) {
	p := pod(map[string]string{
		CPUAnnotation: "250m", MemoryAnnotation: "100Mi",
		CPUAnnotation + ".side": "30m", SpeedAnnotation: "60", SpeedAnnotation + ".side": "2",
		OffsetAnnotation: "90s", RampAnnotation: "1m",
	}, "app", "side")
	app, err := ReadDemand(p, "app", 1, trace.NewLibrary(""))
	require.NoError(t, err)
	require.Equal(t, Demand{CPU: 0.25, Memory: 100 << 20, Speed: 60, Offset: 90, Ramp: time.Minute}, app)
	side, err := ReadDemand(p, "side", 1, trace.NewLibrary(""))
	require.NoError(t, err)
	require.Equal(t, Demand{CPU: 0.03, Memory: 100 << 20, Speed: 2, Offset: 90, Ramp: time.Minute}, side)

	plain, err := ReadDemand(pod(nil, "app"), "app", 5, trace.NewLibrary(""))
	require.NoError(t, err)
	require.Equal(t, Demand{CPU: 0.001, Memory: 1 << 20, Speed: 5, Ramp: 30 * time.Second}, plain)
}

func TestReadDemand_RejectsInvalidAnnotations(t *testing.T) {
	for _, tc := range []struct{ name, annotation, value, want string }{
		{name: "CPU that is not a quantity", annotation: CPUAnnotation, value: "lots", want: "want a quantity"},
		{name: "negative memory", annotation: MemoryAnnotation, value: "-1Mi", want: "want a quantity"},
		{name: "zero speed", annotation: SpeedAnnotation, value: "0", want: "want a number above 0"},
		{name: "offset without a unit", annotation: OffsetAnnotation, value: "5", want: "want a duration"},
		{name: "negative ramp", annotation: RampAnnotation, value: "-5s", want: "want a duration"},
		{name: "trace with only one column", annotation: TraceAnnotation, value: "a:b", want: "want NAME or NAME:CPUCOLUMN,MEMORYCOLUMN"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadDemand(pod(map[string]string{tc.annotation: tc.value}, "app"), "app", 1, trace.NewLibrary(""))
			require.ErrorContains(t, err, tc.annotation)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestMeter_CapsCPUAtLimit(t *testing.T) {
	demand := Demand{CPU: 2, Memory: 100, Speed: 1}
	life := Life{PodStarted: epoch, Started: epoch, Limits: Limits{CPU: 0.5}}
	var m Meter
	m.Step(at(10), demand, life)
	require.InDelta(t, startupCPU+5, m.CPUSeconds, 1e-9)
	life.Limits.CPU = 0
	m.Step(at(20), demand, life)
	require.InDelta(t, startupCPU+25, m.CPUSeconds, 1e-9)
	m.Step(at(15), demand, life)
	require.InDelta(t, startupCPU+25, m.CPUSeconds, 1e-9, "a clock that goes back adds nothing")
}

func load(t *testing.T, text string) *trace.Trace {
	t.Helper()
	loaded, err := trace.Parse(strings.NewReader(text), trace.Columns{})
	require.NoError(t, err)
	return loaded
}

func TestMeter_MeanCPUIsIndependentOfSpeed(t *testing.T) {
	played := load(t, "time,cpu_cores,memory_bytes\n0,0,100\n9,1,200\n10,0,100\n") // 1 core second in 15
	for _, speed := range []float64{1, 7, 60} {
		var m Meter
		for second := 1.0; second <= 150; second++ {
			m.Step(at(second), Demand{Trace: played, Speed: speed}, Life{PodStarted: epoch, Started: epoch})
		}
		// The mean rate equals that of the trace at every speed.
		require.InDelta(t, 150*1.0/played.Length(), m.CPUSeconds-startupCPU, 0.5, speed)
	}
}

func TestMeter_OOMKillsUntilLimitGrows(t *testing.T) {
	demand := Demand{CPU: 0.1, Memory: 300, Speed: 1, Ramp: 20 * time.Second}
	life := Life{PodStarted: epoch, Started: epoch, Limits: Limits{Memory: 200_000}}
	demand.Memory = 300_000
	var m Meter
	var deaths []float64
	for second := 1.0; second <= 100; second++ {
		if m.Step(at(second), demand, life) {
			deaths = append(deaths, second)
			life.Started, life.Restarted = at(second), true
			require.InDelta(t, 200_000, m.Memory, 0, "no more than the limit is ever seen")
		}
		if second == 50 {
			life.Limits.Memory = 400_000
		}
	}
	// The first kill follows the minimum run time, the others whenever memory has grown back to two
	// thirds of the demand.
	require.Equal(t, []float64{5, 18, 31, 44}, deaths)
	require.InDelta(t, 300_000, m.Memory, 0)

	m.Step(at(101), demand, Life{PodStarted: epoch, Started: at(101), Restarted: true})
	require.InDelta(t, 30_000, m.Memory, 0, "a restarted container starts small")
	require.InDelta(t, startupCPU, m.CPUSeconds, 1e-9, "and counts from the start")
}

func TestStage_ServesContainersOfRunningPods(t *testing.T) {
	stage := NewStage(trace.NewLibrary(""), 1)
	p := pod(map[string]string{CPUAnnotation + ".app": "500m", MemoryAnnotation + ".app": "8Mi"}, "app", "side")
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{{Name: "once"}, {Name: "car", RestartPolicy: &always}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "once"}, {Name: "car", State: p.Status.ContainerStatuses[0].State}}
	pending := pod(nil, "app")
	pending.UID, pending.Status.Phase = "v", corev1.PodPending

	kills, faults := stage.Step(at(10), []*corev1.Pod{p, pending})
	require.Empty(t, kills)
	require.Empty(t, faults)
	page := string(stage.Page("n", at(11)))
	millis := "1767225610000"
	for _, line := range []string{
		`container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 5.02 ` + millis,
		`container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 8.388608e+06 ` + millis,
		`container_start_time_seconds{container="app",namespace="shop",pod="web"} 1.7672256e+09 ` + millis,
		`container_cpu_usage_seconds_total{container="side",namespace="shop",pod="web"} 0.03 ` + millis,
		`container_cpu_usage_seconds_total{container="car",namespace="shop",pod="web"} 0.03 ` + millis,
	} {
		require.Contains(t, page, line+"\n")
	}
	require.NotContains(t, page, `container="once"`)
	require.Equal(t, 3, strings.Count(page, "container_memory_working_set_bytes{"))
	require.Contains(t, string(stage.Page("empty", at(11))), "node_cpu_usage_seconds_total 0.02 ")

	stage.Step(at(20), nil)
	require.NotContains(t, string(stage.Page("n", at(20))), "container=", "a pod that is gone is not served")
}

func TestStage_ReportsFaultyPodOnce(t *testing.T) {
	stage := NewStage(trace.NewLibrary(""), 1)
	p := pod(map[string]string{TraceAnnotation: "nothing"}, "app")
	_, faults := stage.Step(at(1), []*corev1.Pod{p})
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0].Err, `trace "nothing"`)
	_, faults = stage.Step(at(2), []*corev1.Pod{p})
	require.Empty(t, faults)
	require.NotContains(t, string(stage.Page("n", at(2))), "shop")

	p.Annotations = nil
	stage.Step(at(3), []*corev1.Pod{p})
	require.Contains(t, string(stage.Page("n", at(3))), "shop")
}

func TestStage_RequestsOneKillPerContainerStart(t *testing.T) {
	stage := NewStage(trace.NewLibrary(""), 1)
	p := pod(map[string]string{MemoryAnnotation: "200Mi"}, "app")
	p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
	}
	pods := []*corev1.Pod{p}
	kills, _ := stage.Step(at(10), pods)
	require.Equal(t, []Kill{{p, "app"}}, kills)
	kills, _ = stage.Step(at(11), pods)
	require.Empty(t, kills, "the status does not show it yet")
	stage.Retry(Kill{p, "app"})
	kills, _ = stage.Step(at(12), pods)
	require.Len(t, kills, 1)
}

func TestKillOnRequest_RemovesAnnotationAndRestarts(t *testing.T) {
	ctx := context.Background()
	p := pod(map[string]string{OOMAnnotation: "side", "keep": "me"}, "app", "side")
	client := fake.NewClientset(p)
	require.NoError(t, killOnRequest(ctx, client, p, at(30)))

	got, err := client.CoreV1().Pods("shop").Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"keep": "me"}, got.Annotations)
	app, side := got.Status.ContainerStatuses[0], got.Status.ContainerStatuses[1]
	require.Zero(t, app.RestartCount)
	require.Equal(t, int32(1), side.RestartCount)
	require.True(t, side.State.Running.StartedAt.Time.Equal(at(30)))
	died := side.LastTerminationState.Terminated
	require.Equal(t, "OOMKilled", died.Reason)
	require.Equal(t, int32(137), died.ExitCode)
	require.Equal(t, "id-side", died.ContainerID)
	require.True(t, died.StartedAt.Time.Equal(epoch) && died.FinishedAt.Time.Equal(at(30)))

	p = pod(map[string]string{OOMAnnotation: "nobody"}, "app")
	p.Name, p.UID = "other", types.UID("o")
	client = fake.NewClientset(p)
	require.ErrorContains(t, killOnRequest(ctx, client, p, at(30)), `want the name of a running container, got "nobody"`)
}
