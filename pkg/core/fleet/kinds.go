package fleet

import (
	"maps"
	"slices"
)

// listed are the kinds whose workloads are known without a name, so that a policy can select
// them by their labels, with their API version.
var listed = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}

// ListedKinds returns the kinds whose workloads can be selected without a name, sorted.
func ListedKinds() []string { return slices.Sorted(maps.Keys(listed)) }

// ListedVersion returns the API version of such a kind; false: it is none.
func ListedVersion(kind string) (apiVersion string, is bool) {
	apiVersion, is = listed[kind]
	return apiVersion, is
}

// Listed reports whether workloads of a kind can be selected without a name. All others are
// found by their name.
func Listed(group, kind string) bool {
	_, is := listed[kind]
	return is && BuiltIn(group)
}
