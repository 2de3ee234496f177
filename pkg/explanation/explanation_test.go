package explanation

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/recipe"
)

func TestExplain_EncodesEveryAmount(t *testing.T) {
	steps := stepsOf([]recipe.Value{{Step: "a", Amount: math.Inf(1)}, {Step: "b", Amount: math.NaN()}, {Step: "c", Amount: 0.5}})
	text, err := json.Marshal(steps)
	require.NoError(t, err)
	require.Contains(t, string(text), `{"step":"c","amount":0.5}`)
	require.Positive(t, steps[0].Amount)
}
