package main

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
	"loadline.dev/loadline/updater/view"
)

// sharingInterval is the time between two rounds of sharing what nodes have left. Between
// them shares stay as they are.
const sharingInterval = 5 * time.Minute

// sharingRounds remembers the last round of sharing.
type sharingRounds struct {
	conditions *sharingConditions // nil: nothing is written
	window     time.Time          // when the five minutes began in which it was
	leaving    map[types.UID]bool // pods that were to leave their nodes
}

// share makes a round if one is due: the first pass of each five minutes, by the clock, does, so
// that it does not matter how often the updater is started.
func (l *Loop) share(ctx context.Context, now time.Time) {
	window := now.Truncate(sharingInterval)
	if window.Equal(l.sharing.window) {
		return
	}
	l.sharing.window = window
	found, err := l.reader.Share(ctx, now)
	if l.sharing.conditions != nil {
		l.sharing.conditions.write(ctx, found, now)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "It is not known what pods would share")
	}
	if found == nil || err != nil {
		l.sharing.leaving = nil
		l.metrics.SharingEnded()
		return
	}
	l.metrics.Shared(found, l.sharing.left(found))
	logSharing(ctx, found)
}

// left returns how many pods are to leave their nodes that were not in the last round.
func (r *sharingRounds) left(found *view.Sharing) (more int) {
	leaving := map[types.UID]bool{}
	for _, n := range found.Nodes {
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

// logSharing says for each node what sharing would do there, and for all why pods do not share.
func logSharing(ctx context.Context, found *view.Sharing) {
	log := klog.FromContext(ctx)
	for _, n := range found.Nodes {
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
		log.Info("Sharing, dry run", line...)
	}
	if len(found.Apart) > 0 {
		log.Info("Sharing, dry run: pods that do not share", "reasons", counted(found.Apart))
	}
	for _, name := range slices.Sorted(maps.Keys(found.Policies)) {
		line := []any{"policy", name, "pods", found.Policies[name].Pods}
		if apart := found.Policies[name].Apart; len(apart) > 0 {
			line = append(line, "workloadsThatShareLess", counted(apart))
		}
		log.Info("Sharing, dry run: a policy", line...)
	}
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
