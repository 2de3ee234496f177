package sharing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMark_HarmAndRevert(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	m := Mark{At: at, Restarts: 3}
	require.False(t, m.Harmed(4, 2, at.Add(time.Minute)), "one restart may be anything")
	require.True(t, m.Harmed(5, 2, at.Add(time.Minute)))
	require.True(t, m.Harmed(4, 0, at.Add(time.Minute)), "at least one restart must have been")
	require.False(t, m.Harmed(3, 0, at.Add(time.Minute)))
	require.False(t, m.Harmed(5, 2, at.Add(15*time.Minute)), "that is something else")
	require.False(t, m.RevertActive(at.Add(time.Minute)))
	m.Reverted = true
	require.False(t, m.Harmed(5, 2, at.Add(time.Minute)), "it has its peak")
	require.True(t, m.RevertActive(at.Add(24*time.Hour-time.Second)))
	require.False(t, m.RevertActive(at.Add(24*time.Hour)))
	require.False(t, m.RevertActive(at.Add(-24*time.Hour)), "no updater wrote that")
	require.False(t, Mark{}.RevertActive(at))
}
