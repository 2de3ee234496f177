package archtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
)

func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reasons.md")
	require.NoError(t, err)
	for _, reason := range disruption.Reasons() {
		require.Contains(t, string(page), "| "+reason.String()+" |", "docs/reasons.md does not say what to do about %s", reason)
	}
}
