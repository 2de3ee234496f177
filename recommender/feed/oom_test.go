package feed

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

// expected is an OOM as the conformance vectors write it.
type expected struct {
	Namespace, Pod, Container string
	MemoryBytes               int64
	Timestamp                 time.Time
}

func simplify(ooms []usage.OOM) []expected {
	list := []expected{}
	for _, o := range ooms {
		list = append(list, expected{o.Container.Namespace, o.Container.Pod, o.Container.Container, int64(o.Memory), o.At.UTC()})
	}
	return list
}

// vectors decodes input and expected values of the vectors of a kind.
func vectors(t *testing.T, kind string, use func(input, expected json.RawMessage)) {
	raw, err := os.ReadFile("../../testdata/vectors/recommender.json")
	require.NoError(t, err)
	var file struct {
		Vectors []struct {
			Kind            string
			Input, Expected json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	found := false
	for _, v := range file.Vectors {
		if v.Kind == kind {
			found = true
			use(v.Input, v.Expected)
		}
	}
	require.True(t, found)
}

func TestPodUpdatesOfTheVectors(t *testing.T) {
	vectors(t, "podUpdate", func(input, want json.RawMessage) {
		var in struct {
			Updates []struct{ Old, New *corev1.Pod }
		}
		var out struct{ OOMsPerUpdate [][]expected }
		require.NoError(t, json.Unmarshal(input, &in))
		require.NoError(t, json.Unmarshal(want, &out))
		for i, u := range in.Updates {
			require.Equal(t, out.OOMsPerUpdate[i], simplify(PodOOMs(u.Old, u.New)), "update %d", i)
			older, err := client.Trim(u.Old)
			require.NoError(t, err)
			newer, err := client.Trim(u.New)
			require.NoError(t, err)
			require.Equal(t, out.OOMsPerUpdate[i], simplify(PodOOMs(older.(*corev1.Pod), newer.(*corev1.Pod))), "trimmed update %d", i)
		}
	})
}

func TestEvictionEventsOfTheVectors(t *testing.T) {
	vectors(t, "evictionEvent", func(input, want json.RawMessage) {
		var in struct{ Event *corev1.Event }
		var out struct{ OOMs []expected }
		require.NoError(t, json.Unmarshal(input, &in))
		require.NoError(t, json.Unmarshal(want, &out))
		require.Equal(t, out.OOMs, simplify(EvictionOOMs(in.Event)))
	})
}

func TestEvictionEventsThatCannotBeReadGiveNothing(t *testing.T) {
	event := func(change func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}}
		e.Annotations = map[string]string{offenders: "a", offendersUsage: "1Mi", starved: "memory"}
		change(e)
		return e
	}
	require.Len(t, EvictionOOMs(event(func(*corev1.Event) {})), 1)
	for name, change := range map[string]func(*corev1.Event){
		"other reason":      func(e *corev1.Event) { e.Reason = "Killing" },
		"not a pod":         func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" },
		"no annotations":    func(e *corev1.Event) { e.Annotations = nil },
		"different lengths": func(e *corev1.Event) { e.Annotations[offenders] = "a,b" },
		"other resource":    func(e *corev1.Event) { e.Annotations[starved] = "ephemeral-storage" },
		"no quantity":       func(e *corev1.Event) { e.Annotations[offendersUsage] = "much" },
		"negative":          func(e *corev1.Event) { e.Annotations[offendersUsage] = "-5Mi" },
	} {
		require.Empty(t, EvictionOOMs(event(change)), name)
	}
}
