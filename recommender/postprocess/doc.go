// Package postprocess makes of a recommendation what a VPA and the flags allow:
// whole cores where they are asked for, and amounts within bounds.
package postprocess
