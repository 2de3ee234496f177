package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/policy"
)

// Subject names one pod and its VPA, which is in the same namespace.
type Subject struct {
	Namespace, VPA, Pod, UID string
}

// Action is one intended change to one pod.
type Action struct {
	Subject
	Evict      bool            // else resize
	Cause      Cause           // why
	Containers []policy.Fitted // what the pod would get; containers left alone are missing
	Restarts   bool            // a resize restarts a container, so it is a disruption
	// MayEvict tells of a resize that the pod may be evicted at once if the
	// resize is refused: the mode and the budget allow it.
	MayEvict bool
}

// Skip is one pod that is left alone.
type Skip struct {
	Subject
	Reason Reason
}

// Result is a plan.
type Result struct {
	Actions []Action // in the order in which they are to be carried out
	Skipped []Skip
	Memory  Memory // for the next plan
}

// Plan decides about every pod of the view: each is in one Action or in one
// Skip. VPAs come in the order of namespace and name, the pods of a VPA the most
// urgent first. It changes neither the view nor the memory it is given.
func Plan(view View, memory Memory, c Config, now time.Time) Result {
	p := plan{config: c, now: now, before: memory}
	p.result.Memory = Memory{Resizing: map[string]time.Time{}, Refused: map[string]map[string]amount.Resources{}}
	order := make([]*VPA, len(view.VPAs))
	for i := range view.VPAs {
		order[i] = &view.VPAs[i]
	}
	slices.SortStableFunc(order, func(a, b *VPA) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, v := range order {
		p.vpa(v)
	}
	return p.result
}

// plan is a Result in the making.
type plan struct {
	config Config
	now    time.Time
	before Memory
	result Result
}

// candidate is a pod that is worth a change.
type candidate struct {
	pod *Pod
	Assessment
}

func (p *plan) vpa(v *VPA) {
	var candidates []candidate
	for i := range v.Pods {
		pod := &v.Pods[i]
		p.remember(pod)
		if v.Mode == Off || v.Mode == Initial {
			p.skip(v, pod, ModeOff)
		} else if a := Assess(v, pod, p.config, p.now); a.Reason != "" {
			p.skip(v, pod, a.Reason)
		} else {
			candidates = append(candidates, candidate{pod, a})
		}
	}
	if len(candidates) == 0 {
		return
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(a.moreUrgent(b.Assessment), cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	s := Situation{Mode: v.Mode, Budget: NewBudget(v, p.config), Memory: p.before, Config: p.config, Now: p.now}
	for _, c := range candidates {
		if v.Mode.resizes() {
			p.inPlace(v, c, s)
		} else {
			p.recreate(v, c, s)
		}
	}
}

// remember carries over what is known of a pod.
func (p *plan) remember(pod *Pod) {
	if pod.Resize != NotResizing && pod.ResizeSince.IsZero() {
		p.result.Memory.Resizing[pod.UID] = p.before.since(pod, p.now)
	}
	if refused, known := p.before.Refused[pod.UID]; known && !p.before.granted(pod) {
		p.result.Memory.Refused[pod.UID] = refused
	}
}

// recreate plans the eviction of a pod whose VPA does not resize.
func (p *plan) recreate(v *VPA, c candidate, s Situation) {
	cause := c.Cause()
	if c.pod.Resize != NotResizing {
		cause = ResizeStuck
	} else if !c.pod.asks() {
		p.skip(v, c.pod, WaitingForNode)
		return
	}
	p.evict(v, c.pod, s.Budget, cause, s.Evictable(c.pod))
}

func (p *plan) evict(v *VPA, pod *Pod, b *Budget, cause Cause, refused Reason) {
	if refused != "" {
		p.skip(v, pod, refused)
		return
	}
	b.Spend(pod)
	p.add(v, pod, Action{Evict: true, Cause: cause})
}

// inPlace plans the resize of a pod, or its eviction where an earlier resize
// did not come about.
func (p *plan) inPlace(v *VPA, c candidate, s Situation) {
	decision, reason := s.Decide(c.pod)
	cause := c.Cause()
	switch decision {
	case Evict:
		p.evict(v, c.pod, s.Budget, ResizeStuck, "")
		return
	case Go:
		reason = WaitingForNode // if there is nothing to ask for
	case Again:
		p.result.Memory.Refuse(c.pod.UID, c.pod.Fitted())
		cause = Retry
	case Busy:
		cause = Retry
	default:
		p.skip(v, c.pod, reason)
		return
	}
	if !c.pod.asks() {
		p.skip(v, c.pod, reason)
		return
	}
	refused := s.Budget.Refuses(c.pod)
	if refused != "" && !s.free(c.pod) {
		p.skip(v, c.pod, refused)
		return
	}
	s.Budget.Spend(c.pod)
	p.add(v, c.pod, Action{Cause: cause, Restarts: c.pod.restarts(), MayEvict: refused == "" && v.Mode == InPlaceOrRecreate})
}

func (p *plan) add(v *VPA, pod *Pod, a Action) {
	a.Subject, a.Containers = subject(v, pod), pod.Fitted()
	p.result.Actions = append(p.result.Actions, a)
}

func (p *plan) skip(v *VPA, pod *Pod, reason Reason) {
	p.result.Skipped = append(p.result.Skipped, Skip{subject(v, pod), reason})
}

func subject(v *VPA, p *Pod) Subject {
	return Subject{Namespace: p.Namespace, VPA: v.Name, Pod: p.Name, UID: p.UID}
}

// Fitted lists what the containers of the pod would get, those that the webhook
// did not see and those left alone excepted.
func (p *Pod) Fitted() []policy.Fitted {
	var all []policy.Fitted
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Observed && (!c.Fitted.Requests.Empty() || !c.Fitted.Limits.Empty()) {
			all = append(all, c.Fitted)
		}
	}
	return all
}
