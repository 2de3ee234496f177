package actuate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

// backoffExecutor calls onCall for each backoff and returns err.
type backoffExecutor struct {
	Executor

	calls  int
	onCall func()
	err    error
}

func (d *backoffExecutor) RecordBackoff(context.Context, *corev1.Pod, disruption.Backoff) error {
	d.calls++
	d.onCall()
	return d.err
}

// The lease is held during an iteration, and each request may take seconds.
func TestRecordBackoffs_StopsOnErrorAfterCancellation(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		ends  bool // cancels the iteration in the first request
		calls int
	}{
		{name: "error after cancellation", err: errors.New("no answer"), ends: true, calls: 1},
		{name: "error without cancellation", err: errors.New("no answer"), calls: 2},
		{name: "cancellation without error", ends: true, calls: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pods := podsNamed("web-1-0", "web-1-1")
			r := newRunner(pods...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			d := &backoffExecutor{Executor: r.Executor, err: tc.err, onCall: func() {}}
			if tc.ends {
				d.onCall = stop
			}
			r.Executor = d
			var backoffs []disruption.PodBackoff
			for _, pod := range pods {
				subject := disruption.Subject{Namespace: "shop", VPA: "web-vpa", Pod: pod.Name, UID: string(pod.UID)}
				backoffs = append(backoffs, disruption.PodBackoff{Subject: subject})
			}
			r.run(ctx, disruption.Result{Backoffs: backoffs}, nil, noon)
			require.Equal(t, tc.calls, d.calls)
		})
	}
}
