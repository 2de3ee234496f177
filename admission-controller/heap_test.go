package admission

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

func BenchmarkHeap(b *testing.B) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	testkit.MeasureHeap(b, func(b *testing.B, url string, _ testkit.Crowd) func() {
		clients, err := client.New(&rest.Config{Host: url})
		require.NoError(b, err)
		ctx, stop := context.WithCancel(b.Context())
		filled, err := fillCaches(ctx, Default(), clients)
		require.NoError(b, err)
		return func() {
			stop()
			require.NotEmpty(b, filled.handlers)
		}
	})
}
