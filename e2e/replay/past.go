package replay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"loadline.dev/loadline/pkg/source/prometheus"
)

// Past is a Prometheus that knows the usage of pods, for one program that asks it for
// history. The recordings are placed when it asks first, so that they end together
// at the end of what it wants to know.
//
// It speaks what the recommender needs of the API, and gives the samples as they
// are: a real one knows counters, of which no rate has exactly the recorded values.
type Past struct {
	server *httptest.Server
	length time.Duration

	mu     sync.Mutex
	placed bool
	pods   []*Pod
}

// NewPast returns one with recordings of some length at most. It works until Close.
func NewPast(pods []*Pod) *Past {
	p := &Past{pods: pods}
	for _, pod := range pods {
		p.length = max(p.length, minutes(pod.Recording.Length()))
	}
	p.server = httptest.NewServer(p)
	return p
}

// Close ends it.
func (p *Past) Close() { p.server.Close() }

// Address is its URL.
func (p *Past) Address() string { return p.server.URL }

// Length is how much it knows, as a flag has it.
func (p *Past) Length() string { return fmt.Sprintf("%dm", p.length/Minute) }

// Placed reports whether somebody asked, so that the recordings have their places.
func (p *Past) Placed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placed
}

type series struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

// ServeHTTP answers range queries with usage, and others with nothing: how long work waited was
// not recorded.
func (p *Past) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, result := "vector", []series{}
	if strings.HasSuffix(r.URL.Path, "/query_range") {
		kind = "matrix"
		var at [3]float64
		for i, name := range []string{"start", "end", "step"} {
			value, err := strconv.ParseFloat(r.FormValue(name), 64)
			if err != nil {
				http.Error(w, name+": "+err.Error(), http.StatusBadRequest)
				return
			}
			at[i] = value
		}
		if query := r.FormValue("query"); !strings.Contains(query, prometheus.WaitingMetric) {
			result = p.usage(strings.HasPrefix(query, "rate("), int64(at[0]), int64(at[1]), int64(at[2]))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": kind, "result": result}})
}

// usage returns the use of CPU, or of memory, of all pods at some times.
func (p *Past) usage(cpu bool, start, end, step int64) []series {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.placed {
		p.placed = true
		for _, pod := range p.pods {
			pod.Recording.EndAt(time.Unix(start, 0).Add(p.length))
		}
	}
	result := []series{}
	for _, pod := range p.pods {
		one := series{Metric: map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "container": Container}}
		for at := start; at <= end; at += step {
			s, some := pod.Recording.At(time.Unix(at, 0))
			if text, known := s.text(cpu); some && known {
				one.Values = append(one.Values, [2]any{at, text})
			}
		}
		if len(one.Values) > 0 {
			result = append(result, one)
		}
	}
	return result
}

// text prints a use as Prometheus does, in cores or bytes. The metrics API rounds
// millicores up, and whoever reads from Prometheus drops fractions; the
// backtester does as the metrics API. So they are rounded up here, and half of one on
// top keeps them off the edge.
func (s Sample) text(cpu bool) (text string, known bool) {
	if !cpu {
		return strconv.FormatInt(s.Bytes, 10), s.Bytes >= 0
	}
	const nano = 1_000_000 // nanocores of a millicore
	return strconv.FormatFloat((float64((s.Nanocores+nano-1)/nano)+0.5)/1000, 'g', -1, 64), s.Nanocores >= 0
}
