package status

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// Clients read conditions by position: the first is taken for RecommendationProvided. So whatever is
// said besides, conditions are sorted by type, none of ours comes before that, and only those come
// that the reference has there, too. Nor is there one that says Ready, for which others wait.
func TestConditionsOfOursComeAfterRecommendationProvided(t *testing.T) {
	earlier := []vpav1.VerticalPodAutoscalerConditionType{vpav1.ConfigDeprecated, vpav1.ConfigUnsupported, vpav1.FetchingHistory, vpav1.LowConfidence, vpav1.NoPodsMatched}
	ours := []vpav1.VerticalPodAutoscalerConditionType{TargetConflict, TargetHeld, TargetUnsaved, WrongRecipe, WriteLimited, RisingMemory, SufficientHistory, convert.SeparateMemoryLimit}
	says := []func(*Outcome){
		func(o *Outcome) { o.Recommendation = []Recommended{recommended("a")} },
		func(o *Outcome) { o.Pods = 1 },
		func(o *Outcome) { o.TargetError = "the target is gone" },
		func(o *Outcome) { o.Conflict = "VPA x is older" },
		func(o *Outcome) { o.Held = "container a" },
		func(o *Outcome) { o.Lacks = "container a" },
		func(o *Outcome) { o.Rising = "container a" },
		func(o *Outcome) { o.Unsaved = true },
		func(o *Outcome) { o.History = 49 * time.Hour },
		func(o *Outcome) { o.Observing = "shop" },
		func(o *Outcome) { o.Recipe = "a wrong name" },
		func(o *Outcome) { o.WriteLimited = true },
		func(o *Outcome) { o.Separate = "container a" },
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
		if !slices.IsSorted(types) {
			t.Fatalf("%v of %+v are not sorted", types, o)
		}
		at := slices.Index(types, vpav1.RecommendationProvided)
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
