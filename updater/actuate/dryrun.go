package actuate

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/updater/report"
)

// DryRun prints a line for each change and changes nothing. Every change returns ErrDryRun.
type DryRun struct {
	Out     io.Writer
	Checker *Checker // checks before an eviction; nil: none
}

// Resize prints the change.
func (r *DryRun) Resize(_ context.Context, c Change) (rollout.Change, error) {
	return rollout.Change{}, r.print("resize", c)
}

// Evict prints the change, unless the API server would refuse the replacement.
func (r *DryRun) Evict(ctx context.Context, c Change) error {
	if r.Checker != nil {
		if err := r.Checker.Paused(c); err != nil {
			return err
		}
		if err := r.Checker.Check(ctx, c); err != nil {
			return err
		}
	}
	return r.print("evict", c)
}

// RemoveBoost prints the change.
func (r *DryRun) RemoveBoost(_ context.Context, c Change) error {
	return r.print("remove the startup boost of", c)
}

// AddBoost prints that the pod has no startup boost.
func (r *DryRun) AddBoost(_ context.Context, c Change) error {
	fmt.Fprintf(r.Out, "would add to pod %s the missing startup boost of VPA %s\n", klog.KObj(c.Object), c.VPA)
	return ErrDryRun
}

// RecordBackoff does nothing. Skipped prints the pods.
func (r *DryRun) RecordBackoff(context.Context, *corev1.Pod, disruption.Backoff) error { return nil }

// MarkShare prints the mark.
func (r *DryRun) MarkShare(_ context.Context, pod *corev1.Pod, m sharing.Mark) error {
	fmt.Fprintf(r.Out, "would mark pod %s as sharing: %s\n", klog.KObj(pod), convert.FormatShared(m))
	return nil
}

// RemoveShare prints the end of sharing.
func (r *DryRun) RemoveShare(_ context.Context, pod *corev1.Pod) error {
	fmt.Fprintf(r.Out, "would end sharing of pod %s: it has its peak\n", klog.KObj(pod))
	return nil
}

// NotResizable does nothing. Skipped prints the pod.
func (r *DryRun) NotResizable(context.Context, *corev1.Pod) {}

// Skipped prints a line for each pod.
func (r *DryRun) Skipped(skipped []disruption.Skip) {
	for _, s := range skipped {
		of := " (VPA " + s.VPA + ")"
		if s.VPA == "" { // unknown
			of = ""
		}
		fmt.Fprintf(r.Out, "would skip pod %s%s: %s\n", klog.KRef(s.Namespace, s.Pod), of, s.Reason)
	}
}

// ReportCapacity prints whether evictions wait for free capacity, and why.
func (r *DryRun) ReportCapacity(explained string) { fmt.Fprintln(r.Out, explained) }

// Event prints the progress of rollouts. Skipped prints skips.
func (r *DryRun) Event(vpa report.Object, reason, message string, _ report.Details) {
	switch reason {
	case report.EventCanaryPromoted, report.EventCanaryHeld, report.EventCooldownActive, report.EventScheduleSkipped, report.EventHPAConflict, report.EventPolicyConflict:
		fmt.Fprintf(r.Out, "would emit event on VPA %s: %s: %s\n", klog.KObj(vpa), reason, message)
	}
}

// Note does nothing, since no change is judged.
func (r *DryRun) Note(context.Context, *corev1.Pod, rollout.Change) error { return nil }

// RemoveNote does nothing.
func (r *DryRun) RemoveNote(context.Context, *corev1.Pod) error { return nil }

// Revert does nothing. Judged prints the revert.
func (r *DryRun) Revert(context.Context, *corev1.Pod, []policy.ContainerTarget) error { return nil }

// Judged prints the verdict and the resources of a revert.
func (r *DryRun) Judged(_ *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget) {
	reason, message, sizes := describeVerdict(pod, v, gets)
	if sizes != "" {
		message += ": " + sizes
	}
	fmt.Fprintf(r.Out, "would emit event on pod %s: %s: %s\n", klog.KObj(pod), reason, message)
}

// RevertFailed does nothing, since no request fails.
func (r *DryRun) RevertFailed(*vpav1.VerticalPodAutoscaler, *corev1.Pod, rollout.Verdict, error) {
}

func (r *DryRun) print(verb string, c Change) error {
	fmt.Fprintf(r.Out, "would %s pod %s (VPA %s, %s): %s\n", verb, klog.KObj(c.Object), c.VPA, c.Cause, DescribeChange(c))
	return ErrDryRun
}

