package serving

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReminder_DueOnChangeAndPeriodically(t *testing.T) {
	var r Reminder
	begin := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		minute  int
		problem string
		due     bool
		lasted  time.Duration
	}{
		{0, "", false, 0},
		{1, "a", true, 0},
		{2, "a", false, time.Minute},
		{5, "b", true, 4 * time.Minute},
		{14, "b", false, 13 * time.Minute},
		{15, "b", true, 14 * time.Minute},
		{16, "", true, 15 * time.Minute},
		{17, "", false, 0},
		{18, "b", true, 0},
	} {
		due, lasted := r.Due(c.problem, begin.Add(time.Duration(c.minute)*time.Minute))
		require.Equal(t, c.due, due, c)
		require.Equal(t, c.lasted, lasted, c)
	}
}
