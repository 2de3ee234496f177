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

// Past simulates a Prometheus with the usage of pods, for one program that queries it for history.
// The first query places the recordings, so that they end together at the end of the queried range.
//
// It supports the API calls of the recommender, and returns the recorded samples exactly. A real
// Prometheus stores counters, and no rate over them has exactly the recorded values.
type Past struct {
	server *httptest.Server
	length time.Duration

	mu     sync.Mutex
	placed bool
	pods   []*Pod
}

// NewPast returns a Past with the recordings of the pods. It works until Close.
func NewPast(pods []*Pod) *Past {
	p := &Past{pods: pods}
	for _, pod := range pods {
		p.length = max(p.length, minutes(pod.Recording.Length()))
	}
	p.server = httptest.NewServer(p)
	return p
}

// Close stops the server.
func (p *Past) Close() { p.server.Close() }

// Address is the URL of the server.
func (p *Past) Address() string { return p.server.URL }

// Length is the length of the history in the format of a flag.
func (p *Past) Length() string { return fmt.Sprintf("%dm", p.length/Minute) }

// Placed reports whether a query has placed the recordings.
func (p *Past) Placed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placed
}

type series struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

// ServeHTTP answers range queries with usage, and others with an empty result: waiting for CPU was
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

// text formats usage as Prometheus does, in cores or bytes. The metrics API and the backtester
// round millicores up, and readers of Prometheus drop fractions. Therefore text rounds millicores
// up, and adds half a millicore to keep them off the edge.
func (s Sample) text(cpu bool) (text string, known bool) {
	if !cpu {
		return strconv.FormatInt(s.Bytes, 10), s.Bytes >= 0
	}
	const nano = 1_000_000 // nanocores of a millicore
	return strconv.FormatFloat((float64((s.Nanocores+nano-1)/nano)+0.5)/1000, 'g', -1, 64), s.Nanocores >= 0
}
