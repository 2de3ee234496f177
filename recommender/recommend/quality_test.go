package recommend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizeLabel(t *testing.T) {
	for pods, want := range map[int]string{0: "0", 1: "0", 2: "1", 3: "1", 1024: "10", 1 << 25: "20"} {
		require.Equal(t, want, sizeLabel(pods))
	}
}
