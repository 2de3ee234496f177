package testkit

import (
	"slices"

	"k8s.io/client-go/testing"
)

// Watched reports whether informers watch all of the resources of a fake cluster. Call it before a
// test changes an object: a fake loses changes between the list and the watch of an informer.
func Watched(cluster interface{ Actions() []testing.Action }, resources ...string) bool {
	actions := cluster.Actions()
	return !slices.ContainsFunc(resources, func(r string) bool {
		return !slices.ContainsFunc(actions, func(a testing.Action) bool { return a.GetVerb() == "watch" && a.GetResource().Resource == r })
	})
}
