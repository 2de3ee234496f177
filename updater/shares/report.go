package shares

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// Round is the result of a round: the shares of the pods by node.
type Round struct {
	Nodes []*NodeResult // sorted by name, only nodes with shares
	// Apart counts the pods without a share under a policy with sharing, by reason.
	Apart    map[reason.Reason]int
	Policies map[string]*Policy // with sharing, by name
}

// Policy counts the workloads of a SizingPolicy with sharing.
type Policy struct {
	Pods  int                   // that share, including dry run
	Apart map[reason.Reason]int // VPAs without sharing or in dry run, by reason
	// Active counts VPAs with shares in effect, Sharing their pods. Overcommitted is the first node
	// with bases that exceed its capacity.
	Active, Sharing int
	Overcommitted   string
	// Held counts pods on nodes with a problem, and HeldOn is the first such node. Free reports
	// that a pod of the policy is on a node without a problem.
	Held   map[reason.Reason]int
	HeldOn string
	Free   bool
}

// NodeResult is a node with pods that share.
type NodeResult struct {
	Name     string
	Active   bool          // shares are in effect, otherwise dry run; a node can have both
	Problem  reason.Reason // see nodeshare.Node
	Cordoned bool          // accepts no new pods, so nothing is saved
	Kinds    [resources.Kinds]bool
	Pods     int
	// Available is the capacity for all pods that share, Bases their steady-state demand, Headroom
	// the rest, and Requested their current requests.
	Available, Bases, Headroom, Requested sharing.Amounts
	// Saved is the sum of peaks minus the sum of shares, without pods that leave.
	Saved         sharing.Amounts
	Overcommitted [resources.Kinds]bool
	Shrink, Grow  int // pods with a share below, or above, a request, see worthMoving
	// Wanted reports that another pod needs the room of shrinking pods: for a deferred resize or a
	// peak after harm. It is also set for a first shrink.
	Wanted bool
	// Leaves are the pods that leave, in order. A pod still present since the last round is
	// included, and gets its share.
	Leaves []PodName
}

// PodName identifies a pod.
type PodName struct {
	UID  types.UID
	Name string // with namespace
}

// Metrics publish rounds.
type Metrics interface {
	// Shared publishes a round, and counts the pods that would newly leave their nodes.
	Shared(found *Round, leave int)
	SharingEnded()
}

// newlyLeaving counts dry-run evictions that the last round did not have.
func (r *Rounds) newlyLeaving(found *Round) (more int) {
	leaving := map[types.UID]bool{}
	for _, n := range found.Nodes {
		if n.Active {
			continue // counted when they are evicted
		}
		for _, p := range n.Leaves {
			if leaving[p.UID] = true; !r.leaving[p.UID] {
				more++
			}
		}
	}
	r.leaving = leaving
	return more
}

const maxLoggedLeaving = 10

// log logs the nodes with a changed log line, and the pods and workloads without sharing.
func (r *Rounds) log(ctx context.Context, found *Round) {
	log := klog.FromContext(ctx)
	logged := make(map[string]string, len(found.Nodes))
	acts := false
	for _, n := range found.Nodes {
		line := describeNode(n)
		prefix := logPrefix[n.Active]
		logged[n.Name] += prefix + fmt.Sprint(line...)
		if !strings.Contains(r.logged[n.Name], prefix+fmt.Sprint(line...)) {
			log.Info(prefix, line...)
		}
	}
	r.logged = logged
	for _, name := range slices.Sorted(maps.Keys(found.Policies)) {
		acts = acts || found.Policies[name].Active > 0
	}
	if len(found.Apart) > 0 {
		log.Info(logPrefix[acts]+": pods that do not share", "reasons", counted(found.Apart))
	}
	for _, name := range slices.Sorted(maps.Keys(found.Policies)) {
		of := found.Policies[name]
		line := []any{"policy", name, "pods", of.Pods}
		if len(of.Apart) > 0 {
			line = append(line, "workloadsWithoutSharing", counted(of.Apart))
		}
		log.Info(logPrefix[of.Active > 0]+": a policy", line...)
	}
}

