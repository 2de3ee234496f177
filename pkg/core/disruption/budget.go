package disruption

import (
	"cmp"
	"slices"
)

// Budget counts how many pods of each owner may be away at once. It lasts for
// one plan; evictions and resizes draw from it alike.
type Budget struct {
	owners []owner
}

// owner is the state of one Group.
type owner struct {
	problem    Reason // why no pod of it may be disrupted, or empty
	wanted     int    // replicas
	tolerated  int    // how many of them may be away
	running    int    // pods that are not pending
	ready      int
	spent      int             // running pods disrupted by this plan
	spentReady int             // those of them that were ready
	leaving    []RestartHolder // ready pods that will not be for a while
}

// NewBudget counts the pods of a VPA.
func NewBudget(v *VPA, c Config) *Budget {
	b := &Budget{owners: make([]owner, len(v.Groups))}
	alive := make([]int, len(v.Groups))
	for i := range v.Pods {
		p := &v.Pods[i]
		o := b.of(p)
		if o == nil {
			continue
		}
		alive[p.Group]++
		if !p.Pending {
			o.running++
			if p.Ready {
				o.ready++
			}
		}
	}
	least := cmp.Or(v.MinReplicas, c.MinReplicas)
	for i, g := range v.Groups {
		o := &b.owners[i]
		o.wanted = g.Replicas
		if g.Replicas == Unknown {
			o.wanted = alive[i]
		}
		o.tolerated = int(float64(o.wanted) * c.Tolerance)
		switch {
		case o.wanted <= 0:
			o.problem = NoOwner
		case alive[i] < least:
			o.problem = BelowMinReplicas
		}
	}
	return b
}

// of returns the owner of a pod, nil if it is not known.
func (b *Budget) of(p *Pod) *owner {
	if p.Group < 0 || p.Group >= len(b.owners) {
		return nil
	}
	return &b.owners[p.Group]
}

// problem is why no pod of the owner may be disrupted at all, or empty.
func (b *Budget) problem(p *Pod) Reason {
	if o := b.of(p); o != nil {
		return o.problem
	}
	return NoOwner
}

// Denies returns why the pod may not be disrupted now, empty if it may. A
// pending pod costs nothing. One that is ready must leave enough
// ready pods behind, one that is not enough running ones.
func (b *Budget) Denies(p *Pod) Reason {
	if reason := b.problem(p); reason != "" {
		return reason
	}
	if p.Pending {
		return ""
	}
	o := b.of(p)
	leaving := len(o.leaving)
	if slices.ContainsFunc(o.leaving, func(h RestartHolder) bool { return h.UID == p.UID }) {
		leaving--
		if _, waits := BlockingRestart(p.UID, o.leaving); !waits {
			leaving = 0 // the others come after it
		}
	}
	have, spent := o.running, o.spent+leaving
	if p.Ready {
		have, spent = o.ready, o.spentReady+leaving
	}
	switch {
	case have-spent > o.wanted-o.tolerated:
		return ""
	// Without any tolerance one pod may still go while all are there.
	case have == o.wanted && o.tolerated == 0 && o.spent+leaving == 0:
		return ""
	case o.spent+leaving > 0:
		return BudgetSpent
	}
	return NoBudget
}

// leaves records that a pod that is still ready will not be for a while, because of
// an earlier plan. It does not stand in its own way.
func (b *Budget) leaves(p *Pod, one RestartHolder) {
	if o := b.of(p); o != nil && p.Ready {
		o.leaving = append(o.leaving, one)
	}
}

// Spend records that the pod is disrupted.
func (b *Budget) Spend(p *Pod) {
	o := b.of(p)
	if o == nil || p.Pending {
		return
	}
	o.spent++
	if p.Ready {
		o.spentReady++
	}
}
