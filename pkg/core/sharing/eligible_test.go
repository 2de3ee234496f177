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
	for name, c := range map[string]struct {
		change func(*PodFacts)
		want   reason.Reason
	}{
		"ordinary":                      {func(*PodFacts) {}, ""},
		"excluded":                      {func(f *PodFacts) { f.Excluded = true }, reason.Excluded},
		"opted out":                     {func(f *PodFacts) { f.Off = true }, reason.SharingOff},
		"on a node with GPUs":           {func(f *PodFacts) { f.GPUNode = true }, reason.GPUNode},
		"sized as a whole":              {func(f *PodFacts) { f.PodLevelResources = true }, reason.PodLevelResources},
		"of class Guaranteed":           {func(f *PodFacts) { f.Guaranteed = true }, reason.Guaranteed},
		"CPU that restarts":             {func(f *PodFacts) { f.Restarts[resources.CPU] = true }, reason.RestartsOnResize},
		"memory that restarts":          {func(f *PodFacts) { f.Restarts[resources.Memory] = true }, ""},
		"old enough for some":           {func(f *PodFacts) { f.Age, f.MinAge = time.Minute, time.Minute }, ""},
		"its share did harm":            {func(f *PodFacts) { f.Reverted = true }, reason.Reverted},
		"an HPA on CPU":                 {func(f *PodFacts) { f.HPA[resources.CPU] = true }, reason.ManagedByHPA},
		"an HPA on what is not shared":  {func(f *PodFacts) { f.HPA[resources.Memory] = true }, ""},
		"an HPA on memory that is":      {func(f *PodFacts) { f.HPA[resources.Memory], f.Shared[resources.Memory] = true, true }, reason.ManagedByHPA},
		"nothing is known":              {func(f *PodFacts) { f.Recommended = false }, reason.NoRecommendation},
		"too young":                     {func(f *PodFacts) { f.Age = MinAge - time.Second }, reason.NewWorkload},
		"pending":                       {func(f *PodFacts) { f.Pending = true }, reason.NotRunning},
		"being deleted":                 {func(f *PodFacts) { f.Terminating = true }, reason.Terminating},
		"boosted":                       {func(f *PodFacts) { f.Boosted = true }, reason.Boosted},
		"resizing":                      {func(f *PodFacts) { f.Resizing = true }, reason.Resizing},
		"what is wanted is said first":  {func(f *PodFacts) { f.Off, f.Recommended, f.Pending = true, false, true }, reason.SharingOff},
		"what lasts before what passes": {func(f *PodFacts) { f.Guaranteed, f.Resizing = true, true }, reason.Guaranteed},
	} {
		f := eligiblePod()
		c.change(&f)
		require.Equal(t, c.want, IneligibleReason(f), name)
	}
}

func TestRankOf(t *testing.T) {
	annotated := func(value string) map[string]string { return map[string]string{RankAnnotation: value} }
	for name, c := range map[string]struct {
		kind        string
		replicas    int
		annotations []map[string]string
		want        Rank
		problem     string
	}{
		"many":                       {"Deployment", 2, nil, Low, ""},
		"the only one":               {"Deployment", 1, nil, Medium, ""},
		"nobody knows how many":      {"Deployment", -1, nil, Medium, ""},
		"state":                      {"StatefulSet", 3, nil, Medium, ""},
		"a daemon":                   {"DaemonSet", 5, []map[string]string{{"other": "high"}}, Low, ""},
		"low, although the only one": {"Deployment", 1, []map[string]string{annotated("low")}, Low, ""},
		"medium":                     {"Deployment", 2, []map[string]string{annotated("medium")}, Medium, ""},
		"high":                       {"Deployment", 2, []map[string]string{nil, annotated("high")}, High, ""},
		"never":                      {"Deployment", 2, []map[string]string{annotated("no-eviction")}, Never, ""},
		"the higher of two":          {"Deployment", 2, []map[string]string{annotated("high"), annotated("low")}, High, ""},
		"not a number": {"Deployment", 2, []map[string]string{annotated("4")}, Never,
			`annotation loadline.dev/eviction-ranking is "4": must be one of low, medium, high, no-eviction; it counts as no-eviction`},
		"not readable": {"Deployment", 2, []map[string]string{annotated("low"), annotated("Low")}, Never,
			`annotation loadline.dev/eviction-ranking is "Low": must be one of low, medium, high, no-eviction; it counts as no-eviction`},
	} {
		rank, problem := RankOf(c.kind, c.replicas, c.annotations...)
		require.Equal(t, c.want, rank, name)
		require.Equal(t, c.problem, problem, name)
	}
	require.Equal(t, "low medium high no-eviction", Low.String()+" "+Medium.String()+" "+High.String()+" "+Never.String())
}

func TestOptedOut(t *testing.T) {
	for value, want := range map[string]bool{"off": true, "on": false, "": true, "Off": true} {
		out, problem := OptedOut(nil, map[string]string{SharingAnnotation: value})
		require.Equal(t, want, out, value)
		require.Equal(t, value != "on" && value != "off", problem != "", value)
	}
	out, problem := OptedOut(nil, map[string]string{"other": "off"})
	require.False(t, out)
	require.Empty(t, problem)
	_, problem = OptedOut(map[string]string{SharingAnnotation: "false"})
	require.Equal(t, `annotation loadline.dev/sharing is "false": must be one of on, off; it counts as off`, problem)
}
