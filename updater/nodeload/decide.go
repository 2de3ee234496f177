// Package nodeload keeps new pods off overloaded nodes. It taints a node while its load per CPU
// exceeds a threshold.
//
// A node with unknown load loses the taint. If the load of all nodes is unknown, this takes three
// minutes. The taints are the only persistent state, so any process can continue with them. It
// evicts no pods.
package nodeload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/serving"
)

// Node is the input of Decide about one node.
type Node struct {
	Name     string
	Load     float64 // running or waiting tasks, minimum of 2 minutes; NaN: unknown
	Cores    float64 // capacity in CPUs; 0: unknown
	Tainted  bool    // has the taint
	Closed   bool    // takes no ordinary pods: not ready, cordoned or otherwise tainted
	Reserved bool    // for the control plane
}

// loadPerCPU returns NaN if the load or the capacity is unknown.
func (n *Node) loadPerCPU() float64 {
	if n.Cores <= 0 {
		return math.NaN()
	}
	return n.Load / n.Cores
}

// Limits define overload and bound the number of tainted nodes.
type Limits struct {
	Threshold float64 // load per CPU above which a node is overloaded, > 0
	MaxShare  float64 // maximum share of open nodes with the taint, > 0 and < 1
}

// Reason is the reason why a node loses its taint.
type Reason string

// The reasons.
const (
	NotOverloaded Reason = "NotOverloaded"
	LoadUnknown   Reason = "LoadUnknown"  // or its capacity is unknown
	TooMany       Reason = "TooMany"      // others are more overloaded, and Limits.MaxShare is reached
	ControlPlane  Reason = "ControlPlane" // it is now reserved for it
)

// Change is a taint change of one node.
type Change struct {
	Node   string
	Load   float64 // per CPU; NaN: unknown
	Reason Reason  // empty: the node gets the taint
}

// Decision lists the nodes that get, keep and lose the taint. A node is open if it is neither
// closed nor reserved for the control plane.
type Decision struct {
	Keep    []string // nodes that keep the taint, by name
	Taint   []Change // nodes that get it, most overloaded first
	Untaint []Change // nodes that lose it, by name
	Capped  []string // overloaded without it due to MaxShare, most overloaded first

	Overloaded    int // nodes above the threshold
	Unknown       int // nodes with unknown load
	Open          int // open nodes
	MaxTainted    int // maximum number of tainted nodes, from MaxShare
	ClosedTainted int // closed nodes that keep it and count against MaxTainted
	FreePlaces    int // MaxTainted minus tainted nodes
}