var logPrefix = map[bool]string{true: "Sharing", false: "Sharing, dry run"}

func describeNode(n *NodeResult) []any {
	line := []any{"node", n.Name, "pods", n.Pods, "shrink", n.Shrink, "grow", n.Grow}
	for k := range resources.Kind(resources.Kinds) {
		if !n.Kinds[k] {
			continue
		}
		line = append(line, k.String(), fmt.Sprintf("available %s, bases %s, headroom %s, requested %s, saved %s",
			amount(k, n.Available), amount(k, n.Bases), amount(k, n.Headroom), amount(k, n.Requested), amount(k, n.Saved)))
		if n.Overcommitted[k] {
			line = append(line, k.String()+"Overcommitted", true)
		}
	}
	if len(n.Leaves) > 0 {
		names := make([]string, 0, maxLoggedLeaving)
		for _, p := range n.Leaves[:min(len(n.Leaves), maxLoggedLeaving)] {
			names = append(names, p.Name)
		}
		line = append(line, "leaving", len(n.Leaves), "examples", strings.Join(names, " "))
	}
	if n.Problem != "" {
		line = append(line, "problem", n.Problem)
	}
	if n.Cordoned {
		line = append(line, "cordoned", true)
	}
	return line
}

func amount(k resources.Kind, of sharing.Amounts) string {
	if k == resources.CPU {
		return fmt.Sprintf("%.3f cores", of[k]/1000)
	}
	return fmt.Sprintf("%.0f MiB", of[k]/(1<<20))
}

func counted[R ~string](reasons map[R]int) string {
	words := make([]string, 0, len(reasons))
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		words = append(words, fmt.Sprintf("%s=%d", r, reasons[r]))
	}
	return strings.Join(words, " ")
}

// Reasons of condition Sharing of a SizingPolicy. The first applicable one is used.
const (
	reasonNodesUnknown   = "NodesUnknown"
	reasonAnotherUpdater = "AnotherUpdater"
	reasonNodeAutoscaler = "NodeAutoscaler"

	// Of policies with shares in effect.
	reasonShares            = "Shares"
	reasonNodeOvercommitted = "NodeOvercommitted" // bases exceed the capacity of a node
)

// Conditions decides whether shares are in effect, and writes condition Sharing of SizingPolicies.
type Conditions struct {
	Status   policies.Status
	Policies *sizing.Policies
	// Confined is set if this updater reads a single namespace. The conditions of an updater that
	// reads all namespaces take precedence.
	Confined       bool
	Nodes          snapshot.Informer        // nil: nodes are not readable
	NodeAutoscaler *snapshot.NodeAutoscaler // set with Nodes
	// Election is the leader election of updaters, used with Kube. Nil: this process leads.
	Election *flags.Election
	Kube     kubernetes.Interface
}

// clusterSharing is the part of the conditions shared by all policies in mode On.
type clusterSharing struct {
	states       SharingStates
	obstacle     metav1.Condition // empty reason: none
	limitShrinks bool             // a node autoscaler seems to add and remove nodes
}

