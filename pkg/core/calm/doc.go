// Package calm keeps changes from coming too often.
//
// A Ledger spreads disruptions over time when many become due at once: so many a
// minute in the cluster and in each namespace, fewer after a start. A Record is
// what is remembered of the last change of one workload: it backs off when new
// pods come back without the change, and keeps pods from being made smaller again
// and again where two recommendations alternate.
//
// It does not know why something is to be changed, and forgets with the process
// that holds its values.
package calm
