// Package explain is kubectl loadline explain: it shows how the recommendation for a VPA
// comes about, step by step.
//
// It reads the VPA and its checkpoints and runs the same chains over them as the
// recommender, so that what it shows is what that computed when it last saved.
package explain
