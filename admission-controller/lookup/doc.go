// Package lookup finds the VPA that controls a new pod.
//
// Finder keeps an index of VPAs by their target, fed by an informer. Find walks
// from the pod's owner to the topmost controller, which a resolver reads from
// informer caches, and asks the index. A pod of a namespace without VPAs costs
// one map access.
//
// It makes no API call for the well-known kinds of controllers; for others the
// resolver remembers the scale subresource.
package lookup
