package older

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	olderv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/randfill"

	"loadline.dev/loadline/apis/autoscaling/v1"
)

var seed = flag.Int64("seed", 0, "seed of the random objects; 0 chooses one")

const rounds = 200 // random objects for each ratio of absent fields

// newer are the fields that release 1.5.1 lacks.
var newer = []string{
	"spec.resourcePolicy.containerPolicies.memoryAggregationIntervalCount",
	"spec.resourcePolicy.containerPolicies.memoryAggregationIntervalSeconds",
	"spec.resourcePolicy.containerPolicies.oomBumpUpRatio",
	"spec.resourcePolicy.containerPolicies.oomMinBumpUp",
	"spec.resourcePolicy.containerPolicies.startupBoost",
	"spec.startupBoost",
	"spec.updatePolicy.evictAfterOOMSeconds",
	"status.conditions.observedGeneration",
	"status.observedGeneration",
}

func TestOlderTypes_RoundTripThroughCurrentTypes(t *testing.T) {
	t.Run("VerticalPodAutoscaler", kept[olderv1.VerticalPodAutoscaler, v1.VerticalPodAutoscaler])
	t.Run("VerticalPodAutoscalerList", kept[olderv1.VerticalPodAutoscalerList, v1.VerticalPodAutoscalerList])
	t.Run("VerticalPodAutoscalerCheckpoint", kept[olderv1.VerticalPodAutoscalerCheckpoint, v1.VerticalPodAutoscalerCheckpoint])
	t.Run("our checkpoints", kept[v1.VerticalPodAutoscalerCheckpoint, olderv1.VerticalPodAutoscalerCheckpoint])
}

func kept[From, To any](t *testing.T) {
	each(t, func(original From) {
		var between To
		var returned From
		first := encode(t, original)
		decode(t, first, &between)
		second := encode(t, between)
		require.JSONEq(t, string(first), string(second))
		decode(t, second, &returned)
		require.True(t, equality.Semantic.DeepEqual(original, returned), "%s", first)
	})
}

// Every field in newer must be lost at least once, so that the list stays exact.
func TestOlderTypes_DropOnlyNewerFields(t *testing.T) {
	lost := map[string]bool{}
	each(t, func(original v1.VerticalPodAutoscaler) {
		var between olderv1.VerticalPodAutoscaler
		first := encode(t, original)
		decode(t, first, &between)
		var before, after map[string]any
		decode(t, first, &before)
		decode(t, encode(t, between), &after)
		remove(before, after, "", lost)
		require.Equal(t, before, after)
	})
	require.Equal(t, newer, slices.Sorted(maps.Keys(lost)))
}

func remove(from, other any, path string, lost map[string]bool) {
	switch from := from.(type) {
	case map[string]any:
		other, _ := other.(map[string]any)
		for name, value := range from {
			at := strings.TrimPrefix(path+"."+name, ".")
			if there, ok := other[name]; ok {
				remove(value, there, at, lost)
				continue
			}
			delete(from, name)
			lost[at] = true
		}
	case []any:
		if other, ok := other.([]any); ok && len(other) == len(from) {
			for i := range from {
				remove(from[i], other[i], path, lost)
			}
		}
	}
}

func each[T any](t *testing.T, do func(T)) {
	start := *seed
	if start == 0 {
		start = time.Now().UnixNano()
	}
	t.Logf("seed %d", start)
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	for _, absent := range []float64{1, 0.5, 0.1, 0} {
		fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, valueFuncs), rand.NewSource(start), codecs).NilChance(absent).NumElements(1, 3)
		for range rounds {
			var object T
			fill.Fill(&object)
			do(object)
		}
	}
}

func valueFuncs(serializer.CodecFactory) []any {
	return []any{
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(1+c.Int63n(1<<32), 0) },
		func(entry *metav1.ManagedFieldsEntry, c randfill.Continue) {
			c.FillNoCustom(entry)
			entry.Time, entry.FieldsV1 = nil, nil
		},
		func(names *[]corev1.ResourceName, c randfill.Continue) {
			c.FillNoCustom(names)
			if *names == nil {
				*names = []corev1.ResourceName{}
			}
		},
		func(amount *resource.Quantity, c randfill.Continue) {
			*amount = *resource.NewMilliQuantity(c.Int63n(1<<50), resource.DecimalSI)
			*amount = resource.MustParse(amount.String())
		},
	}
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return text
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, into), "read %s as %T", text, into)
}
