package programs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Flags of installations by other operators must parse.
func TestUnsupportedFlags_UnknownAndOwn(t *testing.T) {
	for _, tc := range []struct {
		name         string
		program      string
		line         []string
		unknown, own []string
	}{
		{name: "known flags", program: "recommender",
			line: []string{"./recommender", "--memory-saver=true", "--leader-elect", "--leader-elect-resource-name=x", "-v=2", "--v", "4"}},
		{name: "own flag with a value like a flag", program: "recommender", line: []string{"--recipe", "--surprise"},
			own: []string{"--recipe"}},
		{name: "own flag among known flags", program: "admission-controller",
			line: []string{"--client-ca-file=/a", "--address=:8944", "--reload-cert", "--drain-delay=1s"}, own: []string{"--drain-delay"}},
		{name: "unknown flag", program: "updater", line: []string{"--eviction_tolerance=0.5", "--nothing=1"},
			unknown: []string{"--nothing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unknown, own := UnsupportedFlags(tc.program, tc.line)
			require.Equal(t, tc.unknown, unknown)
			require.Equal(t, tc.own, own)
		})
	}
}
