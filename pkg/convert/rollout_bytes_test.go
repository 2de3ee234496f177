package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

// With managed fields, a record stays below 256 KiB.
func TestRecordStatus_IsBoundedByBytes(t *testing.T) {
	var containers []policy.Container
	for i := range 300 {
		containers = append(containers, policy.Container{Name: fmt.Sprintf("%s-%03d", strings.Repeat("x", 59), i),
			Requests: resources.NewList(123, 123<<20), Limits: resources.NewList(456, 456<<20)})
	}
	s := rollout.State{Started: time.Unix(1, 0)}
	for i := range 20 {
		s.Rounds = append(s.Rounds, rollout.Round{Time: time.Unix(int64(1000-i), 0), From: containers, To: containers, Outcome: rollout.Success})
	}
	r := RecordStatus(s)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Less(t, len(text), 256<<10)
	require.Len(t, r.Rounds, 20, "all rounds keep their outcome")
	require.Len(t, r.Rounds[0].From, 300, "the newest round keeps its sizes")
	require.Empty(t, r.Rounds[19].From)
	require.Equal(t, r, RecordStatus(RolloutState(&r)), "a record survives a round trip")

	s.ProvenResources, s.HaltedTarget = containers, containers
	for _, c := range containers {
		s.RevertedResources = append(s.RevertedResources, rollout.RevertedResources{Container: c, At: time.Unix(1000, 0)})
	}
	for i := range 300 {
		s.Members = append(s.Members, rollout.Member{UID: fmt.Sprintf("12345678-1234-1234-1234-%012d", i), Outcome: rollout.Success})
	}
	r = RecordStatus(s)
	text, err = json.Marshal(r)
	require.NoError(t, err)
	require.Less(t, len(text)+managedBytes(r), 256<<10)
	require.Equal(t, 300, len(r.Reverted), "floors come first")
	require.Equal(t, 20, len(r.Rounds))
	require.True(t, apiequality.Semantic.DeepEqual(r, RecordStatus(RolloutState(&r))), "a record survives a round trip")
}

func managedBytes(r loadlinev1alpha1.SizingRecordStatus) (bytes int) {
	const fields = `"k:{\"name\":\"\"}":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:name":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}},"f:time":{}},`
	for _, c := range r.Reverted {
		bytes += len(fields) + len(c.Name)
	}
	for _, c := range append(r.Kept, r.HaltedTarget...) {
		bytes += len(fields) + len(c.Name)
	}
	return bytes + 90*len(r.CanaryMembers)
}
