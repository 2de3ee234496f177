package metricsserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/usage"
)

// Source reads the metrics of the pods of one namespace, or of all.
type Source struct {
	client    *rest.RESTClient
	namespace string
}

// New returns a source that asks the server of config. An empty namespace means
// all.
func New(config *rest.Config, namespace string) (*Source, error) {
	own := rest.CopyConfig(config)
	own.APIPath = "/apis"
	own.GroupVersion = &schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion() // decodes errors
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("build the metrics client for %s: %w", config.Host, err)
	}
	return &Source{client: client, namespace: namespace}, nil
}

// Samples asks once and calls yield for each sample of the answer. An error in
// the middle of the answer comes after the samples before it.
func (s *Source) Samples(ctx context.Context, yield func(usage.Sample)) error {
	body, err := s.client.Get().NamespaceIfScoped(s.namespace, s.namespace != "").Resource("pods").Stream(ctx)
	if err != nil {
		return fmt.Errorf("list pod metrics (metrics.k8s.io): %w", err)
	}
	err = Decode(body, yield)
	if closed := body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("read pod metrics (metrics.k8s.io): %w", err)
	}
	return nil
}
