package actuate

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
)

// Rehearsal carries nothing out. It prints one line for each change, and every
// change ends with ErrRehearsed.
type Rehearsal struct{ Out io.Writer }

// Resize prints the change.
func (r *Rehearsal) Resize(_ context.Context, c Change) error { return r.print("resize", c) }

// Evict prints the change.
func (r *Rehearsal) Evict(_ context.Context, c Change) error { return r.print("evict", c) }

// Unboost prints the change.
func (r *Rehearsal) Unboost(_ context.Context, c Change) error {
	return r.print("take back the startup boost of", c)
}

// RecordBackoff prints nothing: the pods are among those left alone.
func (r *Rehearsal) RecordBackoff(context.Context, *corev1.Pod, disruption.Backoff) error { return nil }

// NotResizable prints nothing: the pod is among those left alone.
func (r *Rehearsal) NotResizable(context.Context, *corev1.Pod) {}

// LeftAlone prints a line for each pod.
func (r *Rehearsal) LeftAlone(skipped []disruption.Skip) {
	for _, s := range skipped {
		of := " (VPA " + s.VPA + ")"
		if s.VPA == "" { // it is not known
			of = ""
		}
		fmt.Fprintf(r.Out, "would leave pod %s alone%s: %s\n", klog.KRef(s.Namespace, s.Pod), of, s.Reason)
	}
}

// Room prints whether evictions wait for room on nodes, and why.
func (r *Rehearsal) Room(explained string) { fmt.Fprintln(r.Out, explained) }

// Event prints nothing: the pods are known.
func (r *Rehearsal) Event(*vpav1.VerticalPodAutoscaler, disruption.Reason, string) {}

func (r *Rehearsal) print(verb string, c Change) error {
	fmt.Fprintf(r.Out, "would %s pod %s (VPA %s, %s): %s\n", verb, klog.KObj(c.Target), c.VPA, c.Cause, Sizes(c))
	return ErrRehearsed
}

// Sizes describes for people what a change gives: for each container that
// changes, each kind from what it has to what it gets.
func Sizes(c Change) string {
	var parts []string
	current := convert.Pod(c.Target)
	printer := convert.NewPrinter(c.Reading.Object, c.Reading.Ranges)
	for i, has := range current.Containers {
		for _, f := range c.Containers {
			if f.Name != has.Name {
				continue
			}
			sizes := printer.Sizes(f, convert.Current(c.Target, c.Target.Spec.Containers[i]))
			parts = append(parts, changes(f.Name+" ", f.Requests, has.Requests, sizes.Requests)...)
			parts = append(parts, changes(f.Name+" limit ", f.Limits, has.Limits, sizes.Limits)...)
		}
	}
	return strings.Join(parts, ", ")
}

func changes(what string, wanted, has resources.List, printed corev1.ResourceList) []string {
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
		parts = append(parts, fmt.Sprintf("%s%s %s -> %s", what, k, before, q.String()))
	}
	return parts
}
