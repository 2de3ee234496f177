package recommender

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

// A throttled container needs a higher limit, although its mean usage is low. Raising the request
// helps only if the limit follows it.
func TestThrottling_RaisesRequestIfLimitFollows(t *testing.T) {
	for name, c := range map[string]struct {
		recipe    string
		throttled float64
		only      bool
		want      int64 // millicores
	}{
		"throttled":                {"loadline", 0.2, false, 635}, // twice the request of 300, 1.05, and the bucket
		"seldom throttled":         {"loadline", 0.04, false, 213},
		"the limit does not move":  {"loadline", 0.2, true, 213},
		"it is not wanted":         {"loadline:throttling=no", 0.2, false, 213},
		"recipe of the reference":  {"vpa", 0.2, false, 247},
		"Autopilot as published":   {"autopilot", 0.2, false, 223},
		"of a limit nothing known": {"loadline", 0, false, 213},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vpa := webVPA(c.recipe)
			if c.only {
				only := vpav1.ContainerControlledValuesRequestsOnly
				vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "a", ControlledValues: &only}}}
			}
			w := newWorld(t, deployment("web"), podWithCPULimit("750m"), vpa)
			w.throttled = map[usage.ContainerKey]float64{containerKey("web-1", "a"): c.throttled}
			w.start()
			w.setUsage("web-1", "a", 200, 100)
			w.iterate(60)
			require.Equal(t, c.want, w.recommendations("web")[0].Target.Cpu().MilliValue())

			w.throttled = nil
			w.iterate(20)
			w.start().iterate(60)
			require.Equal(t, c.want, w.recommendations("web")[0].Target.Cpu().MilliValue(), "under a higher limit, and after a restart, too")
		})
	}
}

// One query per iteration.
func TestThrottling_QueriedOnlyIfRecipeNeedsIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		recipe string
		counts bool
	}{
		{name: "loadline", recipe: "loadline", counts: true},
		{name: "loadline without throttling", recipe: "loadline:throttling=no"},
		{name: "vpa", recipe: "vpa"},
		{name: "CruiseKube", recipe: "cruisekube"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
				value := "0.2"
				switch query := r.FormValue("query"); {
				case strings.Contains(query, "throttled_periods"):
					asked++
					value = "0.5"
				case strings.Contains(query, "memory"):
					value = "1e8"
				}
				fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"namespace":"ns",`+
					`"pod":"web-1","container":"a","pod_name":"web-1","name":"a"},"value":[%d,"%s"]}]}}`, start().Unix(), value)
			}))
			t.Cleanup(server.Close)
			w := startedWorld(t, tc.recipe)
			w.iterate(1)
			w.config.Prometheus.Address, w.config.Prometheus.UsageSource = server.URL, UsageFromPrometheus
			require.NoError(t, w.config.Validate())
			source := w.config.usageSourceConfig(newMetrics(prometheus.NewRegistry()))
			from, err := newUsageSource(process.OS{}, &rest.Config{Host: "http://127.0.0.1:1"}, source)
			require.NoError(t, err)
			from.attach(w.loop.Model)
			var got []float64
			require.NoError(t, from.Samples(t.Context(), func(s usage.Sample) {
				if s.Kind == resources.CPU {
					got = append(got, s.Throttled)
				}
			}))
			want := map[bool][]float64{true: {0.5}, false: {0}}[tc.counts]
			require.Equal(t, want, got)
			require.Equal(t, tc.counts, asked == 1)
		})
	}
}
