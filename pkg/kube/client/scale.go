package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// ErrNoScale is returned for a kind without a scale subresource, before any request for the object.
var ErrNoScale = errors.New("the kind has no scale subresource")

// Scales reads scale subresources of any kind. They have one format, so plain GET requests suffice.
type Scales struct {
	kube            kubernetes.Interface
	cachedDiscovery discovery.CachedDiscoveryInterface
	mapper          *restmapper.DeferredDiscoveryRESTMapper

	mu          sync.Mutex
	lastRefresh time.Time // last refresh of discovery for an unknown kind
}

// refreshInterval limits discovery of unknown kinds, which any user can write in owner references.
const refreshInterval = 30 * time.Second

// NewScales returns a reader that finds paths through discovery.
func NewScales(kube kubernetes.Interface) *Scales {
	known := memory.NewMemCacheClient(kube.Discovery())
	return &Scales{kube: kube, cachedDiscovery: known, mapper: restmapper.NewDeferredDiscoveryRESTMapper(known)}
}

// Reset clears the discovery cache.
func (s *Scales) Reset() { s.mapper.Reset() }

// Scale reads the scale subresource. The result has the apiVersion and kind of the object. The
// caller must check that namespace and name are path segments: users write references, and
// "../../secrets/x" would address another object. If several versions serve the kind, the first
// success or the last error is returned, or the error of Check.
func (s *Scales) Scale(ctx context.Context, namespace string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
	mappings, err := s.mappings(kind)
	for _, mapping := range mappings {
		var scale *autoscalingv1.Scale
		if scale, err = s.read(ctx, namespace, mapping, name); err == nil {
			return scale, nil
		}
	}
	return nil, err
}

// Check returns nil for a kind with a scale subresource, ErrNoScale if discovery has none.
func (s *Scales) Check(kind schema.GroupKind) error {
	mappings, err := s.mappings(kind)
	if len(mappings) > 0 {
		return nil
	}
	return err
}

func (s *Scales) mappings(kind schema.GroupKind) (scalable []*meta.RESTMapping, err error) {
	all, err := s.mapper.RESTMappings(kind)
	if meta.IsNoMatchError(err) && s.refresh() { // the kind may be newer than the cache
		all, err = s.mapper.RESTMappings(kind)
	}
	if err != nil {
		return nil, fmt.Errorf("find the resource of kind %s: %w", kind, err)
	}
	err = fmt.Errorf("kind %s: %w", kind, ErrNoScale)
	for _, mapping := range all {
		if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			err = fmt.Errorf("kind %s is cluster-scoped: %w for pods of a namespace", kind, ErrNoScale)
			continue
		}
		if has, unknown := s.hasScale(mapping.Resource); unknown != nil {
			err = fmt.Errorf("check kind %s for a scale subresource: %w", kind, unknown)
		} else if has {
			scalable = append(scalable, mapping)
		}
	}
	return scalable, err
}

func (s *Scales) refresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.lastRefresh) >= refreshInterval {
		s.lastRefresh = now
		s.Reset()
		return true
	}
	return false
}

func (s *Scales) read(ctx context.Context, namespace string, mapping *meta.RESTMapping, name string) (*autoscalingv1.Scale, error) {
	gv := mapping.Resource.GroupVersion()
	root := path.Join("/apis", gv.String())
	if gv.Group == "" {
		root = path.Join("/api", gv.Version)
	}
	raw, err := Body(s.kube.Discovery().RESTClient().Get().AbsPath(root).
		Namespace(namespace).Resource(mapping.Resource.Resource).Name(name).SubResource("scale").
		SetHeader("Accept", runtime.ContentTypeJSON).
		Do(ctx))
	if err != nil {
		return nil, err
	}
	var scale autoscalingv1.Scale
	if err := json.Unmarshal(raw, &scale); err != nil {
		return nil, err
	}
	scale.TypeMeta = metav1.TypeMeta{APIVersion: gv.String(), Kind: mapping.GroupVersionKind.Kind}
	return &scale, nil
}

func (s *Scales) hasScale(resource schema.GroupVersionResource) (bool, error) {
	list, err := s.cachedDiscovery.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource+"/scale" }), nil
}
