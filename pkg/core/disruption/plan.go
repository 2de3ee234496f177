package disruption

import (
	"cmp"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/calm"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/room"
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
	Disrupts bool // the pod is ready, and would not be for a while; with MayEvict only if it comes to that

	Cures bool // a resize that gives memory to a pod that does not work for want of it

	// What Memory.Did remembers: whose pod it is, what is changed, and when the
	// newest pod of the owner was created.
	Owner  string
	Change calm.Change
	Newest time.Time
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
	Pauses  []Pause // to be written on pods, so that another process knows of them
	Memory  Memory  // for the next plan
}

// Pause is what is to be remembered of a pod that came back without the change for
// which the one before was evicted. Pod.Pause hands it to a later plan.
type Pause struct {
	Subject
	calm.Pause
}

// Plan decides about every pod of the view: each is in one Action or in one
// Skip. VPAs come in the order of namespace and name, the pods of a VPA the most
// urgent first. It changes neither the view nor the memory it is given.
func Plan(view View, memory Memory, c Config, now time.Time) Result {
	p := plan{config: c, now: now, before: memory}
	p.result.Memory = memory.next(now)
	if view.Room != nil {
		p.room = view.Room.Clone()
	}
	order := make([]*VPA, len(view.VPAs))
	pods := 0
	for i := range view.VPAs {
		order[i] = &view.VPAs[i]
		pods += len(order[i].Pods)
	}
	p.result.Skipped = make([]Skip, 0, pods)
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
	room   *room.Room // nil: not asked
	result Result
}

// candidate is a pod that is worth a change.
type candidate struct {
	pod *Pod
	Assessment
}

func (p *plan) vpa(v *VPA) {
	p.learn(v)
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

// learn sees from the pods of a VPA what came of the last changes.
func (p *plan) learn(v *VPA) {
	for i := range v.Pods {
		pod := &v.Pods[i]
		left := pod.Pause.Fruitless > 0 && pod.changed()
		if !left && len(p.result.Memory.Owners) == 0 {
			continue
		}
		key := v.group(pod).Key
		record, known := p.result.Memory.Owners[key]
		if left && key != "" {
			record, known = record.Resumed(pod.Pause, p.now), true
		}
		if !known {
			continue
		}
		next := pod.change()
		if pod.Boosted { // extra CPU hides what it got
			next.Forget(amount.CPU)
		}
		seen := record.See(pod.Created, next, p.now)
		if seen.Fruitless > record.Fruitless {
			p.result.Pauses = append(p.result.Pauses, Pause{subject(v, pod), seen.Pause})
		}
		p.result.Memory.keep(key, seen)
	}
}

// remember carries over what is known of a pod.
func (p *plan) remember(pod *Pod) {
	if pod.ResizeSince.IsZero() && (pod.Resize != NotResizing || pod.unanswered()) {
		p.result.Memory.Resizing[pod.UID] = p.before.since(pod, p.now)
	}
	if refused, known := p.before.Refused[pod.UID]; known && !p.before.granted(pod) {
		p.result.Memory.Refused[pod.UID] = refused
	}
	if try, known := p.before.Tries[pod.UID]; known && pod.changed() {
		p.result.Memory.Tries[pod.UID] = try
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

// evict plans an eviction unless it is refused already, or something else
// speaks against it.
func (p *plan) evict(v *VPA, pod *Pod, b *Budget, cause Cause, refused Reason) {
	if refused == "" {
		refused = p.unsuitable(v, pod)
	}
	if refused != "" {
		p.skip(v, pod, refused)
		return
	}
	b.Spend(pod)
	if p.room != nil {
		p.room.Keep(pod.need(), true)
	}
	p.add(v, pod, Action{Evict: true, Cause: cause, Disrupts: pod.Ready})
}

// unsuitable says why the pod must not be evicted now for the sake of its
// workload, or because it would find no place again.
func (p *plan) unsuitable(v *VPA, pod *Pod) Reason {
	if reason := p.restless(v, pod); reason != "" {
		return reason
	}
	if p.room == nil {
		return ""
	}
	return noRoom(p.room.Place(pod.need(), p.config.Autoscaled))
}

// restless says why nothing that disrupts the pod should happen to its workload
// now. A pod that is not ready is not spared for a rollout: the change may cure it.
func (p *plan) restless(v *VPA, pod *Pod) Reason {
	g := v.group(pod)
	record := p.result.Memory.Owners[g.Key]
	switch {
	case g.Rolling && pod.Ready:
		return RolloutUnderWay
	case record.BacksOff(p.now):
		return BackingOff
	}
	return p.settles(g, pod)
}

// settles says whether the change would undo the last one of the workload too
// soon. More memory for a pod that lacks it never does.
func (p *plan) settles(g Group, pod *Pod) Reason {
	record, known := p.result.Memory.Owners[g.Key]
	if known && record.Holds(pod.change(), p.config.Hold, p.now) {
		return Settling
	}
	return ""
}

// group returns the owner of a pod; the zero Group if it is not known.
func (v *VPA) group(p *Pod) Group {
	if p.Group < 0 || p.Group >= len(v.Groups) {
		return Group{}
	}
	return v.Groups[p.Group]
}

func (p *plan) add(v *VPA, pod *Pod, a Action) {
	a.Subject, a.Containers = subject(v, pod), pod.Fitted()
	a.Owner, a.Change = v.group(pod).Key, pod.change()
	for i := range v.Pods {
		if v.Pods[i].Group == pod.Group && v.Pods[i].Created.After(a.Newest) {
			a.Newest = v.Pods[i].Created
		}
	}
	p.result.Actions = append(p.result.Actions, a)
}

func (p *plan) skip(v *VPA, pod *Pod, reason Reason) {
	p.result.Skipped = append(p.result.Skipped, Skip{subject(v, pod), reason})
}

func subject(v *VPA, p *Pod) Subject {
	return Subject{Namespace: p.Namespace, VPA: v.Name, Pod: p.Name, UID: p.UID}
}

// change is what a change of the pod would change, in requests.
func (p *Pod) change() calm.Change {
	c := calm.Change{Before: calm.Sizes{}, After: calm.Sizes{}}
	for i := range p.Containers {
		if one := &p.Containers[i]; one.Observed {
			c.Before[one.Asked.Name], c.After[one.Asked.Name] = one.Asked.Requests, one.after().Requests
		}
	}
	return c
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