// Decide returns the decision about nodes, which may be in any order.
//
// Reserved nodes lose the taint and do not count otherwise. Closed nodes take no new pods, so they
// never get the taint and do not count as open. An overloaded closed node keeps its taint and
// counts against MaxTainted, because it may open at any moment. If more nodes are overloaded than
// may be tainted, nodes with the taint come first for stability, then more overloaded nodes, then
// smaller names.
func Decide(nodes []Node, l Limits) Decision {
	var d Decision
	all := make([]*Node, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
	}
	slices.SortFunc(all, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	untaint := map[*Node]Reason{}
	var candidates []*Node
	for _, n := range all {
		load := n.loadPerCPU()
		if !n.Closed && !n.Reserved {
			d.Open++
		}
		switch {
		case n.Reserved:
			untaint[n] = ControlPlane
			continue
		case math.IsNaN(load):
			d.Unknown++
			untaint[n] = LoadUnknown
			continue
		case load <= l.Threshold:
			untaint[n] = NotOverloaded
			continue
		}
		d.Overloaded++
		if !n.Closed {
			candidates = append(candidates, n)
		} else if n.Tainted {
			d.ClosedTainted++
		}
	}
	slices.SortFunc(candidates, byPriority)
	d.MaxTainted = roundDown(l.MaxShare, d.Open)
	places := max(d.MaxTainted-d.ClosedTainted, 0)
	d.FreePlaces = max(places-len(candidates), 0)
	count := min(places, len(candidates))
	for _, n := range candidates[:count] {
		if !n.Tainted {
			d.Taint = append(d.Taint, Change{Node: n.Name, Load: n.loadPerCPU()})
		}
	}
	slices.SortFunc(candidates[count:], moreOverloaded)
	for _, n := range candidates[count:] {
		d.Capped = append(d.Capped, n.Name)
		untaint[n] = TooMany
	}
	for _, n := range all {
		if why, loses := untaint[n]; n.Tainted && loses {
			d.Untaint = append(d.Untaint, Change{Node: n.Name, Load: n.loadPerCPU(), Reason: why})
		} else if n.Tainted {
			d.Keep = append(d.Keep, n.Name)
		}
	}
	return d
}

func (d *Decision) keepUnknown() {
	d.Untaint = slices.DeleteFunc(d.Untaint, func(c Change) bool {
		if c.Reason == LoadUnknown {
			d.Keep = append(d.Keep, c.Node)
		}
		return c.Reason == LoadUnknown
	})
	slices.Sort(d.Keep)
}

func byPriority(a, b *Node) int {
	switch {
	case a.Tainted && !b.Tainted:
		return -1
	case b.Tainted && !a.Tainted:
		return 1
	}
	return moreOverloaded(a, b)
}

func moreOverloaded(a, b *Node) int {
	return cmp.Or(cmp.Compare(b.loadPerCPU(), a.loadPerCPU()), strings.Compare(a.Name, b.Name))
}

// roundDown corrects for floats: 0.29 × 100 is a little less than 29.
func roundDown(fraction float64, nodes int) int {
	const exact = 1e-9
	return int(math.Floor(fraction*float64(nodes) + exact))
}

// Clear removes the taint from all nodes, for the mode Off. It retries every minute until no node
// has the taint or ctx ends. It does nothing without permission to list nodes.
func Clear(ctx context.Context, kube kubernetes.Interface) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	var reminder serving.Reminder
	runRounds(ctx, time.Minute, func(ctx context.Context, now time.Time) {
		nodes, err := listTainted(ctx, kube)
		if apierrors.IsForbidden(err) {
			klog.FromContext(ctx).V(1).Info("Failed to list nodes with the taint "+TaintKey+" of earlier processes", "reason", err)
			done()
			return
		}
		for _, n := range nodes {
			failed := writeTaint(ctx, kube, n, false)
			if failed == nil {
				klog.FromContext(ctx).Info("Node takes new pods again: --node-load-taint is off", "node", n.Name)
			}
			err = errors.Join(err, failed)
		}
		if ctx.Err() == nil || err == nil {
			remind(ctx, &reminder, now, err, "Nodes may still have the taint "+TaintKey+", which --node-load-taint=off removes", "No node has the taint "+TaintKey+" any more")
		}
		if err == nil {
			done()
		}
	})
}

const pageSize = 500

func listTainted(ctx context.Context, kube kubernetes.Interface) (found []*corev1.Node, _ error) {
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := kube.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range page.Items {
			if Tainted(&page.Items[i]) {
				found = append(found, page.Items[i].DeepCopy()) // does not retain the whole page
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return found, nil
		}
	}
}

// Values of --node-load-taint.
const (
	Off    = "off"     // remove existing taints
	DryRun = "dry-run" // log and count the actions of On
	On     = "on"
)

// Shorter intervals burden Prometheus, longer ones keep wrong taints too long.
const (
	minInterval = time.Second
	maxInterval = 10 * time.Minute
)

// Config configures the taint of overloaded nodes.
type Config struct {
	Limits

	Mode     string        // Off, DryRun or On
	Metric   string        // name or PromQL expression of load1 by node
	Label    string        // label of its series with the node name or address
	Interval time.Duration // between two rounds, and the timeout of one
}

// DefaultConfig returns the metric of node_exporter with the label that every scrape sets.
func DefaultConfig() Config {
	return Config{Mode: Off, Metric: "node_load1", Label: "instance", Interval: time.Minute, Limits: Limits{Threshold: 1, MaxShare: 0.3}}
}

