package nodeload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
)

const (
	// syncTimeout bounds the wait for nodes, which never arrive without permission.
	syncTimeout = 30 * time.Second
	// unknownLoadTimeout is how long nodes keep the taint if the load of all nodes is unknown. A
	// restarted Prometheus or one bad response must not open all nodes at once.
	unknownLoadTimeout = 3 * time.Minute
	maxLoggedNodes     = 10
)

// Values of the label source, for Metrics.
const (
	SourcePrometheus = "prometheus" // the load of some or all nodes is unknown
	SourceAPIServer  = "apiserver"  // a read or a write of nodes failed
)

var (
	errNodesUnreadable = errors.New("list nodes: the cache has not synced, or permission is missing")
	errChanged         = errors.New("conflict with another client, retrying in the next round")
)

// Metrics receives the results of rounds.
type Metrics interface {
	NodeLoad(c Counts)
	NodeLoadFailed(source string)
}

// Counts are numbers of nodes after a round.
type Counts struct {
	Overloaded int // above the threshold
	Tainted    int // have the taint, or would in a dry run
	Capped     int // overloaded without the taint, due to Limits.MaxShare
	Unknown    int // with unknown load
}

// Watcher runs the rounds of the modes DryRun and On. All exported fields must be set.
type Watcher struct {
	Config   Config
	Source   *Source
	Kube     kubernetes.Interface
	Nodes    corelisters.NodeLister
	Informer interface{ HasSynced() bool } // of nodes
	Metrics  Metrics

	// dryRunTainted are the nodes with the taint in the last dry run. Nil: no dry run yet.
	dryRunTainted map[string]bool
	// unknownSince is the time of the first round without any load. Zero: some loads are available.
	unknownSince time.Time

	readReminder, loadReminder, writeReminder, cappedReminder serving.Reminder
}

// Run runs a round at once and then at every interval, until ctx ends. It leaves the taints to the
// next process.
func (w *Watcher) Run(ctx context.Context) {
	await, cancel := context.WithTimeout(ctx, syncTimeout)
	cache.WaitForCacheSync(await.Done(), w.Informer.HasSynced)
	cancel()
	runRounds(ctx, w.Config.Interval, w.RunOnce)
}

func runRounds(ctx context.Context, interval time.Duration, round func(ctx context.Context, now time.Time)) {
	bounded := func(now time.Time) {
		ctx, cancel := context.WithTimeout(ctx, interval)
		defer cancel()
		round(ctx, now)
	}
	if ctx.Err() == nil {
		bounded(time.Now())
	}
	serving.RunEvery(ctx, interval, nil, bounded, nil)
}

// RunOnce runs one round. It ends early when ctx does.
func (w *Watcher) RunOnce(ctx context.Context, now time.Time) {
	nodes, err := w.read()
	w.reportError(ctx, now, &w.readReminder, SourceAPIServer, err, "Failed to read nodes: no taint is added or removed", "Nodes can be read again")
	if err != nil {
		return
	}
	loads, err := w.Source.Loads(ctx, nodes, now)
	if ctx.Err() != nil {
		return // shutdown: missing loads mean nothing
	}
	w.reportError(ctx, now, &w.loadReminder, SourcePrometheus, err, "Failed to query the load of some or all nodes: nodes with unknown load lose the taint, but if all loads are unknown only after "+unknownLoadTimeout.String(), "Prometheus returns the load of nodes again")
	d := Decide(w.views(nodes, loads), w.Config.Limits)
	if w.isWithinTimeout(len(loads), now) {
		d.keepUnknown()
	}
	w.Metrics.NodeLoad(Counts{Overloaded: d.Overloaded, Tainted: len(d.Keep) + len(d.Taint), Capped: len(d.Capped), Unknown: d.Unknown})
	w.logCapped(ctx, &d, now)
	if w.Config.Mode == On {
		err := w.apply(ctx, nodes, &d)
		w.reportError(ctx, now, &w.writeReminder, SourceAPIServer, err, "Failed to write taints of nodes, retrying in the next round", "Nodes can be written again")
		return
	}
	w.logDryRun(ctx, &d)
}

// isWithinTimeout reports whether all loads are unknown, for less than unknownLoadTimeout.
func (w *Watcher) isWithinTimeout(known int, now time.Time) bool {
	switch {
	case known > 0:
		w.unknownSince = time.Time{}
		return false
	case w.unknownSince.IsZero():
		w.unknownSince = now
	}
	return now.Sub(w.unknownSince) < unknownLoadTimeout
}

func (w *Watcher) read() ([]*corev1.Node, error) {
	if !w.Informer.HasSynced() {
		return nil, errNodesUnreadable
	}
	nodes, err := w.Nodes.List(labels.Everything())
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, err
}

