package model

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/usage"
)

// Any user may be able to create events, so annotations are arbitrary.
func FuzzEvictionOOMs(f *testing.F) {
	f.Add("a,b", "1Gi,2Gi", "memory,ephemeral-storage")
	f.Add("a", "1e99", "memory")
	f.Fuzz(func(t *testing.T, containers, used, resources string) {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: metav1.NewTime(now()),
				Annotations: map[string]string{offendingContainersAnnotation: containers, offendingUsageAnnotation: used, starvedResourceAnnotation: resources}},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p1"},
			Reason:         "Evicted",
		}
		ooms := EvictionOOMs(event)
		require.LessOrEqual(t, len(ooms), strings.Count(containers, ",")+1)
		m, store := newModel(Config{})
		m.PutPod(aPod("p1", nil, "a"), now())
		taken := 0
		for _, oom := range ooms {
			require.GreaterOrEqual(t, oom.Memory, oom.Limit)
			require.NotEmpty(t, oom.ID)
			if store.ObserveOOM(oom) == usage.Accepted {
				taken++
			}
		}
		require.LessOrEqual(t, taken, 1, "one event is one kill of a container")
		if peak, _, known := store.Peak(usage.ContainerKey{Namespace: "ns", Pod: "p1", Container: "a"}); known {
			require.Positive(t, peak)
		}
	})
}
