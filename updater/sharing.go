package updater

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
	"loadline.dev/loadline/updater/shares"
)

// sharingInterval is the default time between two rounds of sharing what nodes have left.
const sharingInterval = 5 * time.Minute

// sharingRounds remembers the last round of sharing.
type sharingRounds struct {
	// interval is the time between two rounds of sharing what nodes have left. Between them shares
	// stay as they are.
	interval   time.Duration
	conditions *sharingConditions // nil: nothing is written, and nobody shares in fact
	seldom     bool               // nodes are added and removed
	window     time.Time          // when the interval began in which it was
	failed     time.Time          // when those began in which one failed last
	leaving    map[types.UID]bool // pods that were to leave their nodes
	said       map[string]string  // what was said of each node
}

// share makes a round if one is due: the first pass of each interval, by the clock, does, so
// that it does not matter how often the updater is started. A round that fails, or for which no
// time is left, is made by the next pass.
func (l *Loop) share(ctx context.Context, in shares.Input, now time.Time) {
	window := now.Truncate(l.sharing.interval)
	if window.Equal(l.sharing.window) || ctx.Err() != nil {
		return
	}
	cluster := l.sharing.conditions.cluster(ctx, now)
	l.sharing.seldom = cluster.seldom
	found, err := l.shares.Share(ctx, in, now, cluster.standings)
	if ctx.Err() != nil {
		return
	}
	if l.sharing.conditions != nil && (err == nil || cluster.in.Reason != "") {
		l.sharing.conditions.write(ctx, cluster, found, now)
	}
	if err != nil && !window.Equal(l.sharing.failed) {
		klog.FromContext(ctx).Error(err, "It is not known what pods would share, trying again in the next pass")
	}
	if err != nil {
		l.sharing.failed = window
	} else {
		l.sharing.window = window
	}
	if found == nil || err != nil {
		l.sharing.leaving, l.sharing.said = nil, nil
		l.metrics.SharingEnded()
		return
	}
	l.metrics.Shared(found, l.sharing.left(found))
	l.sharing.log(ctx, found)
}

// left returns how many pods would leave their nodes that were not in the last round.
func (r *sharingRounds) left(found *shares.Round) (more int) {
	leaving := map[types.UID]bool{}
	for _, n := range found.Nodes {
		if n.Acts {
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

// mostLeaving is how many pods that are to leave a node are named in a line of the log.
const mostLeaving = 10

// log says what sharing would do on each node of which something else is to be said than in the
// last round, and for all why pods do not share.
func (r *sharingRounds) log(ctx context.Context, found *shares.Round) {
	log := klog.FromContext(ctx)
	said := make(map[string]string, len(found.Nodes))
	acts := false
	for _, n := range found.Nodes {
		line := describeNode(n)
		what := spoken[n.Acts]
		said[n.Name] += what + fmt.Sprint(line...)
		if !strings.Contains(r.said[n.Name], what+fmt.Sprint(line...)) {
			log.Info(what, line...)
		}
	}
	r.said = said
	for _, name := range slices.Sorted(maps.Keys(found.Policies)) {
		acts = acts || found.Policies[name].Acting > 0
	}
	if len(found.Apart) > 0 {
		log.Info(spoken[acts]+": pods that do not share", "reasons", counted(found.Apart))
	}
	for _, name := range slices.Sorted(maps.Keys(found.Policies)) {
		of := found.Policies[name]
		line := []any{"policy", name, "pods", of.Pods}
		if len(of.Apart) > 0 {
			line = append(line, "workloadsThatShareLess", counted(of.Apart))
		}
		log.Info(spoken[of.Acting > 0]+": a policy", line...)
	}
}

// spoken is how a line of the log begins, about those that share in fact, and those that would.
var spoken = map[bool]string{true: "Sharing", false: "Sharing, dry run"}

// describeNode returns what a line of the log says of a node, numbers as they are printed.
func describeNode(n *shares.Node) []any {
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

// counted prints how many there are for each reason.
func counted[R ~string](reasons map[R]int) string {
	words := make([]string, 0, len(reasons))
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		words = append(words, fmt.Sprintf("%s=%d", r, reasons[r]))
	}
	return strings.Join(words, " ")
}
