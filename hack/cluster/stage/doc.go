// Package stage reads stages: each says when and how kwok changes a simulated node
// or pod. Some are built in, others come from a user's folder; what kwok would not
// understand is refused before anything starts.
package stage
