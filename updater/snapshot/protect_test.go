package snapshot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/target"
)

// New pods of a custom workload get the revision of its newest pod.
func TestProtectOlder_CustomWorkloads(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name   string
		kind   string
		labels []map[string]string // of the pods, oldest first
		want   []reason.Reason
	}{
		{name: "one revision", kind: "CloneSet", labels: []map[string]string{{"controller-revision-hash": "a"}, {"controller-revision-hash": "a"}},
			want: []reason.Reason{"", ""}},
		{name: "two revisions", kind: "CloneSet", labels: []map[string]string{{"controller-revision-hash": "a"}, {"controller-revision-hash": "b"}},
			want: []reason.Reason{reason.OlderRevision, ""}},
		{name: "two template hashes", kind: "CloneSet", labels: []map[string]string{{"pod-template-hash": "a"}, {"pod-template-hash": "b"}},
			want: []reason.Reason{reason.OlderRevision, ""}},
		{name: "no revisions", kind: "CloneSet", labels: []map[string]string{nil, {"app": "web"}}, want: []reason.Reason{"", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			by := &Owner{Key: target.NewKey("shop", "apps.example.com/v1", tc.kind, "web")}
			var pods []Pod
			for i, labels := range tc.labels {
				pods = append(pods, Pod{Owner: by, labels: labels, State: &State{Pod: disruption.Pod{Created: noon.Add(time.Duration(i) * time.Minute)}}})
			}
			protectOlder(pods)
			var got []reason.Reason
			for _, p := range pods {
				got = append(got, p.Protected)
			}
			require.Equal(t, tc.want, got)
		})
	}
}
