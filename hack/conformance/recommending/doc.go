// Package recommending translates the vectors of recommender.json into calls of
// production code.
//
// Handlers lists the kinds, ByDesign the cases in which Loadline is better than
// the reference on purpose. Each handler puts the input of a case into the
// histogram, the usage store, the recipe, the model of pods or the status code,
// and prints what comes out in the form of the expected output.
//
// It computes nothing that production code computes.
package recommending