// DescribeChange returns the old and new resources of each changed container as text.
func DescribeChange(c Change) string {
	printer := convert.NewPrinter(c.Autoscaler.Object, *c.Autoscaler.Ranges)
	return describeResources(convert.Pod(c.Object).Containers, c.targets(), func(i int, f policy.ContainerTarget) corev1.ResourceRequirements {
		return printer.Sizes(f, convert.Current(c.Object, c.Object.Spec.Containers[i]))
	})
}

// describeResources calls printed to format the new resources of container i.
func describeResources(has []policy.Container, gets []policy.ContainerTarget, printed func(i int, f policy.ContainerTarget) corev1.ResourceRequirements) string {
	var parts []string
	for i, has := range has {
		for _, f := range gets {
			if f.Name != has.Name {
				continue
			}
			sizes := printed(i, f)
			parts = append(parts, describeKinds(f.Name+" ", f.Requests, has.Requests, sizes.Requests)...)
			parts = append(parts, describeKinds(f.Name+" limit ", f.Limits, has.Limits, sizes.Limits)...)
		}
	}
	return strings.Join(parts, ", ")
}

func describeKinds(prefix string, wanted, has resources.List, printed corev1.ResourceList) []string {
	var parts []string
	for k := range resources.Kind(resources.Kinds) {
		to, ok := wanted.Get(k)
		from, had := has.Get(k)
		if !ok || had && from == to {
			continue
		}
		before := "none"
		if had {
			q := convert.Quantity(k, from)
			before = q.String()
		}
		q := printed[convert.ResourceName(k)]
		parts = append(parts, fmt.Sprintf("%s%s %s -> %s", prefix, k, before, q.String()))
	}
	return parts
}

func withError(d report.Details, err error) report.Details {
	d[convert.EventErrorAnnotation] = err.Error()
	return d
}

func detailsOf(pod *corev1.Pod, sizes string) report.Details {
	d := report.Details{convert.EventPodAnnotation: pod.Name}
	if sizes != "" {
		d[convert.EventSizesAnnotation] = sizes
	}
	return d
}

// Event writes an event about a pod, a VPA or a SizingPolicy.
func (c *Cluster) Event(about report.Object, reason, message string, details report.Details) {
	kind := corev1.EventTypeNormal
	switch reason {
	case report.EventReverted, report.EventRevertDeferred, report.EventResizeFailed, report.EventResizeWithdrawn, report.EventResizeSkipped, report.EventFuseTripped:
		kind = corev1.EventTypeWarning
	}
	c.Events.AnnotatedEventf(about, details, kind, reason, "%s", message)
}

// directions describes the requests that rise or fall, such as "cpu up, memory down".
func directions(c Change) string {
	has, gets := convert.Pod(c.Object).Containers, c.targets()
	var texts []string
	for k := range resources.Kind(resources.Kinds) {
		var up, down bool
		for _, h := range has {
			at := slices.IndexFunc(gets, func(f policy.ContainerTarget) bool { return f.Name == h.Name })
			if at < 0 || !gets[at].Requests.Has(k) {
				continue
			}
			from, to := h.Requests.Value(k), gets[at].Requests.Value(k)
			up, down = up || to > from, down || to < from
		}
		switch {
		case up && down:
			texts = append(texts, k.String()+" up and down")
		case up:
			texts = append(texts, k.String()+" up")
		case down:
			texts = append(texts, k.String()+" down")
		}
	}
	if len(texts) == 0 {
		return "limits"
	}
	return strings.Join(texts, ", ")
}

// withReplacementTarget adds the published target to a sharing eviction, which plans none.
func withReplacementTarget(c Change) Change {
	if len(c.targets()) > 0 || c.Cause != disruption.NodeCrowded && c.Cause != disruption.MemoryRefused {
		return c
	}
	targets := convert.Recommendation(c.Autoscaler.Object.Status.Recommendation)
	for _, has := range convert.Pod(c.Object).Containers {
		if bounds, found := targets[has.Name]; found {
			c.Containers = append(c.Containers, policy.ContainerTarget{Name: has.Name, Requests: bounds.Target})
		}
	}
	return c
}

func withoutPodName(err error, pod string) string {
	const boundary = `([^a-z0-9.-]|^|$)`
	name := regexp.MustCompile(boundary + regexp.QuoteMeta(pod) + boundary)
	return name.ReplaceAllString(err.Error(), "${1}POD${2}")
}

// NotResizable emits an event: the node of the pod cannot grant the recommended resources.
func (c *Cluster) NotResizable(_ context.Context, pod *corev1.Pod) {
	c.Event(pod, report.EventNotResizable, "Not resized: its node cannot grant the recommended resources. Retried when the recommendation decreases", nil)
}

// Skipped does nothing. Skipped pods are logged.
func (c *Cluster) Skipped([]disruption.Skip) {}

// ReportCapacity does nothing. The loop logs changes of the capacity check.
func (c *Cluster) ReportCapacity(string) {}
