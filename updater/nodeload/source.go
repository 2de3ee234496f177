package nodeload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
)

// The query returns nine samples over the two minutes before a round.
const (
	window  = 2 * time.Minute
	step    = 15 * time.Second
	samples = int(window/step) + 1
)

// limits bounds a response. A node takes about 300 bytes. One series may take all of them, so that
// one long label does not hide the load of all nodes.
var limits = prometheus.Limits{Bytes: 16 << 20, SeriesBytes: 16 << 20, Series: 50_000}

// Source reads the load of nodes from Prometheus.
type Source struct {
	client        *prometheus.Client
	metric, label string
	query         string
}

// NewSource returns a source for valid settings. matchers restrict the series. A query takes at
// most half of the interval, so that taints are removed in time.
func NewSource(env process.Environment, c Config, settings prometheus.Config, matchers string) (*Source, error) {
	settings.Limits, settings.Timeout = limits, min(settings.Timeout, c.Interval/2)
	client, err := prometheus.New(env, settings)
	if err != nil {
		return nil, err
	}
	// The query returns only the node label, because other labels may be long and many.
	return &Source{client: client, metric: c.Metric, label: c.Label, query: fmt.Sprintf("min by (%s) (%s)", c.Label, prometheus.AddMatchers(c.Metric, matchers))}, nil
}

// Loads returns the minimum load of each node by name, over its series and the two minutes before
// at. It omits nodes with too few samples and values below 0. After an error about an incomplete
// response, the loads are still valid.
func (s *Source) Loads(ctx context.Context, nodes []*corev1.Node, at time.Time) (map[string]float64, error) {
	nodeNames := newDirectory(nodes)
	found := map[string]*history{}
	r := prometheus.Range{Query: s.query, Times: prometheus.Times{Start: at.Add(-window), Step: step, Count: samples}}
	answer, err := s.client.Range(ctx, r, func(labels map[string]string, points []prometheus.Point) {
		node, known := nodeNames.find(labels[s.label])
		if !known {
			return
		}
		if found[node] == nil {
			found[node] = newHistory()
		}
		for _, p := range points {
			if i, inRange := r.Index(p.At); inRange && p.Value >= 0 { // no load is below 0
				found[node][i] = min(found[node][i], p.Value)
			}
		}
	}, nil)
	if err != nil {
		return nil, err
	}
	loads := make(map[string]float64, len(found))
	for node, h := range found {
		if load := h.minLoad(); !math.IsNaN(load) {
			loads[node] = load
		}
	}
	return loads, s.answerError(answer, len(found))
}

// answerError returns an error if a response is incomplete. nodes is the number of nodes with data.
func (s *Source) answerError(answer prometheus.Response, nodes int) error {
	switch {
	case answer.Series == 0 && answer.Broken == 0:
		return fmt.Errorf("--node-load-metric=%s: no series in Prometheus", s.metric)
	case nodes == 0 && answer.Series > 0:
		return fmt.Errorf("--node-load-label=%s: none of %d series has the name or an address of a node", s.label, answer.Series)
	case answer.Broken > 0:
		return fmt.Errorf("failed to parse %d series, such as: %w", answer.Broken, answer.Last)
	case len(answer.Warnings) > 0:
		return errors.New("response may be incomplete: " + fmt.Sprintf("%.500s", strings.Join(answer.Warnings, "; ")))
	}
	return nil
}

// history has the load of a node at each query time. Infinity means unknown.
type history [samples]float64

func newHistory() *history {
	var h history
	for i := range h {
		h[i] = math.Inf(1)
	}
	return &h
}

// minLoad returns the minimum, or NaN if one of the two minutes has no value, so that new nodes do
// not count as overloaded. A failed scrape is no gap if its minute has another one.
func (h *history) minLoad() float64 {
	before, now := slices.Min(h[:samples/2]), slices.Min(h[samples/2:])
	if math.IsInf(before, 1) || math.IsInf(now, 1) {
		return math.NaN()
	}
	return min(before, now)
}

// directory maps names and addresses to node names.
type directory map[string]string

// newDirectory omits addresses that several nodes have, such as the address of a shared gateway.
func newDirectory(nodes []*corev1.Node) directory {
	d := directory{}
	shared := map[string]bool{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if other, taken := d[a.Address]; taken && other != n.Name {
				shared[a.Address] = true
			}
			d[a.Address] = n.Name
		}
	}
	for address := range shared {
		delete(d, address)
	}
	for _, n := range nodes {
		d[n.Name] = n.Name
	}
	return d
}

func (d directory) find(value string) (node string, known bool) {
	if node, known = d[value]; known {
		return node, true
	}
	host, _, err := net.SplitHostPort(value)
	if err != nil {
		return "", false
	}
	node, known = d[host]
	return node, known
}
