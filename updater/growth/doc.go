// Package growth says when more memory is recommended somewhere, so that pods that
// were killed for want of it can be cured at once.
//
// Watch listens to an informer of VPAs and collects those. It does not ask whether any
// pod of them suffers.
package growth
