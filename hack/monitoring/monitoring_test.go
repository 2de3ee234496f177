package main

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
)

func readServedMetrics(t *testing.T) metrics {
	t.Helper()
	found, err := readMetrics("../..")
	require.NoError(t, err)
	return found
}

func TestMetricsCheck_DetectsUnknownMetricsAndLabels(t *testing.T) {
	found := readServedMetrics(t)
	for _, tc := range []struct{ name, expr, want string }{
		{name: "unknown metric", expr: `sum(loadline_no_such_metric)`, want: "no program serves loadline_no_such_metric"},
		{name: "unknown label", expr: `loadline_updater_skipped_pods{mode="x"} > 0`,
			want: "loadline_updater_skipped_pods has no label mode"},
		{name: "unknown grouping label", expr: `sum by (pod) (loadline_updater_skipped_pods)`,
			want: "groups by pod, which none of its metrics has"},
		{name: "unknown suffix", expr: `rate(loadline_updater_skipped_pods_count[5m])`,
			want: "no program serves loadline_updater_skipped_pods_count"},
		{name: "no metric", expr: `up == 0`, want: "names no metric"},
		{name: "known label", expr: `sum by (reason) (loadline_updater_skipped_pods) > 0`},
		{name: "known histogram", expr: `rate(vpa_updater_execution_latency_seconds_sum[5m]) > 10`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := found.check("x", tc.expr); tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
}

func TestAlerts_UseExistingReasons(t *testing.T) {
	known := map[string]bool{}
	for _, r := range reason.SkipReasons() {
		known[string(r)] = true
	}
	asked := 0
	for _, a := range alerts {
		for _, found := range regexp.MustCompile(`skipped_pods\{reason=~?"([^"]*)"`).FindAllStringSubmatch(a.expr, -1) {
			for name := range strings.SplitSeq(found[1], "|") {
				require.True(t, known[name], "%s: %s", a.name, name)
				asked++
			}
		}
	}
	require.NotZero(t, asked)
}

func TestAlerts_AreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, a := range alerts {
		require.False(t, names[a.name], a.name)
		names[a.name] = true
		require.NotEmpty(t, a.actions, a.name)
		require.NotEmpty(t, a.description, a.name)
		require.NotEmpty(t, a.firing, a.name)
		require.NotEmpty(t, a.quiet, a.name)
	}
}

func TestStateMetrics_ReadExistingFields(t *testing.T) {
	text, err := render(readServedMetrics(t))
	require.NoError(t, err)
	for name, prefix := range map[string]string{"kube": "kube", "kube-customresource": "kube_customresource"} {
		require.Contains(t, string(text["deploy/monitoring/kube-state-metrics/"+name+".yaml"]), "metricNamePrefix: "+prefix+"\n")
	}
	spec := stateMetrics("kube", "container_policies").(map[string]any)["spec"].(map[string]any)
	resource := spec["resources"].([]any)[0].(map[string]any)
	paths := 0
	for _, m := range resource["metrics"].([]any) {
		each := m.(map[string]any)["each"].(map[string]any)
		gauge, ok := each["gauge"].(map[string]any)
		if !ok {
			continue
		}
		at := reflect.TypeFor[vpav1.VerticalPodAutoscaler]()
		for _, step := range append(append([]any{}, gauge["path"].([]any)...), gauge["valueFrom"].([]any)[0]) {
			at = field(t, at, step.(string))
			paths++
		}
		require.Equal(t, reflect.Map, at.Kind(), m)
	}
	require.Equal(t, 6*2*2*4, paths)
	for name, mode := range map[string]vpav1.UpdateMode{"Off": vpav1.UpdateModeOff, "InPlace": vpav1.UpdateModeInPlace} {
		require.Contains(t, modes(), string(mode), name)
	}
}

// field returns the type of a field by its JSON name. For lists it uses the element type.
func field(t *testing.T, in reflect.Type, name string) reflect.Type {
	t.Helper()
	for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
		in = in.Elem()
	}
	require.Equal(t, reflect.Struct, in.Kind(), name)
	for field := range in.Fields() {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			out := field.Type
			for out.Kind() == reflect.Pointer {
				out = out.Elem()
			}
			return out
		}
	}
	t.Fatalf("%s has no field %s", in, name)
	return nil
}
