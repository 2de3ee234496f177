// Package disruption decides which running pods are changed, how, and in which
// order, and says for every other pod why it is left alone.
//
// Plan takes a View (VPAs with their pods, as package live holds them), what earlier
// plans have left in past.Memory, and a Config. It returns Actions in the order in which
// they are to be carried out, Skips, and the Memory for the next plan. The steps can
// also be asked one by one: Assess says whether a pod is worth a change and how urgent,
// a Budget how many pods of one owner may be away, Decide what can be done in place.
//
// Two rules hold above all others. Nothing is disrupted without effect: a pod
// is acted on only if it would get something else than it has. And resizes and
// evictions draw from one budget and are planned together, the most urgent
// first.
//
// It does not wait between actions, and carries nothing out.
package disruption
