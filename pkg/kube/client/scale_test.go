package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

// A newly installed kind is found soon, and unknown kinds do not cause discovery requests each
// time.
func TestScales_FindKindsInstalledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fleets testkit.Fleets
		fleets.Put("shop", "web", "1", 3)
		fleets.Install(false)
		scales := client.NewScales(fleets.In(fake.NewClientset()))
		read := func(kind string) error {
			_, err := scales.Scale(t.Context(), "shop", schema.GroupKind{Group: "example.com", Kind: kind}, "web")
			return err
		}
		require.True(t, meta.IsNoMatchError(read("Fleet")))
		fleets.Install(true)
		before := fleets.Learned()
		for range 100 {
			require.True(t, meta.IsNoMatchError(read("Fleet")))
		}
		require.Equal(t, before, fleets.Learned(), "how often discovery was read meanwhile")
		time.Sleep(30 * time.Second)
		require.NoError(t, read("Fleet"))
		for range 100 {
			require.True(t, meta.IsNoMatchError(read("MadeUp")))
		}
		require.Equal(t, before+1, fleets.Learned())
	})
}
