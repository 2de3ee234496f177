package serving

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuard_ReturnsPanicsAsErrors(t *testing.T) {
	err := Guard(func() error { panic("a bug") })
	require.True(t, strings.HasPrefix(err.Error(), "panic: a bug\n"))
}