// AddFlags binds the group to fs.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Mode, "node-load-taint", c.Mode, "Whether overloaded nodes get the taint "+TaintKey+"=true:NoSchedule. off: removes such taints at the start. dry-run: writes nothing, logs and counts the actions of on. on: requires the permission of deploy/node-load. dry-run and on require --prometheus-address.")
	fs.StringVar(&c.Metric, "node-load-metric", c.Metric, "Metric, or PromQL expression, with the load of a node over one minute: the number of running and waiting tasks. It must exclude series that the exporter does not write, as node_load1{job=\"node-exporter\"} does.")
	fs.StringVar(&c.Label, "node-load-label", c.Label, "Label of --node-load-metric with the name or an address of the node, with or without a port.")
	fs.DurationVar(&c.Interval, "node-load-interval", c.Interval, "Time between two queries of node loads. It delays adding and removing the taint.")
	fs.Float64Var(&c.Threshold, "node-load-threshold", c.Threshold, "Load per CPU of the node's capacity. A node above it for two minutes is overloaded.")
	fs.Float64Var(&c.MaxShare, "node-load-max-tainted", c.MaxShare, "Maximum fraction of ready, uncordoned nodes with the taint, rounded down to whole nodes. More than 0, less than 1.")
}

// Validate returns all problems joined. prometheus is the address of Prometheus, or empty.
func (c *Config) Validate(prometheus string) error {
	return errors.Join(
		flags.Check(slices.Contains([]string{Off, DryRun, On}, c.Mode), "node-load-taint", c.Mode, "must be off, dry-run or on"),
		flags.Check(prometheus != "" || c.Mode != DryRun && c.Mode != On, "node-load-taint", c.Mode, "requires --prometheus-address"),
		flags.Check(c.Metric != "", "node-load-metric", `""`, "must be a metric such as node_load1, or a PromQL expression"),
		flags.Check(model.LegacyValidation.IsValidLabelName(c.Label), "node-load-label", c.Label, "must be the name of a label: letters, digits and underscores, no digit first"),
		flags.Check(c.Interval >= minInterval && c.Interval <= maxInterval, "node-load-interval", c.Interval, "must be from "+minInterval.String()+" to 10m"),
		flags.Check(c.Threshold > 0 && !math.IsInf(c.Threshold, 0), "node-load-threshold", c.Threshold, "must be more than 0"),
		flags.Check(c.MaxShare > 0 && c.MaxShare < 1, "node-load-max-tainted", c.MaxShare, "must be more than 0 and less than 1: some node must be left for new pods"),
	)
}

// TaintKey belongs to the updater with the effect NoSchedule and any value.
const TaintKey = "loadline.dev/overloaded"

var taint = corev1.Taint{Key: TaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}

func isOwnTaint(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }

// Tainted reports whether a node has the taint.
func Tainted(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, isOwnTaint) }

// isReserved ignores node labels: in small clusters, control plane nodes take ordinary pods.
func isReserved(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return (t.Key == "node-role.kubernetes.io/control-plane" || t.Key == "node-role.kubernetes.io/master") && t.Effect != corev1.TaintEffectPreferNoSchedule
	})
}

// isDedicated reports whether another taint keeps ordinary pods off a node.
func isDedicated(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return !isOwnTaint(t) && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute)
	})
}

// taintPatch replaces the whole list. The resourceVersion makes it fail if the node has changed.
func taintPatch(node *corev1.Node, on bool) ([]byte, error) {
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOwnTaint)
	if on {
		taints = append(taints, taint)
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
}

// Trim returns a cache.TransformFunc that keeps the fields of a Watcher and of other.
func Trim(other cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		trimmed, err := other(object)
		before, isNode := object.(*corev1.Node)
		if after, ok := trimmed.(*corev1.Node); ok && isNode {
			after.Spec.Taints, after.Status.Addresses = before.Spec.Taints, before.Status.Addresses
			if cpu, has := before.Status.Capacity[corev1.ResourceCPU]; has {
				after.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: cpu}
			}
		}
		return trimmed, err
	}
}
