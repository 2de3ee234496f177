package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const intro = `# Monitoring

Use this page to monitor Loadline. It is generated, like the files below, from the alert definitions and the
metrics that the programs serve, on ` + "`/metrics`" + ` of their ports (recommender 8942, updater 8943, admission controller 8944).

| in ` + "`deploy/monitoring`" + ` | what it is |
|---|---|
| ` + "`rules.yaml`" + ` | [alerts](#alerts) for ` + "`rule_files`" + ` of Prometheus |
| ` + "`prometheusrule.yaml`" + ` | the same for the Prometheus operator |
| ` + "`rules-test.yaml`" + ` | series at which each alert fires, and others at which it does not: ` + "`promtool test rules rules-test.yaml`" + ` |
| ` + "`dashboards/`" + ` | pages of Grafana, to be imported |
| ` + "`kube-state-metrics/`" + ` | ` + "`--custom-resource-state-config-file`" + `: VPAs under the names that other dashboards know, ` + "`kube_verticalpodautoscaler_...`" + ` or ` + "`kube_customresource_verticalpodautoscaler_...`" + `, with the label ` + "`resource`" + ` and with ` + "`_cpu`" + ` and ` + "`_memory`" + ` at their end. kube-state-metrics needs the right to list and watch ` + "`verticalpodautoscalers`" + ` |
| ` + "`argocd/argocd-cm.yaml`" + ` | health of VPAs and SizingPolicies in Argo CD |

`

const newSeriesNote = `Most error counters begin with their first event, which ` + "`increase`" + ` alone does not see. So their alerts take a counter that is new
within the time at its value (` + "`max_over_time`" + `), provided that Prometheus knew the program before that time: what it finds when it begins, or goes on after a
gap, may be old.

`

func page(served metrics) string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("## Alerts\n\n" + newSeriesNote)
	for _, a := range alerts {
		fmt.Fprintf(&b, "### %s\n\n", a.name)
		wait := "at once"
		if a.forDuration != "0m" {
			wait = "after " + a.forDuration
		}
		fmt.Fprintf(&b, "%s, %s: `%s`\n\n%s\n\n", strings.ToUpper(a.severity[:1])+a.severity[1:], wait, a.expr, a.description)
		for _, step := range a.actions {
			fmt.Fprintf(&b, "* %s\n", step)
		}
		b.WriteString("\n")
	}
	b.WriteString("## Metrics\n\nMetrics that begin with `vpa_` have the names, labels and buckets of the reference VPA.\n")
	for _, program := range programs {
		fmt.Fprintf(&b, "\n### Of the %s\n\n| metric | type | labels | |\n|---|---|---|---|\n", strings.ReplaceAll(program, "-", " "))
		for _, name := range slices.Sorted(maps.Keys(served)) {
			if m := served[name]; m.program == program {
				labels := ""
				if len(m.labels) > 0 {
					labels = "`" + strings.Join(m.labels, "`, `") + "`"
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, strings.ReplaceAll(m.help, "|", `\|`))
			}
		}
	}
	b.WriteString(testedNote)
	return b.String()
}

const testedNote = `
How the commands of this page were tried: ` + "`TestAlerts_FireOnTestSeries`" + ` and ` + "`TestDashboards_QueriesAreValid`" + ` run rules and queries in a Prometheus. kube-state-metrics 2.18.0 served both files of VPAs, 37 series of 26
families for two VPAs each, on 26 November 2026, when the commands within sentences were run on the local control plane, too. No Grafana was at hand to import the dashboards.
`