// statesInEffect returns zero, and no pod shares, for nil conditions and without a policy in mode On.
func (c *Conditions) statesInEffect(ctx context.Context, now time.Time) (all clusterSharing) {
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
			all.obstacle = notSharing(reasonAnotherUpdater, "acts as DryRun: failed to check for another updater: "+err.Error())
			return all
		case holder != "":
			all.obstacle = notSharing(reasonAnotherUpdater, "acts as DryRun: another updater holds the Lease: "+holder+"; let only one of them run, or give all of them --leader-elect")
			return all
		}
	}
	c.NodeAutoscaler.Refresh(ctx, now)
	all.states = SharingStates{Default: Active, WithNodeAutoscaler: Active}
	switch {
	case !c.NodeAutoscaler.Known(): // the state may become known soon, so no pod leaves yet
		all.states.Default, all.limitShrinks = Pending, true
		all.obstacle = notSharing(reasonNodeAutoscaler, "acts as DryRun: failed to check for a node autoscaler; to share anyway, set spec.sharing.nodeAutoscaler: Accept")
	case c.NodeAutoscaler.Detected():
		all.states.Default, all.limitShrinks = Ending, true
		all.obstacle = notSharing(reasonNodeAutoscaler, "acts as DryRun: detected a node autoscaler, which would offset the savings of sharing: "+c.NodeAutoscaler.Sign()+
			"; to share anyway, set spec.sharing.nodeAutoscaler: Accept")
	}
	return all
}

func (c *Conditions) enabled() bool {
	policies := c.Policies.Snapshot()
	return policies != nil && slices.ContainsFunc(policies.Objects(), func(p *loadlinev1alpha1.SizingPolicy) bool {
		return policies.Set().Policy(p.Name).Sharing.Mode == fleet.SharingOn
	})
}

// write updates the conditions after a round. In a nil round no pod shares.
func (c *Conditions) write(ctx context.Context, cluster clusterSharing, found *Round, now time.Time) {
	policies := c.Policies.Snapshot()
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
			wanted = new(cluster.condition(value, found))
			wanted.ObservedGeneration, wanted.LastTransitionTime = p.Generation, metav1.NewTime(now.UTC().Truncate(time.Second))
		}
		if err := c.set(ctx, p, wanted); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Failed to write condition Sharing of a SizingPolicy, trying again in the next round", "policy", p.Name)
		}
	}
}

func (c clusterSharing) condition(p *fleet.Policy, found *Round) metav1.Condition {
	if c.obstacle.Reason != "" && (c.obstacle.Reason != reasonNodeAutoscaler || !p.Sharing.AcceptsNodeAutoscaler) {
		return c.obstacle
	}
	of := &Policy{}
	if found != nil && found.Policies[p.Name] != nil {
		of = found.Policies[p.Name]
	}
	held := ""
	if len(of.Held) > 0 {
		held = "pods on nodes that do not allow changes: " + counted(of.Held) + "; such a node is " + of.HeldOn
	}
	switch {
	case !of.Free && held != "":
		return notSharing(string(slices.Max(slices.Collect(maps.Keys(of.Held)))), "acts as DryRun: "+held)
	case of.Active > 0:
	case of.Apart[reason.ModeTooConservative] > 0:
		return notSharing(string(reason.ModeTooConservative), "acts as DryRun for workloads with running pods that must not change: "+
			"On requires spec.rollout.mode Auto, or Canary after it reached all pods, and no user VPA in mode Off or Initial; "+
			"pods with a share keep it: to end it, set spec.sharing.mode: \"Off\" first, while pods may be changed")
	case of.Apart[reason.RecipeDoesNotShare] > 0:
		return notSharing(string(reason.RecipeDoesNotShare), "some workloads have a recipe that does not support sharing: set spec.recipe to one that does, such as "+recipesThatShare)
	}
	condition := metav1.Condition{Type: sizing.ConditionSharing, Status: metav1.ConditionTrue, Reason: reasonShares,
		Message: fmt.Sprintf("pods that share: %d", of.Sharing)}
	if len(of.Apart) > 0 {
		condition.Message += "; workloads without sharing, or only in dry run: " + counted(of.Apart)
	}
	if held != "" {
		condition.Message += "; " + held
	}
	if of.Overcommitted != "" {
		condition.Reason = reasonNodeOvercommitted
		condition.Message += "; the bases of the pods exceed the capacity of nodes, such as " + of.Overcommitted + ": pods there get no headroom"
	}
	return condition
}

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
