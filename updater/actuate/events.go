package actuate

import (
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/updater/report"
)

// withError adds the text of an error.
func withError(d report.Details, err error) report.Details {
	d[convert.EventErrorAnnotation] = err.Error()
	return d
}

// detailsOf returns the details of an event that is about a pod and its sizes.
func detailsOf(pod *corev1.Pod, sizes string) report.Details {
	d := report.Details{convert.EventPodAnnotation: pod.Name}
	if sizes != "" {
		d[convert.EventSizesAnnotation] = sizes
	}
	return d
}

// event writes an event about an object.
func (c *Cluster) event(about report.Object, reason, message string, details report.Details) {
	kind := corev1.EventTypeNormal
	switch reason {
	case report.EventReverted, report.EventRevertDeferred, report.EventResizeFailed, report.EventResizeWithdrawn, report.EventResizeSkipped, report.EventFuseTripped:
		kind = corev1.EventTypeWarning
	}
	c.Events.AnnotatedEventf(about, details, kind, reason, "%s", message)
}

// Event writes an event on a VPA or a SizingPolicy.
func (c *Cluster) Event(about report.Object, reason, message string, details report.Details) {
	c.event(about, reason, message, details)
}

// directions describes sizes by the kinds whose requests rise or fall, such as "cpu up, memory down".
// The set of these texts is small, whatever the amounts are.
func directions(has []policy.Container, gets []policy.ContainerTarget) string {
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

// replacementOf returns what the replacement of a pod gets: for a pod that leaves because of what it
// shares the published target, because no amounts were planned for the pod itself.
func replacementOf(c Change) Change {
	if len(c.gets()) > 0 || c.Cause != disruption.NodeCrowded && c.Cause != disruption.MemoryRefused {
		return c
	}
	targets := convert.Recommendation(c.Autoscaler.Object.Status.Recommendation)
	for _, has := range convert.Pod(c.Target).Containers {
		if bounds, found := targets[has.Name]; found {
			c.Containers = append(c.Containers, policy.ContainerTarget{Name: has.Name, Requests: bounds.Target})
		}
	}
	return c
}

// Failed returns the event about a resize that the API server refused.
func Failed(c Change, err error) (message string, details report.Details) {
	return "A pod could not be resized: " + sameForAll(err, c.Pod), withError(detailsOf(c.Target, Sizes(c)), err)
}

// sameForAll returns the text of an error without the name of the pod that it is about.
func sameForAll(err error, pod string) string {
	const boundary = `([^a-z0-9.-]|^|$)`
	name := regexp.MustCompile(boundary + regexp.QuoteMeta(pod) + boundary)
	return name.ReplaceAllString(err.Error(), "${1}POD${2}")
}

// NotResizable emits an event: the node of the pod cannot grant the recommended resources.
func (c *Cluster) NotResizable(_ context.Context, pod *corev1.Pod) {
	c.event(pod, report.EventNotResizable, "Not resized: its node cannot grant the recommended resources. It is tried again when less is recommended", nil)
}

// Skipped does nothing. Skipped pods are logged.
func (c *Cluster) Skipped([]disruption.Skip) {}

// Room does nothing. Changes of the room check are logged.
func (c *Cluster) Room(string) {}
