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

// The times for which the load of a node is asked: nine, over the two minutes before a round.
const (
	window  = 2 * time.Minute
	step    = 15 * time.Second
	samples = int(window/step) + 1
)

// limits bounds an answer, of which a node takes about 300 bytes. One series may be as long as all
// of them: a long label of somebody else is no reason to know nothing of the nodes.
var limits = prometheus.Limits{Bytes: 16 << 20, SeriesBytes: 16 << 20, Series: 50_000}

// Source asks a Prometheus for the load of nodes.
type Source struct {
	client        *prometheus.Client
	metric, label string
	query         string
}

// NewSource returns a source that asks the Prometheus of the settings, which must be valid, for series with some
// matchers. A query takes half of the time between two rounds at most, so that nodes can be freed in time.
func NewSource(env process.Environment, c Config, settings prometheus.Config, matchers string) (*Source, error) {
	settings.Limits, settings.Timeout = limits, min(settings.Timeout, c.Interval/2)
	client, err := prometheus.New(env, settings)
	if err != nil {
		return nil, err
	}
	// Of labels only the one that names the node travels: the others may be long, and many.
	return &Source{client: client, metric: c.Metric, label: c.Label, query: fmt.Sprintf("min by (%s) (%s)", c.Label, prometheus.AddMatchers(c.Metric, matchers))}, nil
}

// Loads returns the smallest load that each of the nodes had over the two minutes before at, by
// name; one of which too little is known is absent. Of several series of a node the smallest
// value counts, but for values below 0, which are none. Where the error says that the answer may lack something, what is there is right.
func (s *Source) Loads(ctx context.Context, nodes []*corev1.Node, at time.Time) (map[string]float64, error) {
	named := newDirectory(nodes)
	found := map[string]*history{}
	r := prometheus.Range{Query: s.query, Times: prometheus.Times{Start: at.Add(-window), Step: step, Count: samples}}
	answer, err := s.client.Range(ctx, r, func(labels map[string]string, points []prometheus.Point) {
		node, known := named.find(labels[s.label])
		if !known {
			return
		}
		if found[node] == nil {
			found[node] = newHistory()
		}
		for _, p := range points {
			if i, asked := r.Index(p.At); asked && p.Value >= 0 { // no load is below 0
				found[node][i] = min(found[node][i], p.Value)
			}
		}
	}, nil)
	if err != nil {
		return nil, err
	}
	loads := make(map[string]float64, len(found))
	for node, h := range found {
		if load := h.smallest(); !math.IsNaN(load) {
			loads[node] = load
		}
	}
	return loads, s.complaint(answer, len(found))
}

// complaint says what an answer lacks that was about so many nodes.
func (s *Source) complaint(answer prometheus.Answer, nodes int) error {
	switch {
	case answer.Series == 0 && answer.Broken == 0:
		return fmt.Errorf("--node-load-metric=%s: Prometheus finds no series", s.metric)
	case nodes == 0 && answer.Series > 0:
		return fmt.Errorf("--node-load-label=%s: in none of %d series it has the name or an address of a node", s.label, answer.Series)
	case answer.Broken > 0:
		return fmt.Errorf("%d series cannot be read, such as: %w", answer.Broken, answer.Last)
	case len(answer.Warnings) > 0:
		return errors.New("the answer may lack something: " + fmt.Sprintf("%.500s", strings.Join(answer.Warnings, "; ")))
	}
	return nil
}

// history has the load of a node at each of the times that are asked for; infinite: not known.
type history [samples]float64

func newHistory() *history {
	var h history
	for i := range h {
		h[i] = math.Inf(1)
	}
	return &h
}

// smallest returns the smallest value, NaN if there is none in one of the two minutes: a node
// that has just come, or whose load is not scraped any more, is not known to be overloaded. One
// scrape that failed is no gap as long as another one is in its minute.
func (h *history) smallest() float64 {
	before, now := slices.Min(h[:samples/2]), slices.Min(h[samples/2:])
	if math.IsInf(before, 1) || math.IsInf(now, 1) {
		return math.NaN()
	}
	return min(before, now)
}

// directory finds a node by its name or an address.
type directory map[string]string

// newDirectory leaves out addresses that several nodes have, as behind one gateway.
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

// find returns the node that a label means, with or without a port.
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
