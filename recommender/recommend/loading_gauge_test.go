package recommend

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestLoadingGauge_ReportsProgress(t *testing.T) {
	l := NewLoadingGauge(prometheus.NewRegistry())
	is := func(ratio, complete float64) {
		t.Helper()
		require.Equal(t, ratio, testutil.ToFloat64(l.ratio))
		require.Equal(t, complete, testutil.ToFloat64(l.complete))
		require.Equal(t, complete == 1, l.Complete())
	}
	is(1, 1)
	l.Begin(4)
	is(0, 0)
	l.SetLoaded(3)
	is(0.75, 0)
	l.SetLoaded(5) // more than expected
	is(1, 0)
	l.SetComplete()
	is(1, 1)
	l.Begin(0)
	is(0, 0)
}
