package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var programValues = map[string]string{"recommender": "recommender", "updater": "updater", "admission-controller": "admissionController"}

// renderedParts maps a value with maps or lists to the part of a Deployment that it sets.
var renderedParts = map[string]func(appsv1.Deployment) any{
	"resources":    func(d appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Resources },
	"nodeSelector": func(d appsv1.Deployment) any { return d.Spec.Template.Spec.NodeSelector },
	"tolerations":  func(d appsv1.Deployment) any { return d.Spec.Template.Spec.Tolerations },
	"affinity":     func(d appsv1.Deployment) any { return d.Spec.Template.Spec.Affinity },
	"topologySpreadConstraints": func(d appsv1.Deployment) any {
		return d.Spec.Template.Spec.TopologySpreadConstraints
	},
	"priorityClassName": func(d appsv1.Deployment) any { return d.Spec.Template.Spec.PriorityClassName },
	"podAnnotations":    func(d appsv1.Deployment) any { return d.Spec.Template.Annotations },
	"podLabels":         func(d appsv1.Deployment) any { return d.Spec.Template.Labels },
	"annotations":       func(d appsv1.Deployment) any { return d.Annotations },
	"updateStrategy":    func(d appsv1.Deployment) any { return d.Spec.Strategy },
	"extraEnv": func(d appsv1.Deployment) any {
		return slices.DeleteFunc(d.Spec.Template.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	},
	"extraArgs": func(d appsv1.Deployment) any {
		args := d.Spec.Template.Spec.Containers[0].Args
		return args[slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--v=") }):]
	},
}

// chartParts does the same for values of the whole chart.
var chartParts = map[string]func(appsv1.Deployment) any{
	"imagePullSecrets":         func(d appsv1.Deployment) any { return d.Spec.Template.Spec.ImagePullSecrets },
	"podSecurityContext":       func(d appsv1.Deployment) any { return d.Spec.Template.Spec.SecurityContext },
	"containerSecurityContext": func(d appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].SecurityContext },
}

// requireAsUpstream requires that each part set by values renders as in the upstream chart.
func requireAsUpstream(t *testing.T, given map[string]any) {
	t.Helper()
	given["crds"] = map[string]any{"enabled": false} // they are large
	theirs := renderedFrom(t, upstreamChart(t), "kube-system", given).objects
	ours := renderedFrom(t, filepath.Join(root, chartFolder), "kube-system", given).objects
	for program, key := range programValues {
		name := fullname + "-" + program
		set, _ := given[key].(map[string]any)
		for _, source := range []struct {
			values map[string]any
			parts  map[string]func(appsv1.Deployment) any
		}{{given, chartParts}, {set, renderedParts}} {
			for value, part := range source.parts {
				if source.values[value] != nil {
					want := part(into[appsv1.Deployment](t, theirs.of("Deployment")[name]))
					got := part(into[appsv1.Deployment](t, ours.of("Deployment")[name]))
					require.Equal(t, asJSON(t, want), asJSON(t, got), "%s of %s", value, program)
				}
			}
		}
		if set["podDisruptionBudget"] != nil {
			require.Equal(t, budgetOf(t, theirs, name), budgetOf(t, ours, name), "podDisruptionBudget of %s", program)
		}
	}
}

// asJSON makes quantities and empty collections comparable.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "null", "[]")
}

func budgetOf(t *testing.T, all objects, name string) string {
	t.Helper()
	budget := all.of("PodDisruptionBudget")[name]
	if budget == nil {
		return "none"
	}
	return asJSON(t, into[policyv1.PodDisruptionBudget](t, budget).Spec)
}

