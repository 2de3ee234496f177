package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

// The reasons of condition Sharing of a SizingPolicy, from that which counts first. The recommender
// writes the other conditions.
const (
	reasonNodesUnknown   = "NodesUnknown"
	reasonAnotherUpdater = "AnotherUpdater"
	reasonNodeAutoscaler = "NodeAutoscaler"

	// Of policies whose pods share.
	reasonShares            = "Shares"
	reasonNodeOvercommitted = "NodeOvercommitted" // bases alone are more than a node has
)

// sharingConditions says of each policy that wants pods to share whether they do.
type sharingConditions struct {
	status   policyStatus
	policies *sizing.Policies
	// confined: this updater sees one namespace alone, so an updater that sees them all knows better.
	confined bool
	nodes    func() bool      // whether nodes can be seen; nil: they cannot
	growth   *snapshot.Growth // whether nodes are added and removed
	// holder returns which other updater holds the Lease of updaters; empty: none does. nil: this
	// one does.
	holder func(ctx context.Context, now time.Time) (string, error)
}

// clusterSharing is what holds for all policies in mode On.
type clusterSharing struct {
	standings shares.Standings
	in        metav1.Condition // what is in the way; its reason is empty if nothing is
	seldom    bool             // nodes seem to be added and removed
}

// cluster looks what holds for all policies in mode On. Without one it looks at nothing, nor does
// a nil one: then nobody shares.
func (c *sharingConditions) cluster(ctx context.Context, now time.Time) (all clusterSharing) {
	if c == nil || !c.asked() {
		return all
	}
	if c.nodes == nil || !c.nodes() {
		all.in = notSharing(reasonNodesUnknown, shares.ErrNodesUnknown.Error())
		return all
	}
	if c.holder != nil {
		switch holder, err := c.holder(ctx, now); {
		case err != nil:
			all.in = notSharing(reasonAnotherUpdater, "acts as DryRun: it cannot be read whether another updater works beside this one: "+err.Error())
			return all
		case holder != "":
			all.in = notSharing(reasonAnotherUpdater, "acts as DryRun: another updater holds the Lease: "+holder+"; let only one of them run, or give all of them --leader-elect")
			return all
		}
	}
	c.growth.Look(ctx, now)
	all.standings = shares.Standings{Usual: shares.Acts, BesideNodeAutoscaler: shares.Acts}
	switch {
	case !c.growth.Known(): // it may be in a moment, so nobody leaves for that
		all.standings.Usual, all.seldom = shares.Waits, true
		all.in = notSharing(reasonNodeAutoscaler, "acts as DryRun: it cannot be read whether nodes are added and removed; with spec.sharing.nodeAutoscaler: Accept that does not matter")
	case c.growth.Seen():
		all.standings.Usual, all.seldom = shares.Ends, true
		all.in = notSharing(reasonNodeAutoscaler, "acts as DryRun: nodes seem to be added and removed, and what sharing saves would be bought again: "+c.growth.Sign()+
			"; spec.sharing.nodeAutoscaler: Accept shares all the same")
	}
	return all
}

// asked reports whether a policy is in mode On.
func (c *sharingConditions) asked() bool {
	policies := c.policies.Now()
	return policies != nil && slices.ContainsFunc(policies.Objects(), func(p *loadlinev1alpha1.SizingPolicy) bool {
		return policies.Set().Policy(p.Name).Sharing.Mode == fleet.SharingOn
	})
}

// write brings the conditions to what a round found; nil: no pod shares.
func (c *sharingConditions) write(ctx context.Context, cluster clusterSharing, found *shares.Round, now time.Time) {
	policies := c.policies.Now()
	if policies == nil || c.status.client == nil {
		return
	}
	for _, p := range policies.Objects() {
		value := policies.Set().Policy(p.Name)
		if said := meta.FindStatusCondition(p.Status.Conditions, sizing.ConditionSharing); c.confined && said != nil && said.Reason != reasonNodesUnknown {
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
func (c clusterSharing) of(p *fleet.Policy, found *shares.Round) metav1.Condition {
	if c.in.Reason != "" && (c.in.Reason != reasonNodeAutoscaler || !p.Sharing.BesideNodeAutoscaler) {
		return c.in
	}
	of := &shares.Policy{}
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
	case of.Acting > 0:
	case of.Apart[reason.ModeTooCautious] > 0:
		return notSharing(string(reason.ModeTooCautious), "acts as DryRun for workloads of which not all running pods may be changed: "+
			"On needs spec.rollout.mode Auto, or Canary once that has come to all pods, and no VPA that a person wrote in mode Off or Initial; "+
			"pods that have a share keep it: to give it back, set spec.sharing.mode: \"Off\" first, while pods may be changed")
	case of.Apart[reason.RecipeDoesNotShare] > 0:
		return notSharing(string(reason.RecipeDoesNotShare), "workloads do not share whose recipe is not made for it: name one that is in spec.recipe, such as "+recipesThatShare)
	}
	shares := metav1.Condition{Type: sizing.ConditionSharing, Status: metav1.ConditionTrue, Reason: reasonShares,
		Message: fmt.Sprintf("pods that share: %d", of.Sharing)}
	if len(of.Apart) > 0 {
		shares.Message += "; workloads that do not, or only in a dry run: " + counted(of.Apart)
	}
	if held != "" {
		shares.Message += "; " + held
	}
	if of.Overcommitted != "" {
		shares.Reason = reasonNodeOvercommitted
		shares.Message += "; what its pods use nearly always is more than a node has, such as " + of.Overcommitted + ": none of them is given more there"
	}
	return shares
}

// recipesThatShare are recipes to name in a message.
const recipesThatShare = `"loadline:cpu=shared,memory=following" or "cruisekube"`

func notSharing(reason, message string) metav1.Condition {
	return metav1.Condition{Type: sizing.ConditionSharing, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// set writes the condition of a policy if it is not as it should be; nil: there must be none.
func (c *sharingConditions) set(ctx context.Context, p *loadlinev1alpha1.SizingPolicy, wanted *metav1.Condition) error {
	conditions := slices.Clone(p.Status.Conditions)
	switch {
	case wanted == nil && !meta.RemoveStatusCondition(&conditions, sizing.ConditionSharing):
		return nil
	case wanted != nil && !meta.SetStatusCondition(&conditions, *wanted):
		return nil
	}
	return c.status.write(ctx, p, conditions)
}

// policyStatus writes conditions of SizingPolicies.
type policyStatus struct {
	client versioned.Interface // nil: nothing is written
}

// write replaces the list of conditions of a policy, unless another client has written the policy
// meanwhile.
func (s policyStatus) write(ctx context.Context, p *loadlinev1alpha1.SizingPolicy, conditions []metav1.Condition) error {
	if s.client == nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("print the conditions: %w", err)
	}
	_, err = s.client.LoadlineV1alpha1().SizingPolicies().Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
