package updater

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/disruption"
)

// deaf is an API server that takes no annotations; ask is called before each.
type deaf struct {
	executor

	asked int
	ask   func()
	err   error
}

func (d *deaf) RecordBackoff(context.Context, *corev1.Pod, disruption.Backoff) error {
	d.asked++
	d.ask()
	return d.err
}

// The lease is held as long as a pass lasts, and each request may take seconds.
func TestPausesThatCannotBeWrittenDoNotHoldThePass(t *testing.T) {
	for _, c := range []struct {
		err   error
		ends  bool // the pass, with the first request
		asked int
	}{
		{errors.New("no answer"), true, 1},
		{errors.New("no answer"), false, 2},
		{nil, true, 2},
	} {
		w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
		it, err := w.loop.read(t.Context(), noon, func(string) {})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		d := &deaf{executor: w.loop.executor, err: c.err, ask: func() {}}
		if c.ends {
			d.ask = stop
		}
		w.loop.executor = d
		var pauses []disruption.PodBackoff
		for _, name := range []string{"web-1-0", "web-1-1"} {
			pod := w.pod(name)
			pauses = append(pauses, disruption.PodBackoff{Subject: disruption.Subject{Namespace: "shop", VPA: "web-vpa", Pod: name, UID: string(pod.UID)}})
		}
		(&pass{Loop: w.loop, iteration: it}).pause(ctx, pauses)
		require.Equal(t, c.asked, d.asked, "%+v", c)
	}
}