func TestChart_SetValuesRenderAsUpstream(t *testing.T) {
	for _, tc := range []struct{ name, value string }{
		{"limits without a CPU limit", "resources: {requests: {cpu: 50m, memory: 512Mi}, limits: {memory: 1536Mi}}"},
		{"requests above the default limits", "resources: {requests: {cpu: 500m, memory: 2Gi}}"},
		{"only one limit", "resources: {limits: {cpu: 2}}"},
		{"a further resource", "resources: {requests: {ephemeral-storage: 1Gi}}"},
		{"claims", "resources: {claims: [{name: gpu}]}"},
		{"no resources", "resources: {}"},
		{"a removed part", "resources: {requests: {cpu: 1}, limits: null}"},
		{"node selector", "nodeSelector: {pool: system}"},
		{"tolerations", "tolerations: [{key: dedicated, operator: Exists}]"},
		{"no tolerations", "tolerations: []"},
		{"node affinity beside the default", `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
  {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [system]}]}]}}}`},
		{"required anti-affinity beside the default", `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
  [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {a: b}}}]}}`},
		{"other preferred anti-affinity", `affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution:
  [{weight: 1, podAffinityTerm: {topologyKey: rack, labelSelector: {matchLabels: {a: b}}}}]}}`},
		{"no preferred anti-affinity", "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: null}}"},
		{"empty affinity", "affinity: {}"},
		{"no affinity", "affinity: {podAntiAffinity: null}"},
		{"spread", "topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]"},
		{"no spread", "topologySpreadConstraints: []"},
		{"priority", "priorityClassName: high"},
		{"no priority", `priorityClassName: ""`},
		{"pod annotations", "podAnnotations: {a: b}"},
		{"pod labels", "podLabels: {a: b}"},
		{"annotations", "annotations: {a: b}"},
		{"variables", "extraEnv: [{name: A, value: b}]"},
		{"arguments", "extraArgs: [--profiling=true]"},
		{"no arguments", "extraArgs: []"},
		{"strategy", "updateStrategy: {rollingUpdate: {maxSurge: 0}}"},
		{"budget by unavailable", "podDisruptionBudget: {minAvailable: null, maxUnavailable: 1}"},
		{"budget by available", "podDisruptionBudget: {minAvailable: 50%}"},
		{"no budget", "podDisruptionBudget: {enabled: false}"},
		{"budget of one replica", "{replicas: 1, podDisruptionBudget: {minAvailable: null, maxUnavailable: 1}}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var value map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(tc.value), &value))
			for _, key := range programValues {
				own := maps.Clone(value)
				if key == "updater" {
					delete(own, "extraEnv") // the upstream chart has none
					delete(own, "updateStrategy")
				}
				requireAsUpstream(t, map[string]any{key: own})
			}
		})
	}
	for _, tc := range []struct{ name, values string }{
		{"all values of the upstream chart", upstreamValues(t)},
		{"another user", "podSecurityContext: {runAsUser: 1000}"},
		{"a group", "podSecurityContext: {fsGroup: 1000}"},
		{"a removed default", "podSecurityContext: {runAsNonRoot: null}"},
		{"an empty pod security context", "podSecurityContext: {}"},
		{"one part of the container security context", "containerSecurityContext: {readOnlyRootFilesystem: true}"},
		{"no container security context", "containerSecurityContext: {}"},
		{"pull secrets", "imagePullSecrets: [{name: pull}]"},
	} {
		t.Run(tc.name, func(t *testing.T) { requireAsUpstream(t, values(t, tc.values)) })
	}
}

func TestChart_UnsetValuesKeepDefaults(t *testing.T) {
	for _, given := range []string{"{}", "recommender: {resources: null, affinity: null, tolerations: null}"} {
		pod := program(t, chart(t, given).objects, "recommender")
		require.Equal(t, "1000Mi", pod.Containers[0].Resources.Limits.Memory().String(), given)
		require.True(t, *pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
		require.Equal(t, int64(65534), *pod.SecurityContext.RunAsGroup)
		require.Len(t, pod.Tolerations, 1)
		require.Len(t, pod.TopologySpreadConstraints, 1)
		require.NotNil(t, pod.Affinity)
	}
	partial := program(t, chart(t, "updater: {resources: {limits: {memory: 2Gi}}}").objects, "recommender")
	require.Equal(t, "1000Mi", partial.Containers[0].Resources.Limits.Memory().String(), "values of one program are for that program")
}

func TestChart_ToleratesOverloadedNodesWithTheTaint(t *testing.T) {
	own := "tolerations: [{key: dedicated, operator: Exists}]"
	given := "{recommender: {" + own + "}, updater: {" + own + ", extraArgs: [--node-load-taint=true]}}"
	for _, name := range []string{"recommender", "updater", "admission-controller"} {
		tolerations := program(t, chart(t, given).objects, name).Tolerations
		require.Contains(t, tolerations, corev1.Toleration{Key: "loadline.dev/overloaded", Operator: "Exists", Effect: "NoSchedule"}, name)
	}
}

func TestChart_NotesNameUnknownValues(t *testing.T) {
	for _, tc := range []struct{ name, values, want string }{
		{name: "all of the upstream chart", values: upstreamValues(t)},
		{name: "all of this chart", values: everything},
		{name: "global values", values: "global: {imageRegistry: x}"},
		{name: "misspelled name", values: "recomender: {replicas: 1}", want: ": recomender."},
		{name: "value of a program", values: "updater: {replicaCount: 1}", want: ": updater.replicaCount."},
		{name: "several values", values: "{metrics-server: {}, updater: {metrics: {}}}", want: ": metrics-server, updater.metrics."},
		{name: "without a value", values: "admission: null", want: ": admission."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			notes := chart(t, tc.values).notes
			const sentence = "These values are unknown to this chart and have no effect"
			if tc.want == "" {
				require.NotContains(t, notes, sentence)
			} else {
				require.Contains(t, notes, sentence+tc.want)
			}
		})
	}
}

func TestChart_NotesRecognizeEachValueOfTheSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, chartFolder, "values.schema.json"))
	require.NoError(t, err)
	var whole schema
	require.NoError(t, json.Unmarshal(text, &whole))
	text, err = os.ReadFile(filepath.Join(root, chartFolder, "templates/_helpers.tpl"))
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), `{{- define "loadline.names" -}}`)
	require.True(t, found)
	block, _, _ = strings.Cut(block, "{{- end }}")
	var names map[string][]string
	require.NoError(t, yaml.Unmarshal([]byte(block), &names))
	properties := whole["properties"].(schema)
	require.ElementsMatch(t, append(slices.Collect(maps.Keys(properties)), "global"), names["chart"])
	for _, key := range programValues {
		var known []string
		for _, part := range alternatives(whole, properties[key].(schema)) {
			below, _ := part["properties"].(schema)
			known = slices.AppendSeq(known, maps.Keys(below))
		}
		require.ElementsMatch(t, known, append(slices.Clone(names["programs"]), names[key]...), key)
	}
}
