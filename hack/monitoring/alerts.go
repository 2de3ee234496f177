package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

type alert struct {
	name, expr, forDuration string // forDuration: the "for" of the rule
	severity                string // critical: page, warning: handle by day, info: good to know
	summary                 string
	description             string
	actions                 []string
	// The alert fires an hour after the first value of firing, and does not fire for quiet.
	firing, quiet []string
	situations    []situation
}

// situation is a test with series, an evaluation time and the expected result.
type situation struct {
	name, at string
	fires    bool
	series   []string
}

// Series that each running program always exposes.
const (
	recommenderSeries = `vpa_recommender_execution_latency_seconds_count{step="total"}`
	updaterSeries     = `vpa_updater_execution_latency_seconds_count{step="total"}`
	webhookSeries     = `loadline_admission_controller_certificate_days_left`
)

// In situations, the programs have run for hours.
const (
	recommenderRuns = recommenderSeries + ` 500+1x300`
	updaterRuns     = updaterSeries + ` 500+1x300`
	webhookRuns     = webhookSeries + ` 200x300`
)

// increaseExpr sums the increase of a counter within a time range. Counters with labels begin with
// their first event, which increase() misses. A new counter counts with its value if Prometheus
// scraped the program before the range, as the always series shows. Otherwise the value may be of
// any age, as with a new Prometheus or after an outage.
func increaseExpr(sum, counter, window, always string) string {
	return fmt.Sprintf(`%s((max_over_time(%[2]s[%[3]s]) unless present_over_time(%[2]s[%[3]s] offset %[3]s) and on () present_over_time(%[4]s[%[3]s] offset %[3]s)) or increase(%[2]s[%[3]s]))`,
		sum, counter, window, always)
}

// repeatSeries returns n series from a line with one verb for their number.
func repeatSeries(n int, line string) []string {
	var series []string
	for i := range n {
		series = append(series, fmt.Sprintf(line, i))
	}
	return series
}

const (
	critical = "critical"
	warning  = "warning"
	info     = "info"
)

