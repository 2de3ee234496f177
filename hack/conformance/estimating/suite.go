package estimating

import (
	"time"

	"loadline.dev/loadline/pkg/core/trail/week"
	"loadline.dev/loadline/pkg/testkit/vectors"
)

// Handlers run the kinds about estimation.
func Handlers() map[string]vectors.Handler {
	return map[string]vectors.Handler{
		"crane/percentile":             vectors.Typed(percentile),
		"crane/chain_cpu":              vectors.Typed(chainCPU),
		"crane/chain_memory":           vectors.Typed(chainMemory),
		"crane/oom":                    vectors.Typed(oom),
		"crane/normalise":              vectors.Typed(normalise),
		"crane/full":                   vectors.Typed(full),
		"attune/profile":               vectors.Typed(profile),
		"attune/chain":                 vectors.Typed(chain),
		"attune/documented_confidence": vectors.Typed(documentedConfidence),
		"attune/documented_pipeline":   vectors.Typed(documentedPipeline),
		"attune/change_caps":           vectors.Typed(changeCaps),
		"attune/memory_from_cpu":       vectors.Typed(memoryFromCPU),
		"cruisekube/peak":              vectors.Typed(peak),
	}
}

type peakInput struct {
	Now    time.Time `json:"now"`
	Points []sample  `json:"points"`
}

type peakOutput struct {
	Current float64 `json:"current"`
	Hourly  float64 `json:"hourly"`
	Weekly  float64 `json:"weekly"`
	Peak    float64 `json:"peak"`
}

func peak(in peakInput) (peakOutput, error) {
	var all []week.Highest
	for _, p := range in.Points {
		all = append(all, week.Highest{At: p.at, Use: p.use})
	}
	current, daily, weekly := week.HourPeak(in.Now, all)
	return peakOutput{Current: current, Hourly: daily, Weekly: weekly, Peak: max(current, daily)}, nil
}

// ByDesign are the cases in which ours is better. docs/compatibility.md names
// them.
func ByDesign() map[string]vectors.Deviation {
	return map[string]vectors.Deviation{
		"oom-008": {
			Reason:   "C3: the largest fresh kill counts, not the first that is stored",
			Expected: `{"finalBytes": 1006632960, "oomBytes": 1006632960}`,
		},
		"oom-009": {
			Reason:   "C3: an old kill does not hide a fresh one",
			Expected: `{"finalBytes": 1006632960, "oomBytes": 1006632960}`,
		},
		"oom-010": {
			Reason:   "C3: kills are matched by the owner of a pod, not by the start of its name",
			Expected: `{"finalBytes": 104857600, "oomBytes": null}`,
		},
		"normalise-015": {
			Reason:   "C10: the chosen shape keeps its full precision, so it has room for what was wanted",
			Expected: `{"cpuMillicores": 125, "memoryBytes": 134217728, "matched": true}`,
		},
	}
}
