package policies

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/testkit/crowd"
)

// What a record of twenty rounds costs in the cache, its keys not included.
func BenchmarkCachedRecord(b *testing.B) {
	const count = 10_000
	for range b.N {
		kept := make([]any, 0, count)
		before := crowd.Live()
		for i := range count {
			object, err := trimRecord(record(fmt.Sprint("web", i), func(s *loadlinev1alpha1.SizingRecordStatus) {
				s.Phase, s.CooldownUntil = "Canary", new(at(5))
				for n := range 20 {
					s.Rounds = append(s.Rounds, round(-n, 3, "Success"))
				}
			}))
			require.NoError(b, err)
			kept = append(kept, object)
		}
		b.ReportMetric(float64(crowd.Live()-before)/count, "B/record")
		b.ReportMetric(0, "ns/op")
		require.Len(b, kept, count)
	}
}
