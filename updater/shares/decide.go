package shares

import (
	"time"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// facts are the input of decide.
type facts struct {
	standing Standing
	kinds    [resources.Kinds]bool // that the pod shares, or shared by its mark
	ends     [resources.Kinds]bool // kinds that it stops sharing
	mark     sharing.Mark          // zero: none
	harmed   bool                  // its share did harm that is not marked yet
	killed   bool                  // it ran out of memory a moment ago, or is not ready since
	restarts int                   // of its containers, in all
	now      time.Time
}

// decision is the next change of the share of a pod.
type decision struct {
	cause disruption.Cause      // empty: the pod keeps its requests
	peak  [resources.Kinds]bool // kinds that grow to the peak, never below the request. All others get the share
	mark  sharing.Mark          // written before the resize, without kinds at their peak
	early bool                  // the mark is written even if the resize does not fit
}

// decide uses the first matching row of this table. Kinds outside of the third column get their share.
//
//	standing         event                           gets its peak   cause          mark
//	Ending           -                               all             ShareEnded     removed at the peak
//	Active, Pending  new harm                        all             ShareReverted  reverted, early
//	Active, Pending  harm in the last 24 hours       all             ShareReverted  -
//	Active, Pending  killed                          memory          ShareReverted  -
//	Pending          -                               nothing moves
//	Active           a kind is no longer shared      that kind       Shared         without the kind at its peak
//	Active           -                               -               Shared         the time, if the pod shrinks
func (f *facts) decide() decision {
	d := decision{cause: disruption.Shared, peak: f.ends, mark: f.mark}
	d.mark.Kinds = f.kinds
	switch {
	case f.standing == Ending:
		d.cause, d.mark = disruption.ShareEnded, f.mark
	case f.harmed:
		d.cause, d.peak, d.early = disruption.ShareReverted, f.kinds, true
		d.mark = f.marked(d.mark, true)
	case f.mark.Out(f.now):
		d.cause, d.peak = disruption.ShareReverted, f.kinds
	case f.killed:
		d.cause, d.peak[resources.Memory] = disruption.ShareReverted, true
	case f.standing == Pending:
		return decision{}
	}
	return d
}

// marked returns a mark with the time and the restarts of now.
func (f *facts) marked(m sharing.Mark, reverted bool) sharing.Mark {
	m.At, m.Restarts, m.Reverted = f.now.UTC().Truncate(time.Second), f.restarts, reverted
	return m
}
