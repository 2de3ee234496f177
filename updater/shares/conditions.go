package shares

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// Reasons of condition Sharing of a SizingPolicy, the first one that applies.
const (
	reasonNodesUnknown   = "NodesUnknown"
	reasonAnotherUpdater = "AnotherUpdater"
	reasonNodeAutoscaler = "NodeAutoscaler"

	// Of policies whose pods share.
	reasonShares            = "Shares"
	reasonNodeOvercommitted = "NodeOvercommitted" // bases alone are more than a node has
)

// Conditions decides whether pods share, and writes condition Sharing of SizingPolicies.
type Conditions struct {
	Status   policies.Status
	Policies *sizing.Policies
	// Confined: this updater reads one namespace alone, so the conditions of an updater that reads all take precedence.
	Confined       bool
	Nodes          snapshot.Informer        // nil: nodes cannot be read
	NodeAutoscaler *snapshot.NodeAutoscaler // set with Nodes
	// Election of updaters, with Kube. Nil: this process leads.
	Election *flags.Election
	Kube     kubernetes.Interface
}

// clusterSharing is the part of the conditions that is the same for all policies in mode On.
type clusterSharing struct {
	standings Standings
	obstacle  metav1.Condition // its reason is empty if there is none
	seldom    bool             // a node autoscaler seems to add and remove nodes
}

// cluster returns the common part of the conditions. Nil conditions, and those without a policy in mode On, are its zero
// value: no pod shares.
func (c *Conditions) cluster(ctx context.Context, now time.Time) (all clusterSharing) {
	if c == nil || !c.enabled() {
		return all
	}
	if c.Nodes == nil || !c.Nodes.HasSynced() {
		all.obstacle = notSharing(reasonNodesUnknown, ErrNodesUnknown.Error())
		return all
	}
	if c.Election != nil {
		switch holder, err := lease.Holder(ctx, c.Kube, *c.Election, now); {
		case err != nil:
			all.obstacle = notSharing(reasonAnotherUpdater, "acts as DryRun: it cannot be read whether another updater works beside this one: "+err.Error())
			return all
		case holder != "":
			all.obstacle = notSharing(reasonAnotherUpdater, "acts as DryRun: another updater holds the Lease: "+holder+"; let only one of them run, or give all of them --leader-elect")
			return all
		}
	}
	c.NodeAutoscaler.Look(ctx, now)
	all.standings = Standings{Usual: Active, BesideNodeAutoscaler: Active}
	switch {
	case !c.NodeAutoscaler.Known(): // it may be in a moment, so nobody leaves for that
		all.standings.Usual, all.seldom = Pending, true
		all.obstacle = notSharing(reasonNodeAutoscaler, "acts as DryRun: it cannot be read whether nodes are added and removed; with spec.sharing.nodeAutoscaler: Accept that does not matter")
	case c.NodeAutoscaler.Seen():
		all.standings.Usual, all.seldom = Ending, true
		all.obstacle = notSharing(reasonNodeAutoscaler, "acts as DryRun: nodes seem to be added and removed, and what sharing saves would be bought again: "+c.NodeAutoscaler.Sign()+
			"; spec.sharing.nodeAutoscaler: Accept shares all the same")
	}
	return all
}

// enabled reports whether a policy is in mode On.
func (c *Conditions) enabled() bool {
	policies := c.Policies.Now()
	return policies != nil && slices.ContainsFunc(policies.Objects(), func(p *loadlinev1alpha1.SizingPolicy) bool {
		return policies.Set().Policy(p.Name).Sharing.Mode == fleet.SharingOn
	})
}

// write updates the conditions after a round. No pod shares in a nil round.
func (c *Conditions) write(ctx context.Context, cluster clusterSharing, found *Round, now time.Time) {
	policies := c.Policies.Now()
	if policies == nil || c.Status.Client == nil {
		return
	}
	for _, p := range policies.Objects() {
		value := policies.Set().Policy(p.Name)
		if said := meta.FindStatusCondition(p.Status.Conditions, sizing.ConditionSharing); c.Confined && said != nil && said.Reason != reasonNodesUnknown {
			continue
		}
		var wanted *metav1.Condition
		if value.Sharing.Mode == fleet.SharingOn {
			wanted = new(cluster.of(value, found))
			wanted.ObservedGeneration, wanted.LastTransitionTime = p.Generation, metav1.NewTime(now.UTC().Truncate(time.Second))
		}
		if err := c.set(ctx, p, wanted); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Cannot write condition Sharing of a SizingPolicy, trying again in the next round", "policy", p.Name)
		}
	}
}

// of returns the condition of a policy.
func (c clusterSharing) of(p *fleet.Policy, found *Round) metav1.Condition {
	if c.obstacle.Reason != "" && (c.obstacle.Reason != reasonNodeAutoscaler || !p.Sharing.BesideNodeAutoscaler) {
		return c.obstacle
	}
	of := &Policy{}
	if found != nil && found.Policies[p.Name] != nil {
		of = found.Policies[p.Name]
	}
	held := ""
	if len(of.Held) > 0 {
		held = "pods of nodes on which nothing can be changed: " + counted(of.Held) + "; such a node is " + of.HeldOn
	}
	switch {
	case !of.Free && held != "":
		return notSharing(string(slices.Max(slices.Collect(maps.Keys(of.Held)))), "acts as DryRun: "+held)
	case of.Active > 0:
	case of.Apart[reason.ModeTooCautious] > 0:
		return notSharing(string(reason.ModeTooCautious), "acts as DryRun for workloads of which not all running pods may be changed: "+
			"On needs spec.rollout.mode Auto, or Canary once that has come to all pods, and no VPA that a person wrote in mode Off or Initial; "+
			"pods that have a share keep it: to give it back, set spec.sharing.mode: \"Off\" first, while pods may be changed")
	case of.Apart[reason.RecipeDoesNotShare] > 0:
		return notSharing(string(reason.RecipeDoesNotShare), "workloads do not share whose recipe is not made for it: name one that is in spec.recipe, such as "+recipesThatShare)
	}
	condition := metav1.Condition{Type: sizing.ConditionSharing, Status: metav1.ConditionTrue, Reason: reasonShares,
		Message: fmt.Sprintf("pods that share: %d", of.Sharing)}
	if len(of.Apart) > 0 {
		condition.Message += "; workloads that do not, or only in a dry run: " + counted(of.Apart)
	}
	if held != "" {
		condition.Message += "; " + held
	}
	if of.Overcommitted != "" {
		condition.Reason = reasonNodeOvercommitted
		condition.Message += "; what its pods use nearly always is more than a node has, such as " + of.Overcommitted + ": none of them is given more there"
	}
	return condition
}

// recipesThatShare are recipes to name in a message.
const recipesThatShare = `"loadline:cpu=shared,memory=following" or "cruisekube"`

func notSharing(reason, message string) metav1.Condition {
	return metav1.Condition{Type: sizing.ConditionSharing, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// set writes the condition of a policy if it differs. Nil removes it.
func (c *Conditions) set(ctx context.Context, p *loadlinev1alpha1.SizingPolicy, wanted *metav1.Condition) error {
	conditions := slices.Clone(p.Status.Conditions)
	switch {
	case wanted == nil && !meta.RemoveStatusCondition(&conditions, sizing.ConditionSharing):
		return nil
	case wanted != nil && !meta.SetStatusCondition(&conditions, *wanted):
		return nil
	}
	return c.Status.Write(ctx, p, conditions)
}
