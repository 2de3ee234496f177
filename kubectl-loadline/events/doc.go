// Package events tells what happens to a container in a replay, in the words of a
// cluster: changes of its request, kills for want of memory, and recommendations.
//
// It scores nothing; package report prints scores.
package events
