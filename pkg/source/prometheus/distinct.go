package prometheus

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/usage"
)

// runLabels differ between the runs of one container, even on different nodes.
var runLabels = []string{"id", "name", "image", "instance", "node"}

// AmbiguityDetector finds containers with concurrent series from several clusters or several
// replicas of a server. Series that follow each other are runs of one container.
type AmbiguityDetector struct {
	usage     Usage
	tolerance time.Duration
	seen      map[usage.ContainerKey][]seriesGroup
	ambiguous map[usage.ContainerKey]error
}

// seriesGroup are the series of a container with the same labels, apart from run labels.
type seriesGroup struct {
	labels     map[string]string
	from, till time.Time
}

// lookback is how long a server repeats the last value of an ended series.
const lookback = 5 * time.Minute

// NewAmbiguityDetector takes the window of the values. Values of two runs overlap for that long.
func NewAmbiguityDetector(u Usage, window time.Duration) *AmbiguityDetector {
	return &AmbiguityDetector{u, max(window, lookback), map[usage.ContainerKey][]seriesGroup{}, map[usage.ContainerKey]error{}}
}

// Add records a series, and reports whether the container is still unambiguous.
func (d *AmbiguityDetector) Add(c usage.ContainerKey, labels map[string]string, points []Point) bool {
	if d.ambiguous[c] != nil || len(points) == 0 {
		return d.ambiguous[c] == nil
	}
	added := seriesGroup{labels, points[0].At, points[len(points)-1].At}
	known := d.seen[c]
	for i := range known {
		name, differs := d.difference(known[i].labels, labels)
		if !differs {
			known[i].from, known[i].till = earlier(known[i].from, added.from), later(known[i].till, added.till)
			return true
		}
		if known[i].overlaps(added, d.tolerance) {
			a, b := known[i].labels[name], labels[name]
			if b < a {
				a, b = b, a
			}
			d.ambiguous[c] = fmt.Errorf("container %s of pod %s/%s has series with %s=%q and %s=%q: select one, for example with --prometheus-matchers='%s=%q'",
				c.Container, c.Namespace, c.Pod, name, a, name, b, name, b)
			return false
		}
	}
	added.labels = maps.Clone(labels)
	d.seen[c] = append(known, added)
	return true
}

// MarkAmbiguous makes a container ambiguous.
func (d *AmbiguityDetector) MarkAmbiguous(c usage.ContainerKey, why error) {
	if d.ambiguous[c] == nil {
		d.ambiguous[c] = fmt.Errorf("container %s of pod %s/%s has %w", c.Container, c.Namespace, c.Pod, why)
	}
}

func (w seriesGroup) overlaps(o seriesGroup, tolerance time.Duration) bool {
	return w.from.Equal(o.from) && w.till.Equal(o.till) || earlier(w.till, o.till).Sub(later(w.from, o.from)) > tolerance
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// difference returns the first differing label by name that is not a run label.
func (d *AmbiguityDetector) difference(first, other map[string]string) (name string, differs bool) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(first)), maps.Keys(other))
	slices.Sort(names)
	for _, name := range names {
		if first[name] != other[name] && name != "__name__" && !slices.Contains(d.usage.runLabels(), name) {
			return name, true
		}
	}
	return "", false
}

// Ambiguous returns why a container is ambiguous, nil if it is not.
func (d *AmbiguityDetector) Ambiguous(c usage.ContainerKey) error { return d.ambiguous[c] }

// Err returns the problem of the first ambiguous container by name, and the number of further ones.
func (d *AmbiguityDetector) Err() error {
	var first error
	for _, err := range d.ambiguous {
		if first == nil || err.Error() < first.Error() {
			first = err
		}
	}
	if len(d.ambiguous) > 1 {
		return fmt.Errorf("%w (and %d more containers)", first, len(d.ambiguous)-1)
	}
	return first
}
