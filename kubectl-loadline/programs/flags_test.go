package programs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Flags of installations by other operators must parse.
func TestUnsupportedFlags_UnknownAndOwn(t *testing.T) {
	for _, c := range []struct {
		program      string
		line         []string
		unknown, own []string
	}{
		{"recommender", []string{"./recommender", "--memory-saver=true", "--leader-elect", "--leader-elect-resource-name=x", "-v=2", "--v", "4"}, nil, nil},
		{"recommender", []string{"--recipe", "--surprise"}, nil, []string{"--recipe"}},
		{"admission-controller", []string{"--client-ca-file=/a", "--address=:8944", "--reload-cert", "--drain-delay=1s"}, nil, []string{"--drain-delay"}},
		{"updater", []string{"--eviction_tolerance=0.5", "--nothing=1"}, []string{"--nothing"}, nil},
	} {
		unknown, own := UnsupportedFlags(c.program, c.line)
		require.Equal(t, c.unknown, unknown, c.line)
		require.Equal(t, c.own, own, c.line)
	}
}
