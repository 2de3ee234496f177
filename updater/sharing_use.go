package main

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

const (
	// nodeUseTime is how long an answer of the metrics API is awaited: a pass must not wait for it.
	nodeUseTime = 2 * time.Second
	// leastNodeUse is of how many passes a mean is at least: a node that is busy for a moment makes nobody leave.
	leastNodeUse = 3
)

// nodeUse gathers how much CPU of nodes is in use, between two rounds of sharing.
type nodeUse struct {
	metrics rest.Interface              // to ask the metrics API; nil: it is not known
	sums    map[string]resources.Amount // millicores, by node
	counts  map[string]int              // of the summands
	said    bool                        // that it cannot be read
}

// look adds what is in use now. That it cannot be read is said once: then nobody leaves for that.
func (u *nodeUse) look(ctx context.Context) {
	if u.metrics == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, nodeUseTime)
	defer cancel()
	used, err := client.NodeCPU(limited, u.metrics)
	if err != nil {
		if ctx.Err() == nil && !u.said {
			klog.FromContext(ctx).Info("It cannot be read how much CPU of nodes is in use, so no pod leaves its node for that, but only where bases do not fit", "reason", err)
			u.said = true
		}
		return
	}
	u.said = false
	if u.sums == nil {
		u.sums, u.counts = map[string]resources.Amount{}, map[string]int{}
	}
	for name := range u.sums {
		if _, found := used[name]; !found { // it is gone, or not measured any more
			u.forget(name)
		}
	}
	for name, cpu := range used {
		u.sums[name] += cpu
		u.counts[name]++
	}
}

func (u *nodeUse) forget(node string) {
	delete(u.sums, node)
	delete(u.counts, node)
}

// mean returns what was in use on average, of nodes that were looked at often enough since they were
// returned last.
func (u *nodeUse) mean() map[string]resources.Amount {
	used := make(map[string]resources.Amount, len(u.sums))
	for name, sum := range u.sums {
		if n := u.counts[name]; n >= leastNodeUse {
			used[name] = sum / resources.Amount(n)
			u.forget(name)
		}
	}
	return used
}
