// Package disruption decides which running pods are changed, how, and in which
// order, and says for every other pod why it is left alone.
//
// Plan takes a View (VPAs with their pods, as plain values), the State that the plan
// before left, and a Config. It returns Actions in the order in which they are to be
// carried out, Skips with their Reason, and the State for the next plan. The steps can
// also be asked one by one: Assess says whether a pod is worth a change and how urgent,
// a Budget how many pods of one owner may be away, Decide what can be done in place.
//
// types.go has what a plan looks at, state.go what it must know of earlier ones,
// backoff.go what came of the changes of a workload, and ratelimit.go how many
// disruptions a minute there may be.
//
// Two rules hold above all others. Nothing is disrupted without effect: a pod is acted
// on only if it would get something else than it has. And resizes and evictions draw
// from one budget and are planned together, the most urgent first. The package does not
// wait between actions, carries nothing out, and forgets with its State.
package disruption
