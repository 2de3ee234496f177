package main

import (
	_ "embed"
	"encoding/json"

	"loadline.dev/loadline/hack/conformance/vectors"
)

// handlers run the kinds of cases. The kinds of crane.json, attune.json and cruisekube.json have
// the file name as a prefix.
var handlers = map[string]vectors.Handler{
	"crane/percentile":             vectors.Typed(cranePercentile),
	"crane/chain_cpu":              vectors.Typed(chainCPU),
	"crane/chain_memory":           vectors.Typed(chainMemory),
	"crane/oom":                    vectors.Typed(craneOOM),
	"crane/normalise":              vectors.Typed(normalise),
	"crane/full":                   vectors.Typed(full),
	"attune/profile":               vectors.Typed(profile),
	"attune/chain":                 vectors.Typed(chain),
	"attune/documented_confidence": vectors.Typed(documentedConfidence),
	"attune/documented_pipeline":   vectors.Typed(documentedPipeline),
	"attune/change_caps":           vectors.Typed(changeCaps),
	"attune/memory_from_cpu":       vectors.Typed(memoryFromCPU),
	"attune/policy_conflict":       vectors.Typed(policyConflict),
	"attune/schedule":              vectors.Typed(schedule),
	"attune/history":               vectors.Typed(history),
	"attune/cooldown":              vectors.Typed(cooldown),
	"attune/eligible":              vectors.Typed(eligible),
	"attune/select_pods":           vectors.Typed(selectPods),
	"attune/canary_phase":          vectors.Typed(canaryPhase),
	"attune/observation_period":    vectors.Typed(observationPeriod),
	"attune/safety":                vectors.Typed(safety),
	"attune/rollout_deployment":    vectors.Typed(rolloutDeployment),
	"attune/node_precheck":         vectors.Typed(nodePrecheck),
	"attune/limitrange_quota":      vectors.Typed(limitRangeQuota),
	"attune/qos":                   vectors.Typed(qos),
	"attune/scale_limits":          vectors.Typed(scaleLimits),
	"attune/memory_limit_floor":    vectors.Typed(memoryLimitFloor),
	"attune/savings":               vectors.Typed(savings),
	"cruisekube/peak":              vectors.Typed(peak),
	"cruisekube/node":              withTolerance(1e-9, vectors.Typed(shareNode)),
	"cruisekube/apply":             vectors.Typed(applyShare),
	"cruisekube/eligible":          vectors.Typed(optimizable),
	"cruisekube/default_rank":      vectors.Typed(defaultRank),
	"cruisekube/admission":         vectors.Typed(newPod),
	"cruisekube/oom":               vectors.Typed(sharedOOM),

	// recommender.json
	"bucketing":       vectors.Typed(bucketing),
	"histogram":       vectors.Typed(histograms),
	"container":       vectors.Typed(container),
	"recommendation":  vectors.Typed(recommendation),
	"format":          vectors.Typed(format),
	"postprocess":     vectors.Typed(postProcess),
	"evictionEvent":   vectors.Typed(evictionEvent),
	"podUpdate":       vectors.Typed(podUpdate),
	"checkpointWrite": vectors.Typed(checkpointWrite),

	// updater.json
	"update_priority":   vectors.Typed(updatePriority),
	"disruption_budget": vectors.Typed(disruptionBudget),
	"resize_patch":      vectors.Typed(resizePatch),

	// admission.json
	"pod_mutation":   podMutation,
	"vpa_validation": vectors.Typed(vpaValidation),
	"vpa_matching":   vectors.Typed(vpaMatching),
}

// withTolerance allows numbers with a fraction to differ by a relative tolerance, as described in
// the notes of a file.
func withTolerance(tolerance float64, h vectors.Handler) vectors.Handler {
	return func(c vectors.Case) error {
		c.Tolerance = tolerance
		return h(c)
	}
}

// byDesign lists the cases in which production code intentionally differs from the reference, by
// their key. docs/compatibility.md lists them as well.
//
//go:embed by_design.json
var byDesign []byte

func suite() (vectors.Suite, error) {
	s := vectors.Suite{Handlers: handlers, ByDesign: map[string]vectors.Deviation{}, Absent: map[string]string{
		"attune/hpa_retune": "the targets of HorizontalPodAutoscalers are never changed",
	}}
	var cases map[string]struct {
		Reason   string
		Expected json.RawMessage
	}
	err := json.Unmarshal(byDesign, &cases)
	for name, c := range cases {
		s.ByDesign[name] = vectors.Deviation{Reason: c.Reason, Expected: string(c.Expected)}
	}
	return s, err
}