// alerts are ordered by program and severity.
var alerts = []alert{
	{
		name: "LoadlineRecommenderStalled", severity: critical, forDuration: "10m",
		expr:        `sum(increase(vpa_recommender_execution_latency_seconds_count{step="total"}[10m])) == 0 or absent(vpa_recommender_execution_latency_seconds_count{step="total"})`,
		summary:     "No recommender has completed an iteration in ten minutes.",
		description: "No recommendations are computed: no recommender runs or leads, or its iterations never end. Published recommendations stay in use.",
		actions: []string{
			"`kubectl -n kube-system get pods -l app=vpa-recommender` and the end of its log.",
			"`kubectl -n kube-system get lease vpa-recommender-lease`: the leader, and since when.",
			"If the log reports delayed requests, or an iteration takes a whole interval: raise the API request rate or the CPU ([scale.md](scale.md)).",
		},
		firing: []string{`vpa_recommender_execution_latency_seconds_count{step="total"} 60x120`},
		quiet:  []string{`vpa_recommender_execution_latency_seconds_count{step="total"} 60+1x120`},
	},
	{
		name: "LoadlineMetricsMissing", severity: critical, forDuration: "15m",
		expr:        `sum(rate(vpa_recommender_metric_server_responses{is_error="true"}[10m])) > 0.5 * sum(rate(vpa_recommender_metric_server_responses[10m]))`,
		summary:     "Most requests for usage fail.",
		description: "The recommender receives no usage. Recommendations do not change, and usage histories have a gap.",
		actions: []string{
			"`kubectl get apiservice v1beta1.metrics.k8s.io` and `kubectl top pods -A`.",
			"With usage from Prometheus: the log of the recommender names the failing query.",
		},
		firing: []string{`vpa_recommender_metric_server_responses{is_error="true",client_name="a"} 0+1x120`, `vpa_recommender_metric_server_responses{is_error="false",client_name="a"} 7x120`},
		quiet:  []string{`vpa_recommender_metric_server_responses{is_error="true",client_name="a"} 0x120`, `vpa_recommender_metric_server_responses{is_error="false",client_name="a"} 0+1x120`},
	},
	{
		name: "LoadlineCheckpointsFail", severity: warning, forDuration: "30m",
		expr:        `sum by (result) (increase(loadline_recommender_checkpoint_writes_total{result="error"}[30m])) > 0 or sum by (result) (loadline_recommender_checkpoint_writes_total{result="rejected"}) > 0`,
		summary:     "Checkpoints cannot be written or read ({{ $labels.result }}).",
		description: "`error`: histories would be lost at the next start of the recommender. `rejected`: some were lost at its last start.",
		actions:     []string{"`error`: the log of the recommender names the VPA and the error: often a quota of objects, or a webhook that refuses.", "`rejected`: a checkpoint was damaged or written by another program. The startup log names it. The VPA starts with an empty history. Checkpoints are only read at startup, so the alert fires until the next restart. Delete the object if it is rejected again."},
		firing:      []string{`loadline_recommender_checkpoint_writes_total{result="error"} 0+1x120`},
		quiet:       []string{`loadline_recommender_checkpoint_writes_total{result="error"} 4x120`, `loadline_recommender_checkpoint_writes_total{result="namespace_full"} 0+1x120`},
		situations: []situation{
			{"when some were rejected at the start", "2h", true, []string{`loadline_recommender_checkpoint_writes_total{result="rejected"} _x10 3x200`, `loadline_recommender_checkpoint_writes_total{result="error"} _x10 0x200`, recommenderRuns}},
			{"once the program has begun again", "2h", false, []string{`loadline_recommender_checkpoint_writes_total{result="rejected",instance="a"} 3x60 stale`, `loadline_recommender_checkpoint_writes_total{result="error",instance="b"} _x62 0x200`, recommenderRuns}},
			{"when nothing was rejected, and errors are old", "2h", false, []string{`loadline_recommender_checkpoint_writes_total{result="rejected"} 0x200`, `loadline_recommender_checkpoint_writes_total{result="error"} 4x200`, `loadline_recommender_checkpoint_writes_total{result="mended"} 4x200`, recommenderRuns}},
		},
	},
	{
		name: "LoadlineStatusWritesFail", severity: warning, forDuration: "30m",
		expr:        increaseExpr("sum", `loadline_recommender_status_writes_total{result="error"}`, "30m", recommenderSeries) + " > 0",
		summary:     "Recommendations cannot be written.",
		description: "VPAs show outdated recommendations.",
		actions:     []string{"The log of the recommender names the VPA and the error.", "`kubectl auth can-i patch verticalpodautoscalers/status --as=system:serviceaccount:kube-system:vpa-recommender -A`."},
		firing:      []string{`loadline_recommender_status_writes_total{result="error"} 0+1x120`},
		quiet:       []string{`loadline_recommender_status_writes_total{result="error"} 4x120`, `loadline_recommender_status_writes_total{result="late"} 0+1x120`},
		situations: []situation{
			{"when the first error begins the series", "1h45m", true, []string{`loadline_recommender_status_writes_total{result="error"} _x70 1x25 2x60`, recommenderRuns}},
			{"at old errors", "1h45m", false, []string{`loadline_recommender_status_writes_total{result="error"} 4x200`, recommenderRuns}},
		},
	},
	{
		name: "LoadlineDefect", severity: warning, forDuration: "0m",
		expr:        increaseExpr("sum by (step) ", `loadline_recommender_panics_total`, "1h", recommenderSeries) + " > 0",
		summary:     "The recommender recovered from a panic in step {{ $labels.step }}.",
		description: "One VPA missed an iteration, or a part of it. All others continued.",
		actions:     []string{"The log has the VPA and a stack trace: please report it."},
		firing:      []string{`loadline_recommender_panics_total{step="UpdateVPAs"} 0+1x120`},
		quiet:       []string{`loadline_recommender_panics_total{step="UpdateVPAs"} 3x120`},
		situations: []situation{
			{"when the first defect begins the series", "2h", true, []string{`loadline_recommender_panics_total{step="HandleOOMs"} _x100 1x50`, recommenderRuns}},
			{"at old defects", "2h", false, []string{`loadline_recommender_panics_total{step="HandleOOMs"} 3x200`, recommenderRuns}},
		},
	},
	{
		name: "LoadlineHistoryIncomplete", severity: warning, forDuration: "2h",
		expr:        `loadline_recommender_history_complete == 0`,
		summary:     "History from Prometheus has been loading for two hours.",
		description: "Recommendations may be based on an incomplete history, and no target is lowered.",
		actions:     []string{"`loadline_recommender_history_progress_ratio` reports the progress. The log names the failing queries.", "If Prometheus has no usage of the containers, the log names the queries: correct the flags for metrics, labels and matchers. With a new Prometheus no action is needed, and the alert resolves after a day.", "A query that is too large: a shorter `--history-length`, or a longer `--history-resolution`."},
		firing:      []string{`loadline_recommender_history_complete 0x240`},
		quiet:       []string{`loadline_recommender_history_complete 1x240`},
	},
	{
		name: "LoadlineKilledAfterACut", severity: warning, forDuration: "0m",
		expr:        `loadline_workload_ooms_since_change{resource="memory"} > 0 and loadline_workload_last_change_ratio{resource="memory"} < 0`,
		summary:     "{{ $labels.namespace }}/{{ $labels.vpa }}: container {{ $labels.container }} ran out of memory after its target was lowered.",
		description: "A recommendation was too low. The out-of-memory kill raises it. Requires `--workload-metrics`.",
		actions:     []string{"`kubectl loadline explain NAME`: how the target was computed.", "If it comes back: another recipe, or `minAllowed` ([recipes.md](recipes.md))."},
		firing:      []string{`loadline_workload_ooms_since_change{namespace="shop",vpa="web",container="app",resource="memory"} 1x120`, `loadline_workload_last_change_ratio{namespace="shop",vpa="web",container="app",resource="memory"} -0.2x120`},
		quiet:       []string{`loadline_workload_ooms_since_change{namespace="shop",vpa="web",container="app",resource="memory"} 1x120`, `loadline_workload_last_change_ratio{namespace="shop",vpa="web",container="app",resource="memory"} 0.2x120`},
	},
	{
		name: "LoadlineMemoryGrowth", severity: info, forDuration: "1h",
		expr:        `loadline_recommender_vpas_with_memory_growth > 0`,
		summary:     "{{ $value }} VPAs have a container with memory that grows from day to day.",
		description: "Perhaps a leak: the recommendation follows it, and hides it.",
		actions:     []string{"`kubectl get vpa -A -o json` and look for the condition `MemoryGrowth`: its message says how fast ([conditions.md](conditions.md))."},
		firing:      []string{`loadline_recommender_vpas_with_memory_growth 2x240`},
		quiet:       []string{`loadline_recommender_vpas_with_memory_growth 0x240`},
	},
	{
		name: "LoadlineRecommendationCapped", severity: info, forDuration: "1d",
		expr:        `kube_verticalpodautoscaler_status_recommendation_containerrecommendations_uncappedtarget > on (namespace, verticalpodautoscaler, container, resource) kube_verticalpodautoscaler_status_recommendation_containerrecommendations_target`,
		summary:     "{{ $labels.namespace }}/{{ $labels.verticalpodautoscaler }}: container {{ $labels.container }} needs more {{ $labels.resource }} than its cap allows.",
		description: "`maxAllowed`, or a cap of the recipe or the program, limits the computed target. Requires kube-state-metrics with the configuration in this folder.",
		actions:     []string{"Raise `maxAllowed` if the demand is real, else investigate the container."},
		firing: []string{
			`kube_verticalpodautoscaler_status_recommendation_containerrecommendations_uncappedtarget{namespace="shop",verticalpodautoscaler="web",container="app",resource="cpu",unit="core"} 2x1600`,
			`kube_verticalpodautoscaler_status_recommendation_containerrecommendations_target{namespace="shop",verticalpodautoscaler="web",container="app",resource="cpu",unit="core"} 1x1600`,
		},
		quiet: []string{
			`kube_verticalpodautoscaler_status_recommendation_containerrecommendations_uncappedtarget{namespace="shop",verticalpodautoscaler="web",container="app",resource="cpu",unit="core"} 1x1600`,
			`kube_verticalpodautoscaler_status_recommendation_containerrecommendations_target{namespace="shop",verticalpodautoscaler="web",container="app",resource="cpu",unit="core"} 1x1600`,
		},
	},
	{
		name: "LoadlineRecommendationsLimited", severity: info, forDuration: "1h",
		expr:        `max by (limit) (loadline_recommender_limited_vpas) > 0`,
		summary:     "{{ $value }} VPAs lack recommendations because of a limit: {{ $labels.limit }}.",
		description: "Containers without a recommendation keep their resources. The limits protect the programs and etcd from one namespace.",
		actions: []string{"Conditions `TooManyContainers` and `StatusTooLarge` of a VPA, or reason `TooManyVPAs` of its condition `RecommendationProvided`, name the limit: `kubectl loadline doctor` lists these VPAs.",
			"`containers`: split the workload, or reuse container names. `vpas`: delete VPAs that have the same target as another one. `status_bytes`: set mode `Off` for some containers in `spec.resourcePolicy`, or split the workload. `namespace_bytes`: move VPAs to another namespace, or use fewer container policies."},
		firing: []string{`loadline_recommender_limited_vpas{limit="containers"} 1x180`},
		quiet:  []string{`loadline_recommender_limited_vpas{limit="containers"} 0x180`},
	},
	{
		name: "LoadlineWritesLimited", severity: info, forDuration: "30m",
		expr: `sum by (resource) (increase(loadline_write_limited_total[30m])) > 0 or ` +
			`sum by (result) (increase(loadline_recommender_checkpoint_writes_total{result="namespace_full"}[30m])) > 0`,
		summary: "Objects of a namespace are written late, or not at all, because of its limit.",
		description: "A namespace used its [write limit](security.md#writes-for-one-namespace): `resource` is the kind of the objects. Or its checkpoints " +
			"have reached 32 MiB, or 16 KiB for each running pod (`result` is `namespace_full`): new containers are not saved. Other namespaces are not affected.",
		actions: []string{"The log names the namespace: `Delaying writes because of the write limit of a namespace`, or `Checkpoints exceed the limit of their namespace`.",
			"Look for large objects and VPAs with many containers: `kubectl get vpa,pods -n NAMESPACE -o json | jq -r '.items[] | \"\\(tojson | length) \\(.kind) \\(.metadata.name)\"' | sort -rn | head`.",
			"Condition `WriteLimited` of a VPA and reason `WriteLimit` of a pod show what waits. Memory after out-of-memory kills uses a reserve, and reverts do not wait."},
		firing: []string{`loadline_write_limited_total{resource="pods"} 0+1x120`},
		quiet:  []string{`loadline_write_limited_total{resource="pods"} 4x120`, `loadline_recommender_checkpoint_writes_total{result="namespace_full"} 4x120`},
		situations: []situation{
			{"at checkpoints of a full namespace", "2h", true, []string{`loadline_recommender_checkpoint_writes_total{result="namespace_full"} 0+3x180`}},
		},
	},
	{
		name: "LoadlineUpdaterStalled", severity: critical, forDuration: "10m",
		expr:        `sum(increase(vpa_updater_execution_latency_seconds_count{step="total"}[10m])) == 0 or absent(vpa_updater_execution_latency_seconds_count{step="total"})`,
		summary:     "No updater has completed an iteration in ten minutes.",
		description: "No running pod is resized, not even after an out-of-memory kill. Changes under observation are not reverted.",
		actions: []string{
			"`kubectl -n kube-system get pods -l app=vpa-updater` and the end of its log.",
			"`kubectl -n kube-system get lease vpa-updater`: the leader.",
			"Not installed on purpose: take this rule out.",
		},
		firing: []string{`vpa_updater_execution_latency_seconds_count{step="total"} 60x120`},
		quiet:  []string{`vpa_updater_execution_latency_seconds_count{step="total"} 60+1x120`},
	},
	{
		name: "LoadlineRevertsFail", severity: critical, forDuration: "5m",
		expr:        increaseExpr("sum", `loadline_updater_revert_errors_total`, "10m", updaterSeries) + " > 0",
		summary:     "A harmful change cannot be reverted.",
		description: "A pod under a SizingPolicy has less than it needs, and the resize that reverts the change is refused. It is retried continuously.",
		actions:     []string{"The log of the updater names the pod and why: a quota that is full, a node without room, an admission policy.", "`kubectl get sizings -A`, then resize the pod by hand if it cannot wait."},
		firing:      []string{`loadline_updater_revert_errors_total 0+1x120`},
		quiet:       []string{`loadline_updater_revert_errors_total 5x120`},
		situations: []situation{
			{"when the first failures begin the series", "1h47m", true, []string{`loadline_updater_revert_errors_total _x100 8x50`, updaterRuns}},
			{"at old failures", "1h47m", false, []string{`loadline_updater_revert_errors_total 5x200`, updaterRuns}},
			{"at old failures when Prometheus begins", "1h47m", false, []string{`loadline_updater_revert_errors_total _x100 5x50`, updaterSeries + ` _x100 500+1x50`}},
		},
	},
	{
		name: "LoadlineRevertsDeferred", severity: critical, forDuration: "0m",
		expr:        increaseExpr("sum by (reason) ", `loadline_updater_deferred_reverts_total`, "1h", updaterSeries) + " > 0",
		summary:     "A node did not apply the revert of a change in time ({{ $labels.reason }}).",
		description: "The API server accepted the resize that restores the previous resources of a pod under a SizingPolicy, but the kubelet has not applied it. The pod may still run with less than it needs.",
		actions:     []string{"`kubectl get events -A --field-selector reason=RevertDeferred`, then read the condition `PodResizePending` of the pod. The usual cause is a node without room.", "Free room on the node, or delete the pod if it can start on another node."},
		firing:      []string{`loadline_updater_deferred_reverts_total{reason="OOMKilled",vpa_name="a",vpa_namespace="n"} 0+1x120`},
		quiet:       []string{`loadline_updater_deferred_reverts_total{reason="OOMKilled",vpa_name="a",vpa_namespace="n"} 5x120`},
		situations: []situation{
			{"when the first deferred revert begins the series", "2h", true, []string{`loadline_updater_deferred_reverts_total{reason="OOMKilled",vpa_name="a",vpa_namespace="n"} _x100 1x50`, updaterRuns}},
			{"at old values when Prometheus begins", "2h", false, []string{`loadline_updater_deferred_reverts_total{reason="OOMKilled",vpa_name="a",vpa_namespace="n"} _x90 5x60`, updaterSeries + ` _x90 500+1x60`}},
		},
	},
	{
		name: "LoadlineWebhookSilent", severity: warning, forDuration: "10m",
		expr:        increaseExpr("sum by (reason) ", `vpa_updater_admission_controller_status_invalid_total`, "10m", updaterSeries) + " > 0",
		summary:     "The updater evicts no pods, because the admission controller has no valid heartbeat ({{ $labels.reason }}).",
		description: "`invalid`: its heartbeat is old, so evicted pods might come back unchanged. `error`: the Lease cannot be read.",
		actions:     []string{"`kubectl -n kube-system get lease vpa-admission-controller` and the log of the admission controller, which names the failing probe.", "A NetworkPolicy or firewall between API server and webhook is the usual cause ([admission.md](admission.md))."},
		firing:      []string{`vpa_updater_admission_controller_status_invalid_total{reason="invalid"} 0+1x120`},
		quiet:       []string{`vpa_updater_admission_controller_status_invalid_total{reason="invalid"} 3x120`},
		situations: []situation{
			{"when the first pass that is skipped begins the series", "1h25m", true, []string{`vpa_updater_admission_controller_status_invalid_total{reason="invalid"} _x70 1x7 2x60`, updaterRuns}},
			{"at old passes that were skipped", "1h25m", false, []string{`vpa_updater_admission_controller_status_invalid_total{reason="invalid"} 3x200`, updaterRuns}},
		},
	},
	{
		name: "LoadlinePodsStuck", severity: warning, forDuration: "1h",
		expr:        `loadline_updater_skipped_pods{reason=~"Infeasible|ResizeFailed|TooLargeForNode|QuotaFull|NoBudget|NodeFull|Deferred|ResizeRefused|EvictionRefused|ReplacementRefused|ReplacementUnchanged|ReplacementUnknown|StaleCache|BudgetTooLarge"} > 0`,
		summary:     "{{ $value }} pods have waited for their recommendation for an hour: {{ $labels.reason }}.",
		description: "A persistent problem prevents changes of these pods.",
		actions:     []string{"[reasons.md](reasons.md) explains each reason and its remedy.", "`kubectl loadline why pod/NAME` explains one pod."},
		firing:      []string{`loadline_updater_skipped_pods{reason="QuotaFull"} 2x180`},
		quiet:       []string{`loadline_updater_skipped_pods{reason="Unchanged"} 2x180`, `loadline_updater_skipped_pods{reason="QuotaFull"} 0x180`},
	},
	{
		name: "LoadlineManyReverts", severity: warning, forDuration: "0m",
		expr:        increaseExpr("sum by (reason) ", `loadline_updater_reverts_total`, "1h", updaterSeries) + " > 5",
		summary:     "More than five changes were reverted within an hour: {{ $labels.reason }}.",
		description: "Changes under a SizingPolicy harm several pods. Their previous resources were restored.",
		actions:     []string{"`kubectl get sizings -A`: which workloads.", "`spec.rollout.startRate: 1` slows new changes down while changes under observation are still judged and reverted. Then correct the recipe. A change of the mode ends the observation without a revert ([policy.md](policy.md))."},
		firing:      []string{`loadline_updater_reverts_total{reason="OOMKilled",vpa_name="a",vpa_namespace="n"} 0+1x120`},
		quiet:       []string{`loadline_updater_reverts_total{reason="OOMKilled",vpa_name="a",vpa_namespace="n"} 9x120`},
		situations: []situation{
			{"at the first change of each of many workloads", "2h", true, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} _x100 1x50`), updaterRuns)},
			{"when the updater is replaced in between", "2h", true, append(append(
				repeatSeries(4, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n",instance="a"} _x80 1x10 stale`),
				repeatSeries(3, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n",instance="b"} _x100 1x50`)...), updaterRuns)},
			{"at old workloads with another each", "2h", true, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} 3x90 4x60`), updaterRuns)},
			{"at five workloads", "2h", false, append(repeatSeries(5, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} _x100 1x50`), updaterRuns)},
			{"at many workloads with old values", "2h", false, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} 1x200`), updaterRuns)},
			{"an hour after the first changes", "2h", false, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} _x40 1x200`), updaterRuns)},
			{"at old values when Prometheus begins", "2h", false, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} _x90 9x60`),
				updaterSeries+` _x90 500+1x60`)},
			{"at old values when Prometheus stood for two hours", "2h50m", false, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} 9x20 _x130 9x60`),
				updaterSeries+` 500+1x20 _x130 650+1x60`)},
			{"at old values when Prometheus stood for twenty minutes", "2h", false, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n"} 9x50 _x20 9x60`),
				updaterSeries+` 500+1x50 _x20 570+1x60`)},
			{"at old values when one scrape fails", "2h", false, append(repeatSeries(12, `loadline_updater_reverts_total{reason="OOMKilled",vpa_name="v%d",vpa_namespace="n",instance="a"} 9x58 stale stale 9x90`),
				`vpa_updater_execution_latency_seconds_count{step="total",instance="b"} 500+1x300`)},
		},
	},
	{
		name: "LoadlineWorkloadDegraded", severity: warning, forDuration: "15m",
		expr:        `loadline_policy_degraded > 0`,
		summary:     "{{ $value }} workloads of policy {{ $labels.policy }} are Degraded.",
		description: "Their changes were reverted repeatedly, so each backoff is longer than the last.",
		actions:     []string{"`kubectl get sizings -A` and `kubectl loadline explain` of one of them: what happened, and the time of the next attempt."},
		firing:      []string{`loadline_policy_degraded{policy="fleet"} 1x120`},
		quiet:       []string{`loadline_policy_degraded{policy="fleet"} 0x120`},
	},
	{
		name: "LoadlineFuseTripped", severity: warning, forDuration: "1m",
		expr:        `max by (policy) (loadline_policy_fuse_tripped) > 0`,
		summary:     "The fuse of policy {{ $labels.policy }} has tripped.",
		description: "At least 5 rounds ended within an hour, and more than 20 % of the judged ones, and at least two, were reverted. The policy changes no further pod, or none in the namespaces that its condition names, until a user acknowledges the reverts.",
		actions: []string{"`kubectl get sizings -A`: what was reverted, and why.",
			"Condition `FuseTripped` of the policy has the command that acknowledges it ([policy.md](policy.md#start-rate-and-fuse))."},
		firing: []string{`loadline_policy_fuse_tripped{policy="fleet"} 1x120`},
		quiet:  []string{`loadline_policy_fuse_tripped{policy="fleet"} 0x120`},
	},
	{
		name: "LoadlineRecordsFail", severity: warning, forDuration: "15m",
		expr:        increaseExpr("sum", `loadline_updater_record_errors_total`, "15m", updaterSeries) + " > 0",
		summary:     "SizingRecords cannot be written.",
		description: "No further pod is changed under a SizingPolicy where its record cannot be written first.",
		actions:     []string{"The log of the updater names the record and why: a quota of objects, a webhook, permissions, a namespace that is being deleted."},
		firing:      []string{`loadline_updater_record_errors_total 0+1x120`},
		quiet:       []string{`loadline_updater_record_errors_total 5x120`},
		situations: []situation{
			{"when the first error begins the series", "1h32m", true, []string{`loadline_updater_record_errors_total _x70 1x11 2x60`, updaterRuns}},
			{"at old errors", "1h32m", false, []string{`loadline_updater_record_errors_total 5x200`, updaterRuns}},
		},
	},
	{
		name: "LoadlineStartsLimited", severity: info, forDuration: "1d",
		expr:    `sum(loadline_updater_skipped_pods{reason="StartRate"}) > 0`,
		summary: "{{ $value }} pods have waited for the start rate of their SizingPolicy for a day.",
		description: "The policy has not changed their workloads yet. The number of workloads that may start doubles each hour, so 10,000 workloads need about ten hours. " +
			"It takes longer if changes fail and return their start, `rollout.startRate` is low, or `safety.observationPeriod` is long.",
		actions: []string{"`loadline_updater_skipped_pods` by reason, and `kubectl loadline explain` of a workload that has started: why its pods are not changed.",
			"`spec.rollout.startRate` of the policy ([policy.md](policy.md#start-rate-and-fuse)); 0 switches the limit off."},
		firing: []string{`loadline_updater_skipped_pods{reason="StartRate"} 40x1600`},
		quiet:  []string{`loadline_updater_skipped_pods{reason="StartRate"} 40x700 0x900`, `loadline_updater_skipped_pods{reason="CoolingDown"} 40x1600`},
	},
	{
		name: "LoadlineEvidenceMissing", severity: info, forDuration: "30m",
		expr:        increaseExpr("sum by (source) ", `loadline_updater_evidence_missing_total`, "30m", updaterSeries) + " > 0",
		summary:     "{{ $labels.source }} has no throttling or CPU pressure data for changed pods.",
		description: "Changes are still reverted after kills, restarts and lost readiness, but not for throttling and pressure.",
		actions:     []string{"`--prometheus-address` of the updater, and whether Prometheus scrapes the kubelets ([policy.md](policy.md))."},
		firing:      []string{`loadline_updater_evidence_missing_total{source="prometheus"} 0+1x120`},
		quiet:       []string{`loadline_updater_evidence_missing_total{source="prometheus"} 5x120`},
		situations: []situation{
			{"when the first pods begin the series", "1h45m", true, []string{`loadline_updater_evidence_missing_total{source="prometheus"} _x70 7x25 8x60`, updaterRuns}},
			{"at pods of long ago", "1h45m", false, []string{`loadline_updater_evidence_missing_total{source="prometheus"} 5x200`, updaterRuns}},
		},
	},
	{
		name: "LoadlineNodesOverloaded", severity: info, forDuration: "30m",
		expr:        `loadline_node_overloaded_nodes > 0`,
		summary:     "{{ $value }} nodes have had more load than CPUs for half an hour.",
		description: "With `--node-load-taint=on` they accept no new pods during the overload.",
		actions:     []string{"`kubectl get nodes -o json` and look for the taint `loadline.dev/overloaded`.", "Disks that are slow count as load, too ([updater.md](updater.md#overloaded-nodes))."},
		firing:      []string{`loadline_node_overloaded_nodes 1x120`},
		quiet:       []string{`loadline_node_overloaded_nodes 0x120`},
	},
	{
		name: "LoadlineWebhookAbsent", severity: critical, forDuration: "10m",
		expr:        `absent(loadline_admission_controller_certificate_days_left)`,
		summary:     "No admission controller is scraped.",
		description: "New pods start with the resources of their template. The updater evicts no pods.",
		actions:     []string{"`kubectl -n kube-system get pods -l app=vpa-admission-controller` and the end of its log.", "Not installed on purpose: take this rule out."},
		firing:      []string{`vpa_admission_controller_admission_pods_total{applied="true"} 1x120`},
		quiet:       []string{`loadline_admission_controller_certificate_days_left 200x120`},
	},
	{
		name: "LoadlineCertificateExpires", severity: critical, forDuration: "1h",
		expr:        `loadline_admission_controller_certificate_days_left < 14`,
		summary:     "The certificate of the webhook expires in {{ $value }} days.",
		description: "The program renews its own certificates long before they expire. Either it cannot write its Secret, or the certificate is yours and is not renewed.",
		actions:     []string{"The log of the admission controller reports why the renewal failed.", "Own certificates and cert-manager: check that the Secret has the new one. It is reloaded within ten seconds.", "For certificates that live less than a month, silence this alert for the installation and alert on a tenth of that life instead."},
		firing:      []string{`loadline_admission_controller_certificate_days_left 13x180`},
		quiet:       []string{`loadline_admission_controller_certificate_days_left 15x180`},
	},
	{
		name: "LoadlineWebhookSlow", severity: warning, forDuration: "10m",
		expr:        `histogram_quantile(0.99, sum by (le) (rate(vpa_admission_controller_admission_latency_seconds_bucket[5m]))) > 1`,
		summary:     "One pod in a hundred waits more than a second for the webhook.",
		description: "Pod creation is slow. After the timeout of the webhook, pods are created unchanged.",
		actions:     []string{"Processor limit of the admission controller, and whether the node is overloaded.", "`loadline_admission_controller_problems_total` by cause: `busy` means too many concurrent reviews."},
		firing:      []string{`vpa_admission_controller_admission_latency_seconds_bucket{le="1",status="applied",resource="Pod"} 0x120`, `vpa_admission_controller_admission_latency_seconds_bucket{le="2",status="applied",resource="Pod"} 0+9x120`, `vpa_admission_controller_admission_latency_seconds_bucket{le="+Inf",status="applied",resource="Pod"} 0+9x120`},
		quiet:       []string{`vpa_admission_controller_admission_latency_seconds_bucket{le="0.01",status="applied",resource="Pod"} 0+9x120`, `vpa_admission_controller_admission_latency_seconds_bucket{le="+Inf",status="applied",resource="Pod"} 0+9x120`},
	},
	{
		name: "LoadlineWebhookProblems", severity: warning, forDuration: "15m",
		expr:        increaseExpr("sum by (cause) ", `loadline_admission_controller_problems_total{cause!~"connection|note"}`, "15m", webhookSeries) + " > 0",
		summary:     "Webhook reviews fail: {{ $labels.cause }}.",
		description: "Pods of these reviews start unchanged.",
		actions:     []string{"[admission.md](admission.md) lists the causes; the log has an example of each."},
		firing:      []string{`loadline_admission_controller_problems_total{cause="busy"} 0+1x120`},
		quiet:       []string{`loadline_admission_controller_problems_total{cause="busy"} 8x120`, `loadline_admission_controller_problems_total{cause="note"} 0+1x120`, `loadline_admission_controller_problems_total{cause="connection"} 0+1x120`},
		situations: []situation{
			{"at the first problem of each of three replicas", "1h35m", true, []string{`loadline_admission_controller_problems_total{cause="busy",instance="a"} _x70 1x80`,
				`loadline_admission_controller_problems_total{cause="busy",instance="b"} _x80 1x70`, `loadline_admission_controller_problems_total{cause="busy",instance="c"} _x90 1x60`, webhookRuns}},
			{"at old problems", "1h35m", false, []string{`loadline_admission_controller_problems_total{cause="busy",instance="a"} 8x200`, `loadline_admission_controller_problems_total{cause="busy",instance="b"} 9x200`, webhookRuns}},
		},
	},
}

