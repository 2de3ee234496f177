package main

import (
	"strings"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// stateMetrics returns a kube-state-metrics configuration that exposes VPAs under the names in
// common dashboards, both with a resource label and with a resource suffix. The spelling of
// container policies in names depends on the prefix.
//
// kube-state-metrics accepts one configuration per kind, so the two prefixes are two files.
func stateMetrics(prefix, policies string) any {
	var list []any
	amounts := func(name, help string, each []any, from string) {
		for _, r := range []struct{ name, unit string }{{"cpu", "core"}, {"memory", "byte"}} {
			for _, suffix := range []string{"", "_" + r.name} {
				list = append(list, map[string]any{
					"name": name + suffix, "help": help, "commonLabels": map[string]any{"resource": r.name, "unit": r.unit},
					"each": map[string]any{"type": "Gauge", "gauge": map[string]any{
						"path": each, "labelsFromPath": map[string]any{"container": []any{"containerName"}}, "valueFrom": []any{from, r.name},
					}},
				})
			}
		}
	}
	const object = "verticalpodautoscaler_"
	recommended := []any{"status", "recommendation", "containerRecommendations"}
	for _, of := range []struct{ field, what string }{
		{"target", "What is recommended."}, {"lowerBound", "Lower bound of the recommendation."},
		{"upperBound", "Upper bound of the recommendation."}, {"uncappedTarget", "Target without minAllowed and maxAllowed."},
	} {
		amounts(object+"status_recommendation_containerrecommendations_"+strings.ToLower(of.field), of.what, recommended, of.field)
	}
	allowed := []any{"spec", "resourcePolicy", "containerPolicies"}
	amounts(object+"spec_resourcepolicy_"+policies+"_minallowed", "Minimum recommendation for the container.", allowed, "minAllowed")
	amounts(object+"spec_resourcepolicy_"+policies+"_maxallowed", "Maximum recommendation for the container.", allowed, "maxAllowed")
	list = append(list,
		map[string]any{
			"name": object + "spec_updatepolicy_updatemode", "help": "1 for the mode that is set.",
			"each": map[string]any{"type": "StateSet", "stateSet": map[string]any{
				"labelName": "update_mode", "path": []any{"spec", "updatePolicy", "updateMode"}, "list": modes(),
			}},
		},
		map[string]any{
			"name": object + "labels", "help": "The labels of the object.",
			"each": map[string]any{"type": "Info", "info": map[string]any{"labelsFromPath": map[string]any{"*": []any{"metadata", "labels"}}}},
		},
	)
	return map[string]any{
		"kind": "CustomResourceStateMetrics",
		"spec": map[string]any{"resources": []any{map[string]any{
			"groupVersionKind": map[string]any{"group": vpav1.GroupName, "version": "v1", "kind": "VerticalPodAutoscaler"},
			"metricNamePrefix": prefix,
			"errorLogV":        10, // few VPAs have all fields
			"labelsFromPath": map[string]any{
				"namespace": []any{"metadata", "namespace"}, "verticalpodautoscaler": []any{"metadata", "name"},
				"target_api_version": []any{"spec", "targetRef", "apiVersion"}, "target_kind": []any{"spec", "targetRef", "kind"}, "target_name": []any{"spec", "targetRef", "name"},
			},
			"metrics": list,
		}}},
	}
}

func modes() []any {
	return []any{
		string(vpav1.UpdateModeAuto), string(vpav1.UpdateModeInPlace), string(vpav1.UpdateModeInPlaceOrRecreate),
		string(vpav1.UpdateModeInitial), string(vpav1.UpdateModeOff), string(vpav1.UpdateModeRecreate),
	}
}

// A healthy VPA is usable and has a recommendation.
const vpaHealth = `local health = {status = "Progressing", message = "There is no recommendation yet"}
if obj.status == nil or obj.status.conditions == nil then
  return health
end
for _, condition in ipairs(obj.status.conditions) do
  if condition.status == "True" and condition.type == "RecommendationProvided" and health.status ~= "Degraded" then
    health = {status = "Healthy", message = "There is a recommendation"}
  end
  if condition.status == "True" and (condition.type == "ConfigUnsupported" or condition.type == "NoPodsMatched" or condition.type == "TargetConflict") then
    health = {status = "Degraded", message = condition.type .. ": " .. (condition.message or "")}
  end
end
return health
`

// A healthy SizingPolicy is ready and its fuse has not tripped.
const policyHealth = `local health = {status = "Progressing", message = "The recommender has not read this policy yet"}
if obj.status == nil or obj.status.conditions == nil then
  return health
end
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "FuseTripped" and condition.status == "True" then
    return {status = "Degraded", message = "FuseTripped: " .. (condition.message or "")}
  end
  if condition.type == "Ready" and condition.status == "True" then
    health = {status = "Healthy", message = condition.message or ""}
  elseif condition.type == "Ready" then
    health = {status = "Degraded", message = (condition.reason or "") .. ": " .. (condition.message or "")}
  end
end
return health
`

func argoCD() any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "argocd-cm", "namespace": "argocd"},
		"data": map[string]any{
			"resource.customizations.health.autoscaling.k8s.io_VerticalPodAutoscaler": vpaHealth,
			"resource.customizations.health.loadline.dev_SizingPolicy":                policyHealth,
		},
	}
}
