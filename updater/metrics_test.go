package updater

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScoreSize_CapsAt19(t *testing.T) {
	for pods, want := range map[int]string{-1: "0", 0: "0", 1: "0", 2: "1", 3: "1", 4: "2", 1 << 19: "19", 1 << 20: "19", 1 << 30: "19"} {
		require.Equal(t, want, (&score{Pods: pods}).size())
	}
}