func (w *Watcher) views(nodes []*corev1.Node, loads map[string]float64) []Node {
	views := make([]Node, len(nodes))
	for i, n := range nodes {
		load, known := loads[n.Name]
		if !known {
			load = math.NaN()
		}
		tainted := Tainted(n)
		if w.dryRunTainted != nil {
			tainted = w.dryRunTainted[n.Name]
		}
		views[i] = Node{
			Name: n.Name, Load: load, Cores: n.Status.Capacity.Cpu().AsApproximateFloat64(),
			Tainted: tainted, Closed: n.Spec.Unschedulable || !convert.NodeReady(n) || isDedicated(n), Reserved: isReserved(n),
		}
	}
	return views
}

// apply removes taints first. A failed removal counts as tainted, so that MaxTainted holds. The
// error omits nodes that other clients changed since they were read.
func (w *Watcher) apply(ctx context.Context, nodes []*corev1.Node, d *Decision) error {
	byName := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
	}
	var errs []error
	log := klog.FromContext(ctx)
	update := func(c Change, on bool) bool {
		err := writeTaint(ctx, w.Kube, byName[c.Node], on)
		if errors.Is(err, errChanged) {
			log.V(2).Info("Node not written", "node", c.Node, "reason", err)
			return false
		}
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	notRemoved := 0
	for _, c := range d.Untaint {
		if !update(c, false) {
			notRemoved++
			continue
		}
		log.Info("Node takes new pods again", "node", c.Node, "reason", c.Reason, "load", loadText(c.Load))
	}
	for _, c := range d.Taint[:max(len(d.Taint)-max(notRemoved-d.FreePlaces, 0), 0)] {
		if update(c, true) {
			log.Info("Node is overloaded and takes no new pods", "node", c.Node, "load", loadText(c.Load), "taint", taint.ToString())
		}
	}
	if len(errs) > 1 {
		return fmt.Errorf("%w, and %d others", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}

func (w *Watcher) logDryRun(ctx context.Context, d *Decision) {
	for _, c := range d.Untaint {
		klog.FromContext(ctx).Info("Dry run: node would take new pods again", "node", c.Node, "reason", c.Reason, "load", loadText(c.Load))
	}
	w.dryRunTainted = map[string]bool{}
	for _, name := range d.Keep {
		w.dryRunTainted[name] = true
	}
	for _, c := range d.Taint {
		klog.FromContext(ctx).Info("Dry run: node is overloaded and would take no new pods", "node", c.Node, "load", loadText(c.Load), "taint", taint.ToString())
		w.dryRunTainted[c.Node] = true
	}
}

func loadText(load float64) string {
	if math.IsNaN(load) {
		return "unknown"
	}
	return fmt.Sprintf("%.2f", load)
}

func (w *Watcher) logCapped(ctx context.Context, d *Decision, now time.Time) {
	problem := ""
	if len(d.Capped) > 0 {
		problem = fmt.Sprintf("--node-load-max-tainted=%v allows the taint on %d of %d nodes that take new pods", w.Config.MaxShare, d.MaxTainted, d.Open)
		if d.ClosedTainted > 0 {
			problem += fmt.Sprintf("; closed nodes that keep it: %d", d.ClosedTainted)
		}
	}
	if due, _ := w.cappedReminder.Due(problem, now); due && problem != "" {
		klog.FromContext(ctx).Info("Overloaded nodes without taint: "+problem, "count", len(d.Capped), "nodes", joinNames(d.Capped))
	}
}

func joinNames(names []string) string {
	if len(names) > maxLoggedNodes {
		names = append(slices.Clone(names[:maxLoggedNodes]), "...")
	}
	return strings.Join(names, ", ")
}

// reportError logs when an error begins, changes or ends, and every ten minutes.
func (w *Watcher) reportError(ctx context.Context, now time.Time, reminder *serving.Reminder, source string, err error, message, recovered string) {
	if err != nil {
		w.Metrics.NodeLoadFailed(source)
	}
	remind(ctx, reminder, now, err, message, recovered)
}

func remind(ctx context.Context, reminder *serving.Reminder, now time.Time, err error, message, recovered string) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	due, lasted := reminder.Due(problem, now)
	switch {
	case due && err != nil:
		klog.FromContext(ctx).Error(err, message, "for", lasted.Round(time.Second))
	case due:
		klog.FromContext(ctx).Info(recovered, "after", lasted.Round(time.Second))
	}
}

func writeTaint(ctx context.Context, kube kubernetes.Interface, node *corev1.Node, on bool) error {
	body, err := taintPatch(node, on)
	if err == nil {
		_, err = kube.CoreV1().Nodes().Patch(client.WithoutRetries(ctx), node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("taints of node %s: %w", node.Name, errChanged)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("taints of node %s: %w: apply deploy/node-load for the permission", node.Name, err)
	}
	return fmt.Errorf("taints of node %s: %w", node.Name, err)
}
