package updater

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/updater/actuate"
)

// hanging is an executor that evicts the pods of some VPAs only when the pass is over.
type hanging struct {
	executor

	hangs  map[string]bool // by VPA
	asked  []string
	served int // VPAs for which a pass has time
}

func (h *hanging) Evict(ctx context.Context, c actuate.Change) error {
	h.asked = append(h.asked, c.VPA)
	if h.hangs[c.VPA] || len(h.asked) > h.served {
		<-ctx.Done()
		return actuate.ErrRateLimited
	}
	return nil
}

// What uses up a whole pass, such as an API that hangs, must not do so in each.
func TestThePassAfterBeginsBehindWhatUsedItUp(t *testing.T) {
	for name, c := range map[string]struct {
		hangs  map[string]bool
		served int
		asked  []string
	}{
		"the first hangs": {map[string]bool{"a": true}, 9, []string{"a", "b", "c", "a", "a", "b", "c"}},
		"time for one":    {nil, 1, []string{"a", "b", "b", "c", "c", "a", "a"}},
	} {
		w := newWorld(t, Default(), named("a", "b", "c")...)
		it, err := w.loop.read(t.Context(), noon, func(string) {})
		require.NoError(t, err)
		h := &hanging{executor: w.loop.executor, hangs: c.hangs}
		w.loop.executor = h
		actions, scores := make([]disruption.Action, 0, 3), map[cache.ObjectName]*score{}
		for _, vpa := range []string{"a", "b", "c"} {
			name := cache.NewObjectName("shop", vpa)
			scores[name] = &score{Name: name}
			actions = append(actions, disruption.Action{Evict: true, Subject: disruption.Subject{Namespace: "shop", VPA: vpa, Pod: vpa, UID: vpa}})
		}
		var asked []string
		synctest.Test(t, func(t *testing.T) {
			for len(asked) < len(c.asked) {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				h.asked, h.served = nil, c.served
				(&pass{Loop: w.loop, iteration: it, scores: scores, now: noon}).carryOut(ctx, disruption.Result{Actions: actions})
				stop()
				asked = append(asked, h.asked...)
			}
		})
		require.Equal(t, c.asked, asked[:len(c.asked)], name)
	}
}
