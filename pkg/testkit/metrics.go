package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// DescribeMetrics lists the metrics of a registry, sorted by name, one a line: name, type, labels,
// bucket bounds and help, separated by tabs. A vector without series is missing.
func DescribeMetrics(registry prometheus.Gatherer) (lines []string, err error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		labels, buckets := map[string]bool{}, []string(nil)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			buckets = append(buckets, fmt.Sprint(b.GetUpperBound()))
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", f.GetName(), strings.ToLower(f.GetType().String()),
			strings.Join(slices.Sorted(maps.Keys(labels)), ","), strings.Join(buckets, " "), f.GetHelp()))
	}
	return lines, nil
}
