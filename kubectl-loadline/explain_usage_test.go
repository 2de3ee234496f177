package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// A recommender with --storage=prometheus writes no checkpoints.
func TestExplain_FromUsageShowsBurstAndConfidence(t *testing.T) {
	s := newShop()
	s.policy.Spec.Recipe = new("attune")
	kube, own := s.clients()
	book, err := recipe.NewBook("attune", recipe.DefaultConfig())
	require.NoError(t, err)
	q := s.question(t, kube, "")
	q.Namespace, q.Name, q.Book = "shop", "deployment-web", book
	e := &estimator{Name: "Prometheus", book: book, samples: map[usage.ContainerKey][]usage.Sample{}}
	for i := range 100 {
		key, at := usage.ContainerKey{Namespace: "shop", Pod: "web-1-a", Container: "a"}, explainNow().Add(time.Duration(5*(i-100))*time.Minute)
		cpu := resources.Amount(200)
		if i == 0 {
			cpu = 1600
		}
		e.add(usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: cpu})
		e.add(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: 300 << 20})
	}
	load := func(ctx context.Context, a *answer) (map[string]checkpoint.Past, error) {
		return fromUsage(ctx, own, q, a, e)
	}
	a, err := explainFrom(t.Context(), own, q, load)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	require.Contains(t, out.String(), "burst, sensitivity 0.1: x 1.3, magnitude 8")
	require.Regexp(t, `confidence 0\.0\d+ of 99 points: x 1\.\d+`, out.String())
	require.Contains(t, out.String(), "cpu percentile 95 of the week or an hour       1390m")

	e.samples = nil
	_, err = explainFrom(t.Context(), own, q, load)
	require.ErrorContains(t, err, "Prometheus has no usage of the pods that the VPA controls now")
}
