package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Raw returns a client of version v1beta1 of an API group, with a rate limit of
// its own. It decodes errors only: answers are JSON that the caller reads itself.
func Raw(config *rest.Config, group string) (*rest.RESTClient, error) {
	own := rest.CopyConfig(config)
	own.APIPath = "/apis"
	own.GroupVersion = &schema.GroupVersion{Group: group, Version: "v1beta1"}
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("build the client of %s for %s: %w", group, config.Host, err)
	}
	return client, nil
}
