package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type metric struct {
	program, name, kind string
	labels              []string
	help                string
}

type metrics map[string]metric

var programs = []string{"recommender", "updater", "admission-controller"}

// externalMetrics are exposed by kube-state-metrics.
var externalMetrics = metrics{
	"kube_pod_container_resource_requests": {labels: []string{"namespace", "pod", "container", "resource"}},
	"kube_verticalpodautoscaler_status_recommendation_containerrecommendations_target": {
		labels: []string{"namespace", "verticalpodautoscaler", "container", "resource", "unit"}},
	"kube_verticalpodautoscaler_status_recommendation_containerrecommendations_uncappedtarget": {
		labels: []string{"namespace", "verticalpodautoscaler", "container", "resource", "unit"}},
}

// readMetrics reads the metric lists in the test data of the programs, in the format of
// testkit.DescribeMetrics.
func readMetrics(root string) (metrics, error) {
	served := metrics{}
	for _, program := range programs {
		path := filepath.Join(root, program, "testdata", "metrics.golden")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(columns) != 5 {
				return nil, fmt.Errorf("%s: %q has %d columns, not name, type, labels, buckets and help", path, line, len(columns))
			}
			m := metric{program: program, name: columns[0], kind: columns[1], help: columns[4]}
			if columns[2] != "" {
				m.labels = strings.Split(columns[2], ",")
			}
			served[m.name] = m
		}
	}
	return served, nil
}

var (
	selector = regexp.MustCompile(`\b((?:vpa|loadline|kube)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\b(?:by|on|ignoring)\s*\(([^)]*)\)`)
)

// check reports unknown metrics and labels in an expression. It recognizes metrics by the prefixes
// of the programs and kube-state-metrics.
func (s metrics) check(source, expr string) error {
	var problems []error
	all := map[string]bool{"le": true, "node": true}
	found := selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1)
	if len(found) == 0 {
		problems = append(problems, fmt.Errorf("%s: %s names no metric", source, expr))
	}
	for _, f := range found {
		m, known := s.find(f[1])
		if !known {
			problems = append(problems, fmt.Errorf("%s: no program serves %s", source, f[1]))
			continue
		}
		for _, l := range m.labels {
			all[l] = true
		}
		for _, l := range matcher.FindAllStringSubmatch(f[2], -1) {
			if !slices.Contains(m.labels, l[1]) && l[1] != "le" {
				problems = append(problems, fmt.Errorf("%s: %s has no label %s", source, f[1], l[1]))
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !all[label] {
				problems = append(problems, fmt.Errorf("%s: groups by %s, which none of its metrics has", source, label))
			}
		}
	}
	return errors.Join(problems...)
}

// find returns the metric of a series. A histogram has three series.
func (s metrics) find(series string) (metric, bool) {
	for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
		name, cut := strings.CutSuffix(series, suffix)
		for _, from := range []metrics{s, externalMetrics} {
			if m, known := from[name]; cut && known && (suffix == "" || m.kind == "histogram") {
				return m, true
			}
		}
	}
	return metric{}, false
}
