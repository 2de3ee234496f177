// Package growth says when more memory is recommended somewhere, so that pods that
// were killed for want of it can be cured at once.
//
// Watch listens to an informer of VPAs. It does not ask whether any pod suffers.
package growth
