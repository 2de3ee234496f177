// Package plan computes the targets of pods and builds the view that is the input of
// disruption.Plan.
package plan

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/budgets"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// Planner plans iterations.
type Planner struct {
	Config   disruption.Config
	Nodes    *StaticCPUNodes
	Pods     corelisters.PodLister
	Capacity snapshot.CapacityReader
	Budgets  *budgets.Budgets
}

// Plan plans a view with disruption.Plan. If only recommendations may change, it plans without
// capacity first, and reads capacity and budgets only if there is an action.
func (p *Planner) Plan(ctx context.Context, view *disruption.View, previous disruption.State, sharesMove bool, now time.Time) disruption.Result {
	if err := p.Nodes.MarkStaticCPU(view, func(s disruption.Subject) *corev1.Pod { return snapshot.CurrentPod(p.Pods, s) }, now); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list nodes, counting only refused resizes as signs of the static CPU manager policy")
	}
	if sharesMove {
		p.readCapacity(ctx, view)
	}
	without := p.Config
	without.IgnoreCapacity = true
	result := planGuarded(ctx, *view, previous, without, now)
	if changes := slices.DeleteFunc(slices.Clone(result.Actions), func(a disruption.Action) bool { return a.SharesOnly() }); len(changes) > 0 {
		p.Budgets.AddBudgets(view, changes, now)
		if !sharesMove && !p.Config.IgnoreCapacity {
			p.readCapacity(ctx, view)
		}
		result = planGuarded(ctx, *view, previous, p.Config, now)
	}
	p.Budgets.RecordPlan(result.State, now)
	return result
}

func (p *Planner) readCapacity(ctx context.Context, view *disruption.View) {
	var err error
	if view.Room, err = p.Capacity.Room(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read cluster capacity, planning without capacity checks and shares")
	}
}

// planGuarded returns no changes after a panic that disruption.Plan does not attribute to one VPA.
func planGuarded(ctx context.Context, v disruption.View, previous disruption.State, c disruption.Config, now time.Time) disruption.Result {
	result := disruption.Result{State: previous}
	if err := serving.Guard(func() error { result = disruption.Plan(v, previous, c, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "Skipping all changes of this iteration: recovered from a panic of the planner, please report it")
	}
	return result
}

// NewView returns the view of an iteration.
func NewView(ctx context.Context, vpas []snapshot.VPA, all []policies.Effective, pods *snapshot.Pods, perVPAConfig bool) (view snapshot.View) {
	n := 0
	for i := range pods.ByVPA {
		n += len(pods.ByVPA[i])
	}
	b := builder{ctx: ctx, perVPAConfig: perVPAConfig, pods: make([]disruption.Pod, 0, n)}
	for i := range vpas {
		v, e, members := &vpas[i], &all[i], pods.ByVPA[i]
		switch {
		case len(members) == 0:
		case e.Skip != "" && v.Unreadable != "":
			skip(&view, v, members, e.Skip)
		case e.Skip != "": // a pod with a State has a share to end
			skip(&view, v, slices.DeleteFunc(slices.Clone(members), func(p snapshot.Pod) bool { return p.State != nil }), e.Skip)
			if shared := slices.DeleteFunc(slices.Clone(members), func(p snapshot.Pod) bool { return p.State == nil }); len(shared) > 0 {
				b.add(&view, i, v, e, shared)
			}
		case v.Unreadable != "":
			klog.FromContext(ctx).Error(errors.New(v.Unreadable), "Skipping VPA with its pods: it cannot be read", "vpa", v.Key(), "pods", len(members))
			skip(&view, v, members, reason.VPAUnreadable)
		default:
			b.add(&view, i, v, e, members)
		}
	}
	return view
}

func skip(w *snapshot.View, v *snapshot.VPA, pods []snapshot.Pod, why reason.Reason) {
	for i := range pods {
		p := &pods[i]
		w.Skipped = append(w.Skipped, disruption.Skip{Reason: why, Subject: disruption.Subject{Namespace: p.Namespace, VPA: v.Object.Name, Pod: p.Name, UID: string(p.UID)}})
	}
}

// builder adds VPAs to views. The pods and groups of all VPAs are in one slice each.
type builder struct {
	ctx          context.Context
	perVPAConfig bool
	pods         []disruption.Pod
	groups       []disruption.Group
}

func (b *builder) add(to *snapshot.View, index int, v *snapshot.VPA, e *policies.Effective, members []snapshot.Pod) {
	var core disruption.VPA
	err := serving.Guard(func() error { core = v.Core(b.perVPAConfig); return nil })
	if err != nil {
		klog.FromContext(b.ctx).Error(err, "Skipping VPA with its pods: it cannot be converted", "vpa", v.Key(), "pods", len(members))
		skip(to, v, members, reason.InternalError)
		return
	}
	core.Mode, core.Ungated, core.Held = e.Update, e.Ungated, e.Skip // with Skip, only shares end
	firstPod, firstGroup := len(b.pods), len(b.groups)
	states, owners := make([]*snapshot.State, 0, len(members)), make([]*snapshot.Owner, 0, 1)
	t := targets{vpa: v}
	for i := range members {
		m := &members[i]
		containers, err := t.forState(m.State)
		if err != nil {
			klog.FromContext(b.ctx).Error(err, "Skipping pod: its targets cannot be computed", "pod", klog.KRef(m.Namespace, m.Name), "vpa", v.Key())
			skip(to, v, members[i:i+1], reason.InternalError)
			continue
		}
		group := slices.Index(owners, m.Owner)
		if group < 0 {
			group, owners = len(owners), append(owners, m.Owner)
			b.groups = append(b.groups, disruption.Group{Key: m.Owner.Name, Replicas: m.Owner.Replicas, Rolling: m.Owner.Rolling})
		}
		pod := m.State.Pod
		pod.Containers, pod.Group, pod.Protected = containers, group, m.Protected
		pod.NodeBound = m.Owner.Key.Kind == "DaemonSet" && m.Owner.Key.Group == ""
		b.pods, states = append(b.pods, pod), append(states, m.State)
	}
	core.Pods, core.Groups = b.pods[firstPod:len(b.pods):len(b.pods)], b.groups[firstGroup:len(b.groups):len(b.groups)]
	// The scale of a custom workload is cached for minutes. If it has more pods meanwhile, the old
	// number would allow too many disruptions.
	for i, owner := range owners {
		if g := &core.Groups[i]; owner.Key.Group != "" && g.Replicas > 0 {
			live := 0
			for j := range core.Pods {
				if core.Pods[j].Group == i {
					live++
				}
			}
			g.Replicas = max(g.Replicas, live)
		}
	}
	to.VPAs, to.Index, to.States = append(to.VPAs, core), append(to.Index, index), append(to.States, states)
}

// targets reuses the targets of the last pod for a pod with equal resources.
type targets struct {
	vpa        *snapshot.VPA
	last       *snapshot.State
	containers []disruption.Container
}

func (t *targets) forState(s *snapshot.State) (containers []disruption.Container, err error) {
	defer serving.Recover(&err)
	if t.last == nil || !s.EqualResources(t.last) {
		t.last = nil
		t.containers = convert.WithTargets(s.Containers, *s.Sizing, t.vpa.Recommendation, t.vpa.Rules, t.vpa.Ranges.Ranges)
		t.last = s
	}
	return t.containers, nil
}
