// Package checkpoint keeps history in VerticalPodAutoscalerCheckpoint objects,
// so that it survives a restart.
//
// Image and Status translate between an object and a profile. Load reads all
// objects at the start, Saver writes those that changed, and Collect deletes
// those whose VPA is gone.
//
// A good checkpoint is never lost to a poor one: Saver leaves an object alone
// that another VPA owns, or that holds much more history than it would write
// and was not read at the start. What goes into a checkpoint is for the caller
// to say.
package checkpoint
