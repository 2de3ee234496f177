package prometheus

import (
	"fmt"
	"maps"
	"slices"

	"loadline.dev/loadline/pkg/core/usage"
)

// runLabels differ between the runs of one container, which may be on several nodes in turn.
var runLabels = []string{"__name__", "id", "name", "image", "instance", "node"}

// Distinct finds containers with series that are not those of its runs, because several clusters
// or several replicas of a server write them. The zero value has seen none.
type Distinct struct {
	usage     Usage
	seen      map[usage.ContainerKey]map[string]string
	ambiguous map[usage.ContainerKey]error
}

// NewDistinct returns a Distinct for series with the labels of a usage.
func NewDistinct(u Usage) *Distinct {
	return &Distinct{u, map[usage.ContainerKey]map[string]string{}, map[usage.ContainerKey]error{}}
}

// Add takes the labels of a series, and reports whether the container is still unambiguous.
func (d *Distinct) Add(c usage.ContainerKey, labels map[string]string) bool {
	first, known := d.seen[c]
	if !known {
		d.seen[c] = maps.Clone(labels)
		return true
	}
	if d.ambiguous[c] != nil {
		return false
	}
	names := slices.Collect(maps.Keys(labels))
	names = slices.AppendSeq(names, maps.Keys(first))
	slices.Sort(names)
	for _, name := range names {
		a, b := first[name], labels[name]
		if a == b || slices.Contains(runLabels, name) || slices.Contains([]string{d.usage.NamespaceLabel, d.usage.PodLabel, d.usage.ContainerLabel}, name) {
			continue
		}
		if b < a {
			a, b = b, a
		}
		d.ambiguous[c] = fmt.Errorf("container %s of pod %s/%s has series with %s=%q and %s=%q: select one, for example with --prometheus-matchers='%s=%q'",
			c.Container, c.Namespace, c.Pod, name, a, name, b, name, b)
		return false
	}
	return true
}

// Ambiguous returns why a container is ambiguous, nil if it is not.
func (d *Distinct) Ambiguous(c usage.ContainerKey) error { return d.ambiguous[c] }

// Err returns the problem of the first ambiguous container by name, and how many there are.
func (d *Distinct) Err() error {
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
