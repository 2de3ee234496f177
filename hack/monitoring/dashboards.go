package main

import "fmt"

type dashboard struct {
	file, title string
	variables   []variable
	panels      []panel
}

// variable is a label that filters a dashboard.
type variable struct{ label, metric string }

type panel struct {
	title, unit, description string
	wide                     bool // spans a whole row
	queries                  []query
}

type query struct{ expr, legend string }

const (
	short   = "short"
	seconds = "s"
	cores   = "none"
	inBytes = "bytes"
	ratio   = "percentunit"
	perSec  = "ops"
)

// workloadFilter limits workload metrics to the variables of a dashboard.
const workloadFilter = `namespace=~"$namespace",vpa=~"$vpa"`

func latency(title, metric string) panel {
	return panel{title: title, unit: seconds, queries: []query{
		{`sum by (step) (rate(` + metric + `_sum[5m])) / sum by (step) (rate(` + metric + `_count[5m]))`, "{{step}}"}}}
}

var dashboards = []dashboard{
	{
		file: "recommender", title: "Loadline / Recommender",
		panels: []panel{
			{title: "VPAs by mode", unit: short, queries: []query{{`sum by (update_mode) (vpa_recommender_vpa_objects_count)`, "{{update_mode}}"}}},
			{title: "VPAs without a recommendation", unit: short, queries: []query{{`sum by (matches_pods) (vpa_recommender_vpa_objects_count{has_recommendation="false"})`, "has pods: {{matches_pods}}"}}},
			latency("Time of a step, mean", "vpa_recommender_execution_latency_seconds"),
			{title: "Time to the first recommendation, median", unit: seconds, queries: []query{{`histogram_quantile(0.5, sum by (le) (rate(vpa_recommender_recommendation_latency_seconds_bucket[1h])))`, "median"}}},
			{title: "Samples by result", unit: perSec, queries: []query{{`sum by (result) (rate(loadline_recommender_samples_total[5m]))`, "{{result}}"}}},
			{title: "Out-of-memory kills", unit: short, queries: []query{{`sum by (result) (increase(loadline_recommender_ooms_total[1h]))`, "{{result}}"}}},
			{title: "Statuses written", unit: perSec, queries: []query{{`sum by (result) (rate(loadline_recommender_status_writes_total[5m]))`, "{{result}}"}}},
			{title: "Checkpoints written", unit: perSec, queries: []query{{`sum by (result) (rate(loadline_recommender_checkpoint_writes_total[5m]))`, "{{result}}"}}},
			{title: "Responses of the metrics API", unit: perSec, queries: []query{{`sum by (is_error) (rate(vpa_recommender_metric_server_responses[5m]))`, "error: {{is_error}}"}}},
			{title: "History behind recommendations", unit: short, description: "VPAs by the minimum span of their usage history.", queries: []query{{`sum by (history) (loadline_recommender_vpas_by_history)`, "{{history}}"}}},
			{title: "Recipes", unit: short, queries: []query{{`sum by (recipe, source) (loadline_recommender_vpas_by_recipe)`, "{{recipe}} ({{source}})"}}},
			{title: "Rising memory", unit: short, queries: []query{{`sum(loadline_recommender_vpas_with_memory_growth)`, "VPAs"}}},
		},
	},
	{
		file: "updater", title: "Loadline / Updater",
		panels: []panel{
			{title: "Skipped pods by reason", unit: short, wide: true, description: "docs/reasons.md explains each reason.", queries: []query{{`sum by (reason) (loadline_updater_skipped_pods)`, "{{reason}}"}}},
			{title: "Resized in place", unit: short, queries: []query{{`sum by (vpa_namespace) (increase(vpa_updater_in_place_updated_pods_total[1h]))`, "{{vpa_namespace}}"}}},
			{title: "Evicted", unit: short, queries: []query{{`sum by (vpa_namespace) (increase(vpa_updater_evicted_pods_total[1h]))`, "{{vpa_namespace}}"}}},
			{title: "Failed in-place resizes", unit: short, queries: []query{{`sum by (reason) (increase(vpa_updater_failed_in_place_update_attempts_total[1h]))`, "{{reason}}"}}},
			{title: "Failed evictions", unit: short, queries: []query{{`sum by (reason) (increase(vpa_updater_failed_eviction_attempts_total[1h]))`, "{{reason}}"}}},
			{title: "Pods of VPAs, by mode", unit: short, queries: []query{{`sum by (update_mode) (vpa_updater_controlled_pods_total)`, "{{update_mode}}"}}},
			latency("Time of a step, mean", "vpa_updater_execution_latency_seconds"),
			{title: "Iterations without a webhook heartbeat", unit: short, queries: []query{{`sum by (reason) (increase(vpa_updater_admission_controller_status_invalid_total[1h]))`, "{{reason}}"}}},
			{title: "Overloaded nodes", unit: short, queries: []query{
				{`sum(loadline_node_overloaded_nodes)`, "overloaded"}, {`sum(loadline_node_tainted_nodes)`, "tainted"}, {`sum(loadline_node_unknown_load_nodes)`, "not known"}}},
		},
	},
	{
		file: "admission-controller", title: "Loadline / Admission controller",
		panels: []panel{
			{title: "New pods", unit: perSec, queries: []query{{`sum by (applied) (rate(vpa_admission_controller_admission_pods_total[5m]))`, "changed: {{applied}}"}}},
			{title: "Time of a review", unit: seconds, queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(loadline_admission_controller_review_duration_seconds_bucket[5m])))`, "median"},
				{`histogram_quantile(0.99, sum by (le) (rate(loadline_admission_controller_review_duration_seconds_bucket[5m])))`, "99th percentile"}}},
			{title: "Reviews by outcome", unit: perSec, queries: []query{{`sum by (status, resource) (rate(vpa_admission_controller_admission_latency_seconds_count[5m]))`, "{{resource}} {{status}}"}}},
			{title: "Problems", unit: short, queries: []query{{`sum by (cause) (increase(loadline_admission_controller_problems_total[1h]))`, "{{cause}}"}}},
			{title: "Days until the certificate expires", unit: short, queries: []query{{`min(loadline_admission_controller_certificate_days_left)`, "days"}}},
			latency("Time of a step, mean", "vpa_admission_controller_execution_latency_seconds"),
		},
	},
	{
		file: "policies", title: "Loadline / Policies and sharing",
		variables: []variable{{"policy", "loadline_policy_workloads"}},
		panels: []panel{
			{title: "Workloads by phase", unit: short, queries: []query{{`sum by (mode, phase) (loadline_policy_workloads{policy=~"$policy"})`, "{{mode}} {{phase}}"}}},
			{title: "Degraded workloads", unit: short, queries: []query{{`sum by (policy) (loadline_policy_degraded{policy=~"$policy"})`, "{{policy}}"}}},
			{title: "Potential CPU savings", unit: cores, description: "Reduction of requested cores if all workloads had their target.", queries: []query{{`sum by (policy) (loadline_policy_saved_cores{policy=~"$policy"})`, "{{policy}}"}}},
			{title: "Potential memory savings", unit: inBytes, queries: []query{{`sum by (policy) (loadline_policy_saved_bytes{policy=~"$policy"})`, "{{policy}}"}}},
			{title: "Reverted changes", unit: short, queries: []query{{`sum by (reason) (increase(loadline_updater_reverts_total[1h]))`, "{{reason}}"}}},
			{title: "Pods under observation", unit: short, queries: []query{{`sum(loadline_updater_observed_pods)`, "pods"}}},
			{title: "Pods that share node headroom", unit: short, queries: []query{{`sum by (mode) (loadline_sharing_pods)`, "{{mode}}"}}},
			{title: "CPU saved by sharing", unit: cores, queries: []query{{`sum by (mode) (loadline_sharing_saved_cores)`, "{{mode}}: saved"}, {`sum by (mode) (loadline_sharing_headroom_cores)`, "{{mode}}: headroom of nodes"}}},
		},
	},
	{
		file: "workloads", title: "Loadline / Workloads",
		variables: []variable{{"namespace", "loadline_workload_recommendation"}, {"vpa", "loadline_workload_recommendation"}},
		panels: []panel{
			{title: "CPU: recommended", unit: cores, description: "All panels of this dashboard require --workload-metrics of the recommender.", queries: []query{{`loadline_workload_recommendation{` + workloadFilter + `,resource="cpu"}`, "{{vpa}}/{{container}}"}}},
			{title: "Memory: recommended", unit: inBytes, queries: []query{{`loadline_workload_recommendation{` + workloadFilter + `,resource="memory"}`, "{{vpa}}/{{container}}"}}},
			{title: "CPU: unused part of the target", unit: ratio, queries: []query{{`loadline_workload_slack_ratio{` + workloadFilter + `,resource="cpu"}`, "{{vpa}}/{{container}}"}}},
			{title: "Memory: unused part of the target", unit: ratio, queries: []query{{`loadline_workload_slack_ratio{` + workloadFilter + `,resource="memory"}`, "{{vpa}}/{{container}}"}}},
			{title: "Share of samples above the target", unit: ratio, queries: []query{{`loadline_workload_samples_above_target_ratio{` + workloadFilter + `}`, "{{vpa}}/{{container}} {{resource}}"}}},
			{title: "Peak usage since the last change, relative to the target", unit: ratio, queries: []query{{`loadline_workload_peak_ratio{` + workloadFilter + `}`, "{{vpa}}/{{container}} {{resource}}"}}},
			{title: "Out-of-memory kills since the last change", unit: short, queries: []query{{`loadline_workload_ooms_since_change{` + workloadFilter + `}`, "{{vpa}}/{{container}}"}}},
			{title: "Age of the target", unit: seconds, queries: []query{{`loadline_workload_recommendation_age_seconds{` + workloadFilter + `}`, "{{vpa}}/{{container}} {{resource}}"}}},
			{title: "Requested by the pods of the namespace", unit: cores, description: "From kube-state-metrics. Differences to the recommendations above are not applied yet.", queries: []query{{`sum by (container) (kube_pod_container_resource_requests{namespace=~"$namespace",resource="cpu"})`, "{{container}}"}}},
		},
	},
}

// grafana returns the import format of Grafana.
func (d dashboard) grafana() any {
	const width, height = 24, 8
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	list := []any{map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}}
	for _, v := range d.variables {
		list = append(list, map[string]any{
			"name": v.label, "label": v.label, "type": "query", "datasource": source, "refresh": 2, "sort": 1,
			"query": fmt.Sprintf("label_values(%s, %s)", v.metric, v.label), "multi": true, "includeAll": true, "allValue": ".*",
		})
	}
	var panels []any
	x, y := 0, 0
	for i, p := range d.panels {
		w := width / 2
		if p.wide {
			w = width
		}
		if x+w > width {
			x, y = 0, y+height
		}
		var targets []any
		for j, q := range p.queries {
			targets = append(targets, map[string]any{"refId": string(rune('A' + j)), "datasource": source, "expr": q.expr, "legendFormat": q.legend})
		}
		panels = append(panels, map[string]any{
			"id": i + 1, "type": "timeseries", "title": p.title, "description": p.description, "datasource": source, "targets": targets,
			"gridPos":     map[string]any{"x": x, "y": y, "w": w, "h": height},
			"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
		})
		x += w
	}
	return map[string]any{
		"title": d.title, "uid": "loadline-" + d.file, "tags": []string{"loadline"}, "schemaVersion": 38, "editable": true,
		"time": map[string]any{"from": "now-24h", "to": "now"}, "refresh": "1m", "templating": map[string]any{"list": list}, "panels": panels,
	}
}
