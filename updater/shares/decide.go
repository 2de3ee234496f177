package shares

import (
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// facts decide what becomes of the share of a pod.
type facts struct {
	standing Standing
	kinds    [resources.Kinds]bool // that the pod shares, or shared by its mark
	ends     [resources.Kinds]bool // those of them that it shares no more
	mark     sharing.Mark          // zero: none
	harmed   bool                  // its share did harm that is not marked yet
	killed   bool                  // it ran out of memory a moment ago, or is not ready since
	restarts int                   // of its containers, in all
	now      time.Time
}

// decision is what becomes of the share of a pod.
type decision struct {
	cause disruption.Cause      // of its move; empty: it keeps what it has
	peak  [resources.Kinds]bool // kinds of which it gets its peak, and never less than it has. Of all others it gets its share
	mark  sharing.Mark          // to be written before it moves, but for kinds that have reached their peak
	early bool                  // the mark is written whether the pod can move or not
}

// decide follows this table, of which the first row that holds counts. What else gets its share.
//
//	standing     event                           gets its peak        cause          mark
//	Ends         -                               all                  ShareEnded     removed at the peak
//	Acts, Waits  new harm                        all                  ShareReverted  reverted, early
//	Acts, Waits  harm in the last 24 hours       all                  ShareReverted  -
//	Acts, Waits  killed                          memory               ShareReverted  -
//	Waits        -                               nothing moves
//	Acts         a kind is not shared any more   that kind            Shared         without the kind at its peak
//	Acts         -                               -                    Shared         the time, if the pod shrinks
func (f *facts) decide() decision {
	d := decision{cause: disruption.Shared, peak: f.ends, mark: f.mark}
	d.mark.Kinds = f.kinds
	switch {
	case f.standing == Ends:
		d.cause, d.mark = disruption.ShareEnded, f.mark
	case f.harmed:
		d.cause, d.peak, d.early = disruption.ShareReverted, f.kinds, true
		d.mark = f.marked(d.mark, true)
	case f.mark.Out(f.now):
		d.cause, d.peak = disruption.ShareReverted, f.kinds
	case f.killed:
		d.cause, d.peak[resources.Memory] = disruption.ShareReverted, true
	case f.standing == Waits:
		return decision{}
	}
	return d
}

// marked returns a mark with the time and the restarts of now.
func (f *facts) marked(m sharing.Mark, reverted bool) sharing.Mark {
	m.At, m.Restarts, m.Reverted = f.now.UTC().Truncate(time.Second), f.restarts, reverted
	return m
}
