package prometheus

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

var start = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// series is one series of the fake. value returns its JSON value at a time, or "" for none.
type series struct {
	labels map[string]string
	value  func(at time.Time) string
}

func always(value string) func(time.Time) string { return func(time.Time) string { return value } }

// rangeQuery is a parsed range query.
type rangeQuery struct {
	query    string
	pods     []string
	from, to time.Time
}

func (a rangeQuery) steps(step time.Duration) int { return int(a.to.Sub(a.from)/step) + 1 }

// fake is a Prometheus server that does not evaluate expressions. It finds metric, namespace and
// pods in their text.
type fake struct {
	*testing.T
	series []series
	// spoil may answer a range query instead of the fake. It then returns true.
	spoil func(w http.ResponseWriter, r *http.Request, a rangeQuery) bool
	// tooMuch reports whether a query for series exceeds the limits, nil for never.
	tooMuch func(selectors []string, span time.Duration) bool
	cuts    bool                                  // truncate the response of such a query instead of rejecting it
	want    func(workload, container string) bool // passed to readArchive

	mu        sync.Mutex
	queries   []rangeQuery
	selectors []string
}

// cut writes a truncated response, like a proxy with a byte limit.
func cut(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "1000000")
	fmt.Fprint(w, `{"status":"success","data":`)
}

func newFake(t *testing.T) *fake { return &fake{T: t} }

func (f *fake) add(metric string, value func(time.Time) string, labels ...string) {
	s := series{map[string]string{"__name__": metric}, value}
	for i := 0; i < len(labels); i += 2 {
		s.labels[labels[i]] = labels[i+1]
	}
	f.series = append(f.series, s)
}

// container adds a container that uses half a core and 100 MB.
func (f *fake) container(namespace, pod, name string) {
	f.usage(namespace, pod, name, always("0.5"), always("1e8"))
}

func (f *fake) usage(namespace, pod, name string, cpu, memory func(time.Time) string) {
	f.add("cpu_total", cpu, "namespace", namespace, "pod", pod, "container", name)
	f.add("memory_bytes", memory, "namespace", namespace, "pod", pod, "container", name)
}

var (
	metricText    = regexp.MustCompile(`([a-z_]+)\{`)
	podText       = regexp.MustCompile(`pod=~"([^"]*[a-z0-9-])"`)
	namespaceText = regexp.MustCompile(`namespace="([^"]*)"`)
)

// find returns the series that match a selector in an expression, and the selected pods.
func (f *fake) find(text string) (found []series, pods []string) {
	metric := metricText.FindStringSubmatch(text)
	require.NotNil(f, metric, text)
	for _, one := range podText.FindAllStringSubmatch(text, -1) {
		if one[1] != ".+" {
			pods = strings.Split(strings.ReplaceAll(one[1], `\\`, ""), "|")
		}
	}
	namespace := namespaceText.FindStringSubmatch(text)
	for _, s := range f.series {
		if s.labels["__name__"] == metric[1] && (namespace == nil || StateLabel(s.labels, "namespace") == namespace[1]) && (pods == nil || slices.Contains(pods, StateLabel(s.labels, "pod"))) {
			found = append(found, s)
		}
	}
	return found, pods
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.ParseForm(); err != nil {
		f.Error(err)
	}
	seconds := func(name string) time.Time {
		n, err := strconv.ParseFloat(r.Form.Get(name), 64)
		if err != nil {
			f.Error(name, err)
		}
		return time.UnixMilli(int64(n * 1000)).UTC()
	}
	if selectors := r.Form["match[]"]; r.URL.Path == "/api/v1/series" {
		if f.tooMuch != nil && f.tooMuch(selectors, seconds("end").Sub(seconds("start"))) {
			if f.cuts {
				cut(w)
			} else {
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
			return
		}
		f.listed(w, selectors)
		return
	}
	a := rangeQuery{query: r.Form.Get("query"), from: seconds("start"), to: seconds("end")}
	found, pods := f.find(a.query)
	a.pods = pods
	f.queries = append(f.queries, a)
	if f.spoil != nil && f.spoil(w, r, a) {
		return
	}
	step, err := strconv.ParseFloat(r.Form.Get("step"), 64)
	if err != nil {
		f.Error(err)
	}
	f.matrix(w, found, a, time.Duration(step*float64(time.Second)))
}

func (f *fake) listed(w http.ResponseWriter, selectors []string) {
	all := []map[string]string{}
	for _, selector := range selectors {
		f.selectors = append(f.selectors, selector)
		found, _ := f.find(selector)
		for _, s := range found {
			all = append(all, s.labels)
		}
	}
	text, _ := json.Marshal(all)
	fmt.Fprintf(w, `{"status":"success","data":%s}`, text)
}

func (f *fake) matrix(w http.ResponseWriter, found []series, a rangeQuery, step time.Duration) {
	var lists []string
	for _, s := range found {
		var points []string
		for at := a.from; !at.After(a.to); at = at.Add(step) {
			value := s.value(at)
			if _, err := strconv.ParseFloat(value, 64); err == nil {
				value = strconv.Quote(value)
			}
			if value != "" {
				points = append(points, fmt.Sprintf("[%d,%s]", at.Unix(), value))
			}
		}
		labels, _ := json.Marshal(s.labels)
		lists = append(lists, fmt.Sprintf(`{"metric":%s,"values":[%s]}`, labels, strings.Join(points, ",")))
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(lists, ","))
}

// hour returns a query for an hour with a sample every five minutes.
func hour() ArchiveQuery {
	return ArchiveQuery{
		Usage: Usage{CPUMetric: "cpu_total", MemoryMetric: "memory_bytes", NamespaceLabel: "namespace", PodLabel: "pod", ContainerLabel: "container"},
		Since: start, Until: start.Add(time.Hour), Step: 5 * time.Minute,
	}
}

func (f *fake) read(q ArchiveQuery) (found []*replay.Recording, problems []string) {
	f.Helper()
	server := httptest.NewServer(testkit.StrictPrometheus(f.T, f.ServeHTTP))
	f.Cleanup(server.Close)
	client, err := New(process.OS{}, Config{Address: server.URL, Timeout: time.Second})
	require.NoError(f, err)
	return f.readFrom(client, q)
}

func (f *fake) readFrom(client *Client, q ArchiveQuery) (found []*replay.Recording, problems []string) {
	f.Helper()
	for r, p := range readArchive(f.Context(), client, q, f.want, time.Millisecond) {
		if r != nil {
			found = append(found, r)
			require.Equal(f, client.Server(), r.Dataset)
		}
		if p != nil {
			problems = append(problems, strings.TrimPrefix(p.Error(), client.Server()+": "))
		}
	}
	return found, problems
}

func seriesNames(found []*replay.Recording) (names []string) {
	for _, r := range found {
		names = append(names, r.Workload+" "+r.Container)
	}
	return names
}
