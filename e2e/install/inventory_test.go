package install

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// inventory lists all objects of the cluster, except events, usage metrics, and objects in the
// given namespaces.
func inventory(t *testing.T, without ...string) map[string]bool {
	t.Helper()
	lists, err := cluster.Kube.Discovery().ServerPreferredResources()
	require.NoError(t, err)
	resources, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists))
	require.NoError(t, err)
	found := map[string]bool{}
	for resource := range resources {
		if resource.Resource == "events" || resource.Group == "metrics.k8s.io" {
			continue
		}
		list, err := objects.Resource(resource).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, resource)
		for _, object := range list.Items {
			if !slices.Contains(without, object.Namespace) {
				found[fmt.Sprintf("%s %s/%s", schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, object.Namespace, object.Name)] = true
			}
		}
	}
	return found
}
