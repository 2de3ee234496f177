package disruption

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// blocked reports whether a pod must wait for another one that shares one of the keys
// and is being restarted.
func (p *plan) blocked(pod *Pod, keys []string) bool {
	_, _, blocked := p.restarting.Blocker(pod.UID, keys...)
	return blocked
}

// shared are the keys of what a pod shares with others: its owner, and its
// PodDisruptionBudgets.
func (p *plan) shared(v *VPA, pod *Pod) []string {
	owner := v.GroupOf(pod).Key
	if owner == "" {
		owner = v.Namespace + "/" + v.Name + "/" + strconv.Itoa(pod.Group)
	}
	return append(budgets(pod), "owner "+owner)
}

// budgets are the keys of the PodDisruptionBudgets that count a pod.
func budgets(pod *Pod) []string {
	keys := make([]string, len(pod.Budgets), len(pod.Budgets)+1)
	for i, name := range pod.Budgets {
		keys[i] = "budget " + pod.Namespace + "/" + name
	}
	return keys
}

// reserve takes from a budget the pods that are still ready but about to be restarted.
func (p *plan) reserve(v *VPA, b *Budget) {
	if p.restarting == nil {
		return
	}
	for i := range v.Pods {
		pod := &v.Pods[i]
		if one, holds := p.result.State.Recommended.Restarting(pod, p.now); holds {
			b.leaves(pod, one)
		}
	}
}

// awaited reports whether a restart of the pod was asked for and the pod does not show
// it yet. Caches may be behind.
func (p *plan) awaited(pod *Pod) bool {
	r, known := p.result.State.Recommended.Restarts[pod.UID]
	return known && !r.Over && pod.Ready && !pod.RestartPending()
}

// postponed is a resize that takes something from others of a budget or an owner, and was
// planned so far.
type postponed struct {
	vpa       *VPA
	pod       *Pod
	situation Situation
	cause     Cause
}

// postpone reports whether a resize is put off until the others of this plan have had the
// chance: it has been refused before. Otherwise one pod that may never be disrupted, or
// that always uses its memory, would keep all those from it that share something with it.
func (p *plan) postpone(r postponed) bool {
	if _, protected := p.before.Protected[r.pod.UID]; !protected || p.secondRound {
		return false
	}
	p.later = append(p.later, r)
	return true
}

// again plans what was put off, beginning with what was refused longest ago.
func (p *plan) again() {
	p.secondRound = true
	since := func(r postponed) time.Time { return p.before.Protected[r.pod.UID] }
	slices.SortStableFunc(p.later, func(a, b postponed) int {
		return cmp.Or(since(a).Compare(since(b)), cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	for len(p.later) > 0 {
		r := p.later[0]
		p.later = p.later[1:]
		p.onceMore(r)
	}
}

func (p *plan) onceMore(r postponed) {
	defer p.caught(r.vpa)
	denied := r.situation.Budget.Denies(r.pod)
	if denied != "" && !r.situation.needsNoBudget(r.pod) {
		p.skip(r.vpa, r.pod, denied)
		return
	}
	p.resize(r.vpa, r.pod, r.situation, denied, r.cause)
}
