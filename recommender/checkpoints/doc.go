// Package checkpoints keeps checkpoint objects up to date while the recommender runs.
//
// Saver writes the VPAs that changed: at once if a published target rests on what
// is not saved yet, else each at its own moment within an interval. A good
// checkpoint is never lost to a poor one: an object is left alone that another
// VPA owns, or that holds much more history than would be written and was not
// read at the start. Maintainer adds the clean-up of checkpoints whose VPA is gone,
// and says what went wrong.
//
// What goes into a checkpoint is for the caller to say; its form is that of
// package checkpoint.
package checkpoints
