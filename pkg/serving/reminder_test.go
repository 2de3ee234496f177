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
		{minute: 0, problem: "", due: false, lasted: 0},
		{minute: 1, problem: "a", due: true, lasted: 0},
		{minute: 2, problem: "a", due: false, lasted: time.Minute},
		{minute: 5, problem: "b", due: true, lasted: 4 * time.Minute},
		{minute: 14, problem: "b", due: false, lasted: 13 * time.Minute},
		{minute: 15, problem: "b", due: true, lasted: 14 * time.Minute},
		{minute: 16, problem: "", due: true, lasted: 15 * time.Minute},
		{minute: 17, problem: "", due: false, lasted: 0},
		{minute: 18, problem: "b", due: true, lasted: 0},
	} {
		due, lasted := r.Due(c.problem, begin.Add(time.Duration(c.minute)*time.Minute))
		require.Equal(t, c.due, due, c)
		require.Equal(t, c.lasted, lasted, c)
	}
}
