package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Users who create pods control their annotations. Parsing this quantity takes the Kubernetes
// library minutes and gigabytes unless it is checked first.
func TestBoostedContainers_InvalidQuantityIsError(t *testing.T) {
	for _, quantity := range []string{`"1e-2147483647"`, `1e-2147483647`, `"1\u0065-2147483647"`} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{
			BoostAnnotationPrefix + "a": `{"requests":{"cpu":` + quantity + `},"limits":{}}`,
			BoostAnnotationPrefix + "b": `{"requests":{"cpu":"250m"},"limits":{}}`,
		}}}
		boosted, err := BoostedContainers(pod)
		require.ErrorContains(t, err, "pod ns/p: annotation "+BoostAnnotationPrefix+"a: ")
		require.Contains(t, boosted, "a")
		require.Empty(t, boosted["a"].Requests)
		other := boosted["b"].Requests
		require.EqualValues(t, 250, other.Cpu().MilliValue())
	}
}
