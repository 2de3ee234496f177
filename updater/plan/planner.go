package plan

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/budgets"
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

// Plan plans the changes of a view. Shares always need the free capacity. Recommendations are planned without it first: if
// there is anything to change, they are planned again with capacity and budgets.
func (p *Planner) Plan(ctx context.Context, view *disruption.View, before disruption.State, sharesMove bool, now time.Time) disruption.Result {
	if err := p.Nodes.Mark(view, func(s disruption.Subject) *corev1.Pod { return snapshot.CurrentPod(p.Pods, s) }, now); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list nodes, counting only refused resizes as signs of the static CPU manager policy")
	}
	if sharesMove {
		p.readCapacity(ctx, view)
	}
	without := p.Config
	without.IgnoreCapacity = true
	result := plan(ctx, *view, before, without, now)
	if changes := slices.DeleteFunc(slices.Clone(result.Actions), func(a disruption.Action) bool { return a.SharesOnly() }); len(changes) > 0 {
		p.Budgets.Mark(view, changes, now)
		if !sharesMove && !p.Config.IgnoreCapacity {
			p.readCapacity(ctx, view)
		}
		result = plan(ctx, *view, before, p.Config, now)
	}
	p.Budgets.Planned(result.State, now)
	return result
}

// readCapacity adds the free capacity of nodes and quotas to a view.
func (p *Planner) readCapacity(ctx context.Context, view *disruption.View) {
	var err error
	if view.Room, err = p.Capacity.Room(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read cluster capacity, planning without capacity checks and shares")
	}
}

// plan returns a plan. After a panic outside of the part for one VPA, which the planner recovers from, it has no changes.
func plan(ctx context.Context, v disruption.View, before disruption.State, c disruption.Config, now time.Time) disruption.Result {
	result := disruption.Result{State: before}
	if err := serving.Guard(func() error { result = disruption.Plan(v, before, c, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "Skipping all changes of this iteration: recovered from a panic of the planner, please report it")
	}
	return result
}
