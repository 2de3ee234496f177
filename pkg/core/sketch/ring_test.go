package sketch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCodesAreWithinAThousandth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(1, 1e16).Draw(t, "amount")
		got := decode(encode(v))
		require.GreaterOrEqual(t, got, v*(1-1e-6))
		require.LessOrEqual(t, got, v*codeStep*(1+1e-6))
	})
	require.Zero(t, decode(0))
	require.Equal(t, 1.0, decode(encode(0)), "nothing is something: it was observed")
}

// The ring must give what a list of all windows gives.
