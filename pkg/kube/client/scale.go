package client

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// Scales reads the scale subresource of any object. The server sends it in the
// same form for all kinds, so plain GETs suffice.
type Scales struct {
	kube   kubernetes.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// NewScales returns a reader that learns from the server's discovery under
// which path a kind is found.
func NewScales(kube kubernetes.Interface) *Scales {
	return &Scales{kube: kube, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kube.Discovery()))}
}

// Reset forgets which kinds exist; the next Scale asks the server again.
func (s *Scales) Reset() { s.mapper.Reset() }

// Scale reads the scale subresource. Of several versions that serve the kind the
// first that answers counts. The error is that of the last version asked.
func (s *Scales) Scale(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
	mappings, err := s.mapper.RESTMappings(kind)
	if err != nil {
		return nil, fmt.Errorf("find the resource of kind %s: %w", kind, err)
	}
	for _, mapping := range mappings {
		gv := mapping.Resource.GroupVersion()
		root := path.Join("/apis", gv.String())
		if gv.Group == "" {
			root = path.Join("/api", gv.Version)
		}
		var raw []byte
		raw, err = s.kube.Discovery().RESTClient().Get().
			AbsPath(root, "namespaces", namespace, mapping.Resource.Resource, name, "scale").
			SetHeader("Accept", runtime.ContentTypeJSON).
			Do(ctx).Raw()
		if err != nil {
			continue
		}
		var scale autoscalingv1.Scale
		if err = json.Unmarshal(raw, &scale); err == nil {
			return &scale, nil
		}
	}
	return nil, err
}
