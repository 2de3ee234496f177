package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

// The API server rejects objects above 1.5 MiB.
func TestRecordStatus_IsBoundedByBytes(t *testing.T) {
	var containers []policy.Container
	for i := range 300 {
		containers = append(containers, policy.Container{Name: fmt.Sprintf("%s-%03d", strings.Repeat("x", 59), i),
			Requests: resources.Of(123, 123<<20), Limits: resources.Of(456, 456<<20)})
	}
	var s rollout.State
	for i := range 20 {
		s.Rounds = append(s.Rounds, rollout.Round{Time: time.Unix(int64(1000-i), 0), From: containers, To: containers, Outcome: rollout.Success})
	}
	r := RecordStatus(s)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Less(t, len(text), 512<<10)
	require.Len(t, r.Rounds, 20, "all rounds keep their outcome")
	require.Len(t, r.Rounds[0].From, 300, "the newest round keeps its sizes")
	require.Empty(t, r.Rounds[19].From)
	require.Equal(t, r, RecordStatus(RolloutState(&r)), "a record survives a round trip")
}
