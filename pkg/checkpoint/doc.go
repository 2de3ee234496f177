// Package checkpoint knows VerticalPodAutoscalerCheckpoint objects, in which
// history survives a restart.
//
// Image and Status translate between an object and a profile, Record is what is
// written, and Loader reads all objects at the start. Whose history it is, memory
// windows that are open when a checkpoint is written, and what a recipe knows besides
// the histograms are kept in an annotation beside the status, which stays as the
// reference recommender writes it.
//
// When what is written, the recommender decides.
package checkpoint
