// Package recommending translates the vectors of recommender.json into calls of
// production code. Each handler puts the input of a case into the histogram, the usage
// store, the recipe, the model of pods or the status code, and prints what comes out in
// the form of the expected output. It computes nothing that production code computes.
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
