// Package pace says when the recommender works: Run calls a pass after each
// interval, and a reaction soon after something happened that cannot wait for it.
//
// Both run in the goroutine of the caller. It is the only place of the program
// with a ticker; what is done is for the caller to say.
package pace
