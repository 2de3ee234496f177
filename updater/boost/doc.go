// Package boost takes startup boosts back: the extra CPU that the admission
// controller gives to containers while they start.
//
// A Queue watches the pods that carry a boost annotation and are ready. When the
// time of a boost is over it resizes the pod and removes the annotation. It does
// so with or without feature gate, for pods whose VPA is gone, too: their
// containers get back what they were written with.
//
// It needs no passes and no disruption budget, except for containers that a
// change of CPU restarts. It computes nothing itself: policy.JudgeBoost does.
package boost
