package status

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// Clients read conditions by position and expect RecommendationProvided first. Only reference
// conditions may come before it. Each group is sorted by type. There is no condition Ready, because
// other tools wait for it.
func TestCompose_SortsOwnConditionsAfterRecommendationProvided(t *testing.T) {
	earlier := []vpav1.VerticalPodAutoscalerConditionType{vpav1.ConfigDeprecated, vpav1.ConfigUnsupported, vpav1.FetchingHistory, vpav1.LowConfidence, vpav1.NoPodsMatched}
	ours := []vpav1.VerticalPodAutoscalerConditionType{TargetConflict, TargetHeld, TargetUnsaved, InvalidRecipe, WriteLimited, MemoryGrowth, SufficientHistory, convert.SeparateMemoryLimit}
	says := []func(*Outcome){
		func(o *Outcome) { o.Recommendation = []Recommended{recommended("a")} },
		func(o *Outcome) { o.Pods = 1 },
		func(o *Outcome) { o.TargetError = "the target is gone" },
		func(o *Outcome) { o.Conflict = "VPA x is older" },
		func(o *Outcome) { o.Held = "container a" },
		func(o *Outcome) { o.MissingPoints = "container a" },
		func(o *Outcome) { o.Rising = "container a" },
		func(o *Outcome) { o.Unsaved = true },
		func(o *Outcome) { o.History = 49 * time.Hour },
		func(o *Outcome) { o.Observing = "shop" },
		func(o *Outcome) { o.Recipe = "a wrong name" },
		func(o *Outcome) { o.WriteLimited = true },
		func(o *Outcome) { o.MemoryLimits = "container a" },
	}
	seen := map[vpav1.VerticalPodAutoscalerConditionType]bool{}
	for which := range 1 << len(says) {
		var o Outcome
		for i, say := range says {
			if which&(1<<i) != 0 {
				say(&o)
			}
		}
		list := Compose(&vpav1.VerticalPodAutoscaler{}, o, now()).Conditions
		types := make([]vpav1.VerticalPodAutoscalerConditionType, len(list))
		for i := range list {
			types[i] = list[i].Type
			seen[types[i]] = true
		}
		at := slices.Index(types, vpav1.RecommendationProvided)
		if !slices.IsSorted(types[:max(at, 0)]) || !slices.IsSorted(types[at+1:]) {
			t.Fatalf("%v of %+v are not sorted", types, o)
		}
		if at < 0 || slices.ContainsFunc(types[:max(at, 0)], func(x vpav1.VerticalPodAutoscalerConditionType) bool { return !slices.Contains(earlier, x) }) {
			t.Fatalf("%v of %+v: RecommendationProvided must be there, and come first but for those of the reference", types, o)
		}
		if at > 0 && o.TargetError == "" && o.Pods > 0 {
			t.Fatalf("%v of %+v: RecommendationProvided must be the first", types, o)
		}
	}
	for _, x := range ours {
		require.True(t, seen[x], "%s was tried", x)
		delete(seen, x)
	}
	for _, x := range append(earlier, vpav1.RecommendationProvided) {
		delete(seen, x)
	}
	require.Empty(t, seen, "every condition is one of the reference or one of those that are listed here")
}

// Conditions stored under former names must not remain next to the new ones.
func TestCompose_RenamesStoredConditions(t *testing.T) {
	at := now().Add(-time.Hour)
	stored := func(types ...vpav1.VerticalPodAutoscalerConditionType) *vpav1.VerticalPodAutoscaler {
		vpa := &vpav1.VerticalPodAutoscaler{}
		for _, x := range types {
			vpa.Status.Conditions = append(vpa.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Type: x, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
		}
		return vpa
	}
	found := func(list []vpav1.VerticalPodAutoscalerCondition) (types []vpav1.VerticalPodAutoscalerConditionType) {
		for _, x := range list {
			types = append(types, x.Type)
			if x.Type == InvalidRecipe || x.Type == MemoryGrowth {
				require.True(t, x.LastTransitionTime.Time.Equal(at), "%s keeps its time", x.Type)
			}
		}
		return types
	}
	both := []vpav1.VerticalPodAutoscalerConditionType{"RisingMemory", "WrongRecipe"}
	holds := Outcome{Pods: 1, Recipe: "unknown recipe", Rising: "container a"}
	after := []vpav1.VerticalPodAutoscalerConditionType{vpav1.RecommendationProvided, InvalidRecipe, MemoryGrowth}
	for _, tc := range []struct {
		name    string
		stored  []vpav1.VerticalPodAutoscalerConditionType
		outcome Outcome
		want    []vpav1.VerticalPodAutoscalerConditionType
	}{
		{name: "still true", stored: both, outcome: holds, want: after},
		{name: "no longer true", stored: both, outcome: Outcome{Pods: 1}, want: after[:1]},
		{name: "after a downgrade", stored: append(slices.Clone(both), InvalidRecipe, MemoryGrowth), outcome: holds, want: after},
		{name: "no longer true after a downgrade", stored: append(slices.Clone(both), InvalidRecipe, MemoryGrowth), outcome: Outcome{Pods: 1}, want: after[:1]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, found(Compose(stored(tc.stored...), tc.outcome, now()).Conditions))
		})
	}
	t.Run("a VPA that is not evaluated", func(t *testing.T) {
		list := found(ComposeRefused(stored(both...), now()))
		require.Equal(t, []vpav1.VerticalPodAutoscalerConditionType{vpav1.ConfigUnsupported, vpav1.RecommendationProvided, InvalidRecipe, MemoryGrowth}, list)
	})
}
