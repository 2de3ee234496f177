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
	for _, c := range []struct {
		err   error
		ends  bool // cancels the iteration in the first request
		asked int
	}{
		{errors.New("no answer"), true, 1},
		{errors.New("no answer"), false, 2},
		{nil, true, 2},
	} {
		pods := podsNamed("web-1-0", "web-1-1")
		r := newRunner(pods...)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		d := &backoffExecutor{Executor: r.Executor, err: c.err, onCall: func() {}}
		if c.ends {
			d.onCall = stop
		}
		r.Executor = d
		var backoffs []disruption.PodBackoff
		for _, pod := range pods {
			backoffs = append(backoffs, disruption.PodBackoff{Subject: disruption.Subject{Namespace: "shop", VPA: "web-vpa", Pod: pod.Name, UID: string(pod.UID)}})
		}
		r.run(ctx, disruption.Result{Backoffs: backoffs}, nil, noon)
		require.Equal(t, c.asked, d.calls, "%+v", c)
	}
}
