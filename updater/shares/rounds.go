package shares

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/snapshot"
)

// DefaultInterval is the default time between two rounds.
const DefaultInterval = 5 * time.Minute

// Metrics publish rounds.
type Metrics interface {
	// Shared publishes a round, and counts the pods that would leave their nodes since it.
	Shared(found *Round, leave int)
	// SharingEnded removes the metrics of the last round.
	SharingEnded()
}

// Rounds makes rounds at the start of each interval, and divides views by the last round.
type Rounds struct {
	Sharing    *Sharing
	Interval   time.Duration
	Conditions *Conditions // nil: no pod shares, as in a dry run
	Metrics    Metrics

	seldom  bool               // pods of a node shrink once an hour at most
	window  time.Time          // start of the interval of the last round
	failed  time.Time          // start of the interval of the last failed round
	leaving map[types.UID]bool // pods that would have left their nodes
	logged  map[string]string  // by node
}

// Run makes a round if one is due. The intervals follow the clock, so that restarts do not move them. The next iteration
// repeats a round that failed or did not end in time.
func (r *Rounds) Run(ctx context.Context, in Input, now time.Time) {
	if err := serving.Guard(func() error { r.run(ctx, in, now); return nil }); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to compute shares: recovered from panic")
		r.end()
	}
}

func (r *Rounds) run(ctx context.Context, in Input, now time.Time) {
	window := now.Truncate(r.Interval)
	if window.Equal(r.window) || ctx.Err() != nil {
		return
	}
	cluster := r.Conditions.cluster(ctx, now)
	r.seldom = cluster.seldom
	found, err := r.Sharing.Share(ctx, in, now, cluster.standings)
	if ctx.Err() != nil {
		return
	}
	if r.Conditions != nil && (err == nil || cluster.obstacle.Reason != "") {
		r.Conditions.write(ctx, cluster, found, now)
	}
	if err != nil && !window.Equal(r.failed) {
		klog.FromContext(ctx).Error(err, "Failed to compute shares, trying again in the next iteration")
	}
	if err != nil {
		r.failed = window
	} else {
		r.window = window
	}
	if found == nil || err != nil {
		r.end()
		return
	}
	r.Metrics.Shared(found, r.left(found))
	r.log(ctx, found)
}

// end forgets the last round.
func (r *Rounds) end() {
	r.leaving, r.logged = nil, nil
	r.Metrics.SharingEnded()
}

// DivideView divides a view by the last round.
func (r *Rounds) DivideView(ctx context.Context, in Input, view *snapshot.View, now time.Time) Division {
	return r.Sharing.Divide(ctx, in, view, r.seldom, now)
}

// left returns the number of pods that would leave their nodes, without those of the last round.
func (r *Rounds) left(found *Round) (more int) {
	leaving := map[types.UID]bool{}
	for _, n := range found.Nodes {
		if n.Active {
			continue // they are counted when they have left
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

// mostLeaving is the maximum number of leaving pods in a line of the log.
const mostLeaving = 10

// log logs the shares of the nodes whose line differs from the last round, and the pods and workloads that do not share.
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
			line = append(line, "workloadsThatShareLess", counted(of.Apart))
		}
		log.Info(logPrefix[of.Active > 0]+": a policy", line...)
	}
}

// logPrefix is the message for pods that share, and for pods that would.
var logPrefix = map[bool]string{true: "Sharing", false: "Sharing, dry run"}

// describeNode returns the keys and values of the log line of a node.
func describeNode(n *Node) []any {
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
		names := make([]string, 0, mostLeaving)
		for _, p := range n.Leaves[:min(len(n.Leaves), mostLeaving)] {
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

// amount prints cores or MiB.
func amount(k resources.Kind, of sharing.Amounts) string {
	if k == resources.CPU {
		return fmt.Sprintf("%.3f cores", of[k]/1000)
	}
	return fmt.Sprintf("%.0f MiB", of[k]/(1<<20))
}

// counted prints counts by reason.
func counted[R ~string](reasons map[R]int) string {
	words := make([]string, 0, len(reasons))
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		words = append(words, fmt.Sprintf("%s=%d", r, reasons[r]))
	}
	return strings.Join(words, " ")
}
