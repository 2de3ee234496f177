// Package contender holds those who recommend in a replay.
//
// Cluster is the recommender of a cluster without the cluster: the same store,
// profile and recipe. Fixed never moves, MovingMax follows the highest use of
// some days: what a recipe must be better than to earn its keep.
//
// It applies nothing; package replay does.
package contender
