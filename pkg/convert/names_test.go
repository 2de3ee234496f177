package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Linear search and map both return the first item with a name.
func TestByName_FindsFirstItem(t *testing.T) {
	type item struct{ name, text string }
	rapid.Check(t, func(t *rapid.T) {
		var items []item
		for range rapid.IntRange(0, 3*maxLinearSearch).Draw(t, "items") {
			items = append(items, item{rapid.StringMatching("[a-e]?").Draw(t, "name"), rapid.String().Draw(t, "text")})
		}
		found := byName(items, func(i *item) string { return i.name })
		for _, name := range []string{"", "a", "b", "c", "d", "e", "f"} {
			var want *item
			for i := range items {
				if items[i].name == name {
					want = &items[i]
					break
				}
			}
			require.Same(t, want, found.find(name))
		}
	})
}

func TestReadPolicies_AgreesWithContainerPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vpa := &vpav1.VerticalPodAutoscaler{}
		vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{}
		for range rapid.IntRange(0, 3*maxLinearSearch).Draw(t, "policies") {
			p := vpav1.ContainerResourcePolicy{ContainerName: rapid.SampledFrom([]string{"*", "a", "b", "c"}).Draw(t, "container")}
			vpa.Spec.ResourcePolicy.ContainerPolicies = append(vpa.Spec.ResourcePolicy.ContainerPolicies, p)
		}
		all := readPolicies(vpa)
		for _, container := range []string{"a", "b", "c", "d"} {
			require.Same(t, ContainerPolicy(vpa, container), all.find(container))
		}
	})
}
