package recipe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// The numbers are the example in the doc comment of VPA.
func TestVPA_DocumentedExample(t *testing.T) {
	p := usage.NewProfile(usage.DefaultConfig().Shape)
	for minute := range 60 {
		p.AddCPU(0.12, time.Date(2026, 3, 2, 8, minute, 0, 0, time.UTC))
	}
	r := VPA(DefaultConfig())
	in := Input{Profile: &p, Containers: 1}
	require.EqualValues(t, 143, r.Recommend(in).Bounds.Target.Value(resources.CPU))
	steps := r.Explain(in).Target[resources.CPU]
	require.Equal(t, []float64{125, 143, 143}, []float64{steps[0].Amount, steps[1].Amount, steps[2].Amount})
}
