package recommender

import (
	"time"

	"loadline.dev/loadline/recommender/model"
)

// podless is a VPA whose selector matches no pods.
type podless struct{ since, next time.Time }

// minRecheck is the time between the first two times that a target is read again.
const minRecheck = time.Minute

// recheckTargets lets the targets be read again whose selectors match no pods any more: a release may have
// changed them. The pauses double, as most of these targets have been scaled to zero.
func (l *Loop) recheckTargets(now time.Time) {
	found := map[*model.VPA]podless{}
	for _, v := range l.Model.VPAs() {
		if v.TargetError != nil || v.Pods() > 0 {
			continue
		}
		state, known := l.podless[v]
		if !known {
			state = podless{since: now, next: now}
		}
		if !now.Before(state.next) {
			l.Roster.Targets.Recheck(v.Object.Namespace, v.Object.Spec.TargetRef)
			state.next = now.Add(max(now.Sub(state.since), minRecheck))
		}
		found[v] = state
	}
	l.podless = found
}
