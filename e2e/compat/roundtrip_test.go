package compat

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	upstreamv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	upstreamv1beta2 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1beta2"
	"sigs.k8s.io/randfill"

	"loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/apis/autoscaling/v1beta2"
)

var seed = flag.Int64("seed", 0, "seed of the random objects; 0 chooses one")

const roundsPerDensity = 200

var densities = []float64{1, 0.5, 0.1, 0}

func TestRoundTrip_ThroughUpstreamTypes(t *testing.T) {
	t.Run("v1 VerticalPodAutoscaler", bothWays[v1.VerticalPodAutoscaler, upstreamv1.VerticalPodAutoscaler])
	t.Run("v1 VerticalPodAutoscalerList", bothWays[v1.VerticalPodAutoscalerList, upstreamv1.VerticalPodAutoscalerList])
	t.Run("v1 VerticalPodAutoscalerCheckpoint", bothWays[v1.VerticalPodAutoscalerCheckpoint, upstreamv1.VerticalPodAutoscalerCheckpoint])
	t.Run("v1 VerticalPodAutoscalerCheckpointList", bothWays[v1.VerticalPodAutoscalerCheckpointList, upstreamv1.VerticalPodAutoscalerCheckpointList])
	t.Run("v1beta2 VerticalPodAutoscaler", bothWays[v1beta2.VerticalPodAutoscaler, upstreamv1beta2.VerticalPodAutoscaler])
	t.Run("v1beta2 VerticalPodAutoscalerCheckpoint", bothWays[v1beta2.VerticalPodAutoscalerCheckpoint, upstreamv1beta2.VerticalPodAutoscalerCheckpoint])
}

// Covers the versions that a definition serves or served.
func TestSchemes_MatchUpstream(t *testing.T) {
	ours, upstream := runtime.NewScheme(), runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v1beta2.AddToScheme} {
		require.NoError(t, add(ours))
	}
	for _, add := range []func(*runtime.Scheme) error{upstreamv1.AddToScheme, upstreamv1beta2.AddToScheme} {
		require.NoError(t, add(upstream))
	}
	for kind := range upstream.AllKnownTypes() {
		require.True(t, ours.Recognizes(kind), "our scheme lacks %s", kind)
	}
	for kind := range ours.AllKnownTypes() {
		require.True(t, upstream.Recognizes(kind), "upstream's scheme lacks %s", kind)
	}
}

// Old recommenders read checkpoints of new ones, so the encoding must be identical byte for byte.
func TestCheckpoint_EncodesLikeUpstream(t *testing.T) {
	const text = `{
		"lastUpdateTime": "2024-06-03T12:00:05Z",
		"version": "v3",
		"cpuHistogram": {
			"referenceTimestamp": "2024-06-04T00:00:00Z",
			"bucketWeights": {"3": 10000, "7": 3217, "12": 41, "20": 1, "175": 4294967295},
			"totalWeight": 37.81568542494924
		},
		"memoryHistogram": {"referenceTimestamp": null, "bucketWeights": {"0": 1}, "totalWeight": 1e-7},
		"firstSampleStart": "2024-05-01T00:10:00Z",
		"lastSampleStart": null,
		"totalSamplesCount": 9007199254740993
	}`
	var ours v1.VerticalPodAutoscalerCheckpointStatus
	var upstream upstreamv1.VerticalPodAutoscalerCheckpointStatus
	decode(t, []byte(text), &ours)
	decode(t, []byte(text), &upstream)

	require.Equal(t, map[int]uint32{3: 10000, 7: 3217, 12: 41, 20: 1, 175: 4294967295}, ours.CPUHistogram.BucketWeights)
	require.Equal(t, 37.81568542494924, ours.CPUHistogram.TotalWeight)
	require.True(t, ours.MemoryHistogram.ReferenceTimestamp.IsZero())
	require.Equal(t, 9007199254740993, ours.TotalSamplesCount)
	require.Equal(t, string(encode(t, upstream)), string(encode(t, ours)))
	require.JSONEq(t, text, string(encode(t, ours)))

	empty := string(encode(t, upstreamv1.VerticalPodAutoscalerCheckpointStatus{}))
	require.Equal(t, empty, string(encode(t, v1.VerticalPodAutoscalerCheckpointStatus{})))
}

// bothWays sends random objects of each side's type through the other side's type and back.
func bothWays[Ours, Upstream any](t *testing.T) {
	start := *seed
	if start == 0 {
		start = time.Now().UnixNano()
	}
	t.Logf("seed %d", start)
	source := rand.NewSource(start)
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	for _, absent := range densities {
		fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, valueFuncs), source, codecs).
			NilChance(absent).NumElements(0, 3)
		for range roundsPerDensity {
			there[Ours, Upstream](t, fill)
			there[Upstream, Ours](t, fill)
		}
	}
}

// there fills a random From and requires that To reads every field, encodes to the same text, and
// decodes to the same From.
func there[From, To any](t *testing.T, fill *randfill.Filler) {
	t.Helper()
	var original, returned From
	var between To
	fill.Fill(&original)
	first := encode(t, original)
	decode(t, first, &between)
	second := encode(t, between)
	requireSameText(t, first, second)
	decode(t, second, &returned)
	// Empty lists and maps are omitted from the text. Semantic equality treats nil and empty as
	// equal.
	require.True(t, equality.Semantic.DeepEqual(original, returned), "%T changed on its way through %T:\n%s", original, between, first)
}

// requireSameText compares texts byte for byte, and prints only the fields that differ.
func requireSameText(t *testing.T, first, second []byte) {
	t.Helper()
	if bytes.Equal(first, second) {
		return
	}
	var before, after any
	decode(t, first, &before)
	decode(t, second, &after)
	t.Fatalf("the text differs (- before, + after the other side):\n%s", cmp.Diff(before, after))
}

// valueFuncs generate values that survive encoding: times with the precision of the wire format,
// and canonical quantities.
func valueFuncs(serializer.CodecFactory) []any {
	return []any{
		func(at *metav1.Time, c randfill.Continue) {
			if c.Bool() {
				*at = metav1.Unix(c.Int63n(1<<32), 0)
			}
		},
		func(entry *metav1.ManagedFieldsEntry, c randfill.Continue) {
			c.FillNoCustom(entry)
			entry.Time, entry.FieldsV1 = nil, nil
		},
		// A pointer to a nil list is written as null and read as a nil pointer. A pointer to an
		// empty list must survive.
		func(names *[]corev1.ResourceName, c randfill.Continue) {
			c.FillNoCustom(names)
			if *names == nil {
				*names = []corev1.ResourceName{}
			}
		},
		func(amount *resource.Quantity, c randfill.Continue) {
			format := []resource.Format{resource.DecimalSI, resource.BinarySI}[c.Intn(2)]
			*amount = *resource.NewMilliQuantity(c.Int63n(1<<50)-1<<20, format)
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
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(into), "read %s as %T", text, into)
}
