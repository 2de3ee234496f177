// Package ownership decides which VPA controls a pod.
//
// An Index holds VPAs by namespace and target. Controlling returns, for a pod
// whose topmost controller is known, the VPA that controls it: among those
// that point at that controller and select the pod's labels, the oldest, and of
// equally old ones the one whose name sorts first. Cost does not grow with the
// number of VPAs.
//
// It does not walk owner references, fetch selectors or decide which VPAs take
// part; its callers do. An Index has no lock.
package ownership