func (a alert) runbook() string { return "docs/monitoring.md#" + strings.ToLower(a.name) }

// rules is for rule_files of Prometheus.
func rules() any {
	var list []any
	for _, a := range alerts {
		list = append(list, map[string]any{
			"alert": a.name, "expr": a.expr, "for": a.forDuration,
			"labels":      map[string]any{"severity": a.severity},
			"annotations": map[string]any{"summary": a.summary, "description": a.description, "runbook": a.runbook()},
		})
	}
	return map[string]any{"groups": []any{map[string]any{"name": "loadline", "rules": list}}}
}

// prometheusRule is for the Prometheus operator.
func prometheusRule() any {
	return map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"metadata": map[string]any{"name": "loadline", "namespace": "kube-system"}, "spec": rules(),
	}
}

// settleTime is how long after the "for" duration of a rule rulesTest evaluates it.
const settleTime = 40 * time.Minute

// rulesTest is for promtool test rules.
func rulesTest() (any, error) {
	var tests []any
	for _, a := range alerts {
		after, err := model.ParseDuration(a.forDuration)
		if err != nil {
			return nil, fmt.Errorf("alert %s: %w", a.name, err)
		}
		test := func(name, at string, fires bool, lines []string) {
			var series, expected []any
			for _, line := range lines {
				of, values, _ := strings.Cut(line, " ")
				series = append(series, map[string]any{"series": of, "values": values})
			}
			if fires {
				expected = []any{map[string]any{"labels": "{}", "value": 1}}
			}
			tests = append(tests, map[string]any{
				"name": a.name + " " + name, "interval": "1m", "input_series": series,
				"promql_expr_test": []any{map[string]any{
					"expr":        `count(ALERTS{alertname="` + a.name + `",alertstate="firing"}) > bool 0`,
					"eval_time":   at,
					"exp_samples": expected,
				}},
			})
		}
		at := model.Duration(time.Duration(after) + settleTime).String()
		test("fires", at, true, a.firing)
		test("is quiet", at, false, a.quiet)
		for _, s := range a.situations {
			verb := "is quiet "
			if s.fires {
				verb = "fires "
			}
			test(verb+s.name, s.at, s.fires, s.series)
		}
	}
	return map[string]any{"rule_files": []any{"rules.yaml"}, "evaluation_interval": "1m", "tests": tests}, nil
}
