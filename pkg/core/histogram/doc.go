// Package histogram counts a measured value in buckets whose weights decay with
// time, and answers quantiles.
//
// Its types are Scheme (where buckets begin), Histogram (a window of weights)
// and Image (a histogram as a checkpoint stores it). Only the buckets in use are
// stored, yet results equal those of a dense array bit for bit. Old weights are
// not touched as time passes: new ones are heavier, and all are scaled down once
// in a hundred half-lives.
//
// Buckets that weigh less than epsilon and lie outside of all that weigh more
// are in the total, but quantiles, images and merges do not see them and scaling
// passes them by, until more weight comes to them. So it is in the reference
// recommender, and its numbers show it.
//
// Many goroutines may read a histogram while nobody writes it. The package
// knows nothing of containers, and never asks for the time.
package histogram
