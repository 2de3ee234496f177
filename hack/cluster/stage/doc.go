// Package stage reads and validates stages, which define when and how kwok changes a simulated node
// or pod. It reports stages that kwok would reject before anything starts.
package stage
