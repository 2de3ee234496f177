package explain

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// A recommender with --storage=prometheus writes no checkpoints.
func TestExplain_FromUsageShowsBurstAndConfidence(t *testing.T) {
	s := plugintest.NewShop()
	s.Policy.Spec.Recipe = new("attune")
	kube, own := s.Clients()
	book, err := recipe.NewCache("attune", recipe.DefaultConfig())
	require.NoError(t, err)
	q := request(t, s, kube, "")
	q.Namespace, q.Name, q.Book = "shop", "deployment-web", book
	e := &inventory.Estimator{Name: "Prometheus", Book: book}
	for i := range 100 {
		key, at := usage.ContainerKey{Namespace: "shop", Pod: "web-1-a", Container: "a"}, plugintest.Now().Add(time.Duration(5*(i-100))*time.Minute)
		cpu := resources.Amount(200)
		if i == 0 {
			cpu = 1600
		}
		e.Add(usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: cpu})
		e.Add(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: 300 << 20})
	}
	load := func(ctx context.Context, a *vpaReport) (map[string]checkpoint.ContainerHistory, error) {
		return historyFromUsage(ctx, own, q, a, e)
	}
	a, err := explainFrom(t.Context(), own, q, load)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	require.Contains(t, out.String(), "burst, sensitivity 0.1: x 1.3, magnitude 8")
	require.Regexp(t, `confidence 0\.0\d+ of 99 points: x 1\.\d+`, out.String())
	require.Contains(t, out.String(), "cpu percentile 95 of the week or an hour       1390m")

	*e = inventory.Estimator{Name: "Prometheus", Book: book}
	_, err = explainFrom(t.Context(), own, q, load)
	require.ErrorContains(t, err, "Prometheus has no usage of the pods that the VPA controls now")
}
