package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The last recommendation may cause a change at the same time.
func TestStoryFinal_IgnoresSubsequentChange(t *testing.T) {
	k := Key{Workload: "w"}
	s := Story{k: {{Event: recommendation, Target: "1"}, {Event: recommendation, Target: "2"}, {Event: "change", To: "2"}}, {}: {{Event: "kill"}}}
	e, some := s.Final(k)
	require.True(t, some)
	require.Equal(t, "2", e.Target)
	_, some = s.Final(Key{})
	require.False(t, some)
	_, some = s.Final(Key{Workload: "other"})
	require.False(t, some)
}
