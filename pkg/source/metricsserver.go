package source

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

// MetricsServer reads the metrics of the pods of one namespace, or of all.
type MetricsServer struct {
	client    *rest.RESTClient
	namespace string
}

// NewMetricsServer returns a source that asks the server of config. An empty namespace means
// all.
func NewMetricsServer(config *rest.Config, namespace string) (*MetricsServer, error) {
	client, err := client.Raw(config, "metrics.k8s.io")
	if err != nil {
		return nil, err
	}
	return &MetricsServer{client: client, namespace: namespace}, nil
}

// Samples asks once and calls yield for each sample of the answer. An error in
// the middle of the answer comes after the samples before it.
func (s *MetricsServer) Samples(ctx context.Context, yield func(usage.Sample)) error {
	body, err := s.client.Get().NamespaceIfScoped(s.namespace, s.namespace != "").Resource("pods").Stream(ctx)
	if err != nil {
		return fmt.Errorf("list pod metrics (metrics.k8s.io): %w", err)
	}
	err = DecodePodMetrics(body, yield)
	if closed := body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("read pod metrics (metrics.k8s.io): %w", err)
	}
	return nil
}
