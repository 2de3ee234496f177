package recommending

import "loadline.dev/loadline/pkg/testkit/vectors"

// Handlers run the kinds of recommender.json.
func Handlers() map[string]vectors.Handler {
	return map[string]vectors.Handler{
		"bucketing":       vectors.Typed(bucketing),
		"histogram":       vectors.Typed(histograms),
		"container":       vectors.Typed(container),
		"recommendation":  vectors.Typed(recommendation),
		"format":          vectors.Typed(format),
		"postprocess":     vectors.Typed(postProcess),
		"evictionEvent":   vectors.Typed(evictionEvent),
		"podUpdate":       vectors.Typed(podUpdate),
		"checkpointWrite": vectors.Typed(checkpointWrite),
	}
}

// ByDesign are the cases of recommender.json in which ours is better.
// docs/compatibility.md names them.
func ByDesign() map[string]vectors.Deviation {
	return map[string]vectors.Deviation{
		"container-zero-first-sample": {
			Reason: "a window that begins with a sample of 0 takes later peaks and OOMs",
			Expected: `{
				"steps": [
					{"accepted": true, "currentPeak": 0, "windowEnd": "2024-01-02T10:00:00Z"},
					{"accepted": true, "currentPeak": 838860800, "windowEnd": "2024-01-02T10:00:00Z"},
					{"accepted": true, "currentPeak": 1006632960, "windowEnd": "2024-01-02T10:00:00Z"},
					{"accepted": true, "currentPeak": 209715200, "windowEnd": "2024-01-03T10:00:00Z"}
				],
				"memory": {
					"checkpoint": {"bucketWeights": {"0": null, "14": 10000, "36": 5000}},
					"percentiles": [
						{"percentile": 0, "value": 215785635.88227338},
						{"percentile": 0.5, "value": 215785635.88227338},
						{"percentile": 0.9, "value": 1016281388.5540904},
						{"percentile": 0.95, "value": 1016281388.5540904},
						{"percentile": 1, "value": 1016281388.5540904}
					]
				}
			}`,
		},
	}
}
