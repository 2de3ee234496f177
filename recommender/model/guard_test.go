package model

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestGuard_RecoversAndCountsPanic(t *testing.T) {
	panics := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"step"})
	work := func(fails bool) {
		defer NewGuard("Step", panics).Recover(nil)
		if fails {
			panic("a defect")
		}
	}
	require.NotPanics(t, func() { work(true); work(false) })
	require.Equal(t, 1.0, testutil.ToFloat64(panics.WithLabelValues("Step")))
}
