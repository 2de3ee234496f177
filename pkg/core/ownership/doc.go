// Package ownership decides which VPA controls a pod.
//
// An Index holds VPAs by namespace and target. Controlling returns, for a pod
// whose topmost controller is known, the VPA that controls it: among those
// that point at that controller and select the pod's labels, the first by Compare.
// Cost does not grow with the number of VPAs. Every program orders VPAs by Compare,
// so that all of them name the same one; a program that finds that the mode of that
// VPA gives it nothing to do leaves the pod alone.
//
// It does not walk owner references, fetch selectors or decide which VPAs take
// part; its callers do. An Index has no lock.
package ownership
