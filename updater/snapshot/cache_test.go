package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// Users can create and delete any number of objects.
func TestVersionCache_KeepsObjectsOfLastIteration(t *testing.T) {
	var c VersionCache[string]
	converted := 0
	get := func(uid, version string) string {
		value, err := c.Get(types.UID(uid), version, func(previous string) (string, error) {
			converted++
			return previous + version, nil
		})
		require.NoError(t, err)
		return value
	}
	require.Equal(t, "1", get("a", "1"))
	require.Equal(t, "1", get("b", "1"))
	c.Swap()
	require.Equal(t, "1", get("a", "1"))
	require.Equal(t, 2, converted, "the version is known")
	c.Swap()
	require.Len(t, c.current, 1, "b is gone")
	require.Equal(t, "12", get("a", "2"), "with the previous value")
	c.Swap()
	c.Swap()
	require.Equal(t, "2", get("a", "2"), "an iteration without a forgets it")
	get("c", "")
	c.Swap()
	get("c", "")
	require.Equal(t, 6, converted, "an empty version is no version")
}

func TestVersionCache_DropsFailures(t *testing.T) {
	var c VersionCache[string]
	_, err := c.Get("a", "1", func(string) (string, error) { return "half", errGone })
	require.ErrorIs(t, err, errGone)
	c.Swap()
	require.Empty(t, c.current)
}
