package sharing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
)

func eligiblePod() PodFacts {
	return PodFacts{Shared: [resources.Kinds]bool{resources.CPU: true}, Recommended: true, Age: MinAge}
}

func TestIneligibleReason(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*PodFacts)
		want   reason.Reason
	}{
		{name: "ordinary pod", change: func(*PodFacts) {}},
		{name: "excluded", change: func(f *PodFacts) { f.Excluded = true }, want: reason.Excluded},
		{name: "opted out", change: func(f *PodFacts) { f.Off = true }, want: reason.SharingOff},
		{name: "node with GPUs", change: func(f *PodFacts) { f.GPUNode = true }, want: reason.GPUNode},
		{name: "pod-level resources", change: func(f *PodFacts) { f.PodLevelResources = true }, want: reason.PodLevelResources},
		{name: "class Guaranteed", change: func(f *PodFacts) { f.Guaranteed = true }, want: reason.Guaranteed},
		{name: "CPU resize restarts", change: func(f *PodFacts) { f.Restarts[resources.CPU] = true }, want: reason.RestartsOnResize},
		{name: "memory resize restarts", change: func(f *PodFacts) { f.Restarts[resources.Memory] = true }},
		{name: "lower minimum age", change: func(f *PodFacts) { f.Age, f.MinAge = time.Minute, time.Minute }},
		{name: "reverted share", change: func(f *PodFacts) { f.Reverted = true }, want: reason.Reverted},
		{name: "HPA on CPU", change: func(f *PodFacts) { f.HPA[resources.CPU] = true }, want: reason.ManagedByHPA},
		{name: "HPA on unshared memory", change: func(f *PodFacts) { f.HPA[resources.Memory] = true }},
		{
			name:   "HPA on shared memory",
			change: func(f *PodFacts) { f.HPA[resources.Memory], f.Shared[resources.Memory] = true, true },
			want:   reason.ManagedByHPA,
		},
		{name: "no recommendation", change: func(f *PodFacts) { f.Recommended = false }, want: reason.NoRecommendation},
		{name: "young pod", change: func(f *PodFacts) { f.Age = MinAge - time.Second }, want: reason.NewWorkload},
		{name: "pending pod", change: func(f *PodFacts) { f.Pending = true }, want: reason.NotRunning},
		{name: "terminating pod", change: func(f *PodFacts) { f.Terminating = true }, want: reason.Terminating},
		{name: "boosted pod", change: func(f *PodFacts) { f.Boosted = true }, want: reason.Boosted},
		{name: "resize in progress", change: func(f *PodFacts) { f.Resizing = true }, want: reason.Resizing},
		{
			name:   "configuration precedes state",
			change: func(f *PodFacts) { f.Off, f.Recommended, f.Pending = true, false, true },
			want:   reason.SharingOff,
		},
		{
			name:   "lasting reason precedes temporary reason",
			change: func(f *PodFacts) { f.Guaranteed, f.Resizing = true, true },
			want:   reason.Guaranteed,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := eligiblePod()
			tc.change(&f)
			require.Equal(t, tc.want, IneligibleReason(f))
		})
	}
}

func TestRankOf(t *testing.T) {
	const invalid = "must be one of low, medium, high, no-eviction; it counts as no-eviction"
	annotated := func(value string) map[string]string { return map[string]string{RankAnnotation: value} }
	for _, tc := range []struct {
		name        string
		kind        string
		replicas    int
		annotations []map[string]string
		want        Rank
		problem     string
	}{
		{name: "several replicas", kind: "Deployment", replicas: 2, want: Low},
		{name: "single replica", kind: "Deployment", replicas: 1, want: Medium},
		{name: "unknown replicas", kind: "Deployment", replicas: -1, want: Medium},
		{name: "StatefulSet", kind: "StatefulSet", replicas: 3, want: Medium},
		{
			name: "DaemonSet with another annotation",
			kind: "DaemonSet", replicas: 5, annotations: []map[string]string{{"other": "high"}}, want: Low,
		},
		{name: "low with a single replica", kind: "Deployment", replicas: 1, annotations: []map[string]string{annotated("low")}, want: Low},
		{name: "medium", kind: "Deployment", replicas: 2, annotations: []map[string]string{annotated("medium")}, want: Medium},
		{name: "high", kind: "Deployment", replicas: 2, annotations: []map[string]string{nil, annotated("high")}, want: High},
		{name: "no-eviction", kind: "Deployment", replicas: 2, annotations: []map[string]string{annotated("no-eviction")}, want: Never},
		{
			name: "higher of two annotations",
			kind: "Deployment", replicas: 2, annotations: []map[string]string{annotated("high"), annotated("low")}, want: High,
		},
		{
			name: "annotation is a number",
			kind: "Deployment", replicas: 2, annotations: []map[string]string{annotated("4")}, want: Never,
			problem: `annotation loadline.dev/eviction-ranking is "4": ` + invalid,
		},
		{
			name: "one of two annotations is invalid",
			kind: "Deployment", replicas: 2, annotations: []map[string]string{annotated("low"), annotated("Low")}, want: Never,
			problem: `annotation loadline.dev/eviction-ranking is "Low": ` + invalid,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rank, problem := RankOf(tc.kind, tc.replicas, tc.annotations...)
			require.Equal(t, tc.want, rank)
			require.Equal(t, tc.problem, problem)
		})
	}
	require.Equal(t, "low medium high no-eviction", Low.String()+" "+Medium.String()+" "+High.String()+" "+Never.String())
}

func TestOptedOut(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value string
		want  bool
	}{
		{name: "off", value: "off", want: true},
		{name: "on", value: "on"},
		{name: "empty", want: true},
		{name: "unknown", value: "Off", want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, problem := OptedOut(nil, map[string]string{SharingAnnotation: tc.value})
			require.Equal(t, tc.want, out)
			require.Equal(t, tc.value != "on" && tc.value != "off", problem != "")
		})
	}
	out, problem := OptedOut(nil, map[string]string{"other": "off"})
	require.False(t, out)
	require.Empty(t, problem)
	_, problem = OptedOut(map[string]string{SharingAnnotation: "false"})
	require.Equal(t, `annotation loadline.dev/sharing is "false": must be one of on, off; it counts as off`, problem)
}
