package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/printable"
)

// Key identifies a workload.
type Key struct {
	Namespace string
	Group     string // empty for well-known kinds
	Kind      string
	Name      string
}

// String returns one printable line: Kind name, or Kind.group name.
func (k Key) String() string {
	if k.Group == "" {
		return printable.Line(k.Kind + " " + k.Name)
	}
	return printable.Line(k.Kind + "." + k.Group + " " + k.Name)
}

// CompareKeys orders workloads by namespace, kind, name and group.
func CompareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Group, b.Group))
}

// CheckRef returns an error for an invalid target. A VPA with such a target has no pods.
func CheckRef(ref *autoscalingv1.CrossVersionObjectReference) error {
	return RefKey(metav1.NamespaceDefault, ref).check()
}

// check returns an error if a part of k is not a valid path segment or has invalid characters,
// because a request could read a different object. It also bounds the length, because keys are
// stored. No existing object is longer.
func (k Key) check() error {
	group := k.Group
	if group == "" {
		group = "core" // not part of the path
	}
	for _, part := range [...]struct {
		field, value string
		longest      int // bytes
	}{{"namespace", k.Namespace, content.DNS1123LabelMaxLength}, {"group of apiVersion", group, content.DNS1123SubdomainMaxLength}, {"kind", k.Kind, content.DNS1123LabelMaxLength}, {"name", k.Name, content.DNS1123SubdomainMaxLength}} {
		if part.value == "" {
			return fmt.Errorf("%s %q: must not be empty", part.field, part.value)
		}
		if len(part.value) > part.longest {
			return fmt.Errorf("%s %.50q...: must have at most %d characters, not %d", part.field, part.value, part.longest, len(part.value))
		}
		if wrong := content.IsPathSegmentName(part.value); len(wrong) > 0 {
			return fmt.Errorf("%s %q: %s, because it is part of the path of a request", part.field, part.value, strings.Join(wrong, " and "))
		}
		if strings.ContainsFunc(part.value, unnameable) {
			return fmt.Errorf("%s %q: may not contain spaces, control characters or invalid UTF-8", part.field, part.value)
		}
	}
	return nil
}

func unnameable(r rune) bool { return r == ' ' || r == utf8.RuneError || !strconv.IsPrint(r) }

// nodeKind is the kind of the owner of static pods.
const nodeKind = "Node"

// NewKey returns the key of a referenced workload. It drops the version, because all versions are
// the same object, and the group of well-known kinds. So "apps/v1", the removed
// "extensions/v1beta1" and a missing apiVersion are equal.
func NewKey(namespace, apiVersion, kind, name string) Key {
	group := ""
	if before, _, found := strings.Cut(apiVersion, "/"); found {
		group = before
	}
	if fleet.BuiltInKind(kind) && fleet.BuiltIn(group) {
		group = ""
	}
	return Key{Namespace: namespace, Group: group, Kind: kind, Name: name}
}

// RefKey returns the key of a VPA's target. The reference must not be nil.
func RefKey(namespace string, ref *autoscalingv1.CrossVersionObjectReference) Key {
	return NewKey(namespace, ref.APIVersion, ref.Kind, ref.Name)
}

// Controller returns the controller among the owners of an object, the last one if there are
// several. A Node is not a controller.
func Controller(namespace string, owners []metav1.OwnerReference) (Key, bool) {
	for _, owner := range slices.Backward(owners) {
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		key := NewKey(namespace, owner.APIVersion, owner.Kind, owner.Name)
		return key, !key.static()
	}
	return Key{}, false
}

func (k Key) static() bool { return k.Kind == nodeKind && fleet.BuiltIn(k.Group) }

// Custom reports whether k is read through its scale subresource.
func (k Key) Custom() bool { return !k.wellKnown() && !k.static() }

// wellKnown reports whether k is read from an informer cache.
func (k Key) wellKnown() bool { return k.Group == "" && fleet.BuiltInKind(k.Kind) }

// GroupKind returns the group and kind for discovery.
func (k Key) GroupKind() schema.GroupKind {
	group := k.Group
	if k.wellKnown() {
		switch k.Kind {
		case "ReplicationController":
		case "Job", "CronJob":
			group = "batch"
		default:
			group = "apps"
		}
	}
	return schema.GroupKind{Group: group, Kind: k.Kind}
}

// ErrNoWorkload is returned for a workload that a policy cannot select: it does not exist, its kind
// has no scale subresource, or another controller owns it.
var ErrNoWorkload = errors.New("not a workload that a policy can select")

// Read returns a workload of an unlisted kind from its scale subresource, cached or requested.
// After errors other than ErrNoWorkload the state is unknown.
func (r *Resolver) Read(ctx context.Context, key Key) (Workload, error) {
	if err := key.check(); err != nil {
		return Workload{}, fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	a, err := r.scales.get(ctx, key)
	w, err := workloadOf(key, a, err)
	if err != nil {
		return w, err
	}
	switch top, found, err := r.Topmost(ctx, key); {
	case err != nil:
		return Workload{}, fmt.Errorf("resolve the owners of %s in namespace %s: %w", key, key.Namespace, err)
	case found && top != key:
		return Workload{}, fmt.Errorf("%s in namespace %s is %w: select its owner %s instead", key, key.Namespace, ErrNoWorkload, top)
	}
	return w, nil
}

// ReadScale is Read for callers without caches. It does not check the owners, and also returns the
// pod selector.
func ReadScale(ctx context.Context, read Scale, key Key) (w Workload, selector string, err error) {
	if err := key.check(); err != nil {
		return Workload{}, "", fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	scale, err := read(ctx, key.Namespace, key.GroupKind(), key.Name)
	var a scaleInfo
	if err == nil {
		a = scaleInfoOf(scale)
	}
	w, err = workloadOf(key, a, err)
	return w, a.selector, err
}

// ReadCached is Read without requests. It returns ErrNotRead for an uncached workload, which Run
// reads within the limit of its namespace.
func (r *Resolver) ReadCached(key Key) (Workload, error) {
	if err := key.check(); err != nil {
		return Workload{}, fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	a, err := r.scales.cached(key)
	if errors.Is(err, ErrNotRead) {
		return Workload{}, ErrNotRead
	}
	return workloadOf(key, a, err)
}

// Confirm returns an error if a workload was deleted or replaced by another of the same name,
// because an object owned by it would be garbage-collected at once. It reads unlisted kinds again.
// It does not check listed kinds, because an informer reports their deletion.
func (r *Resolver) Confirm(ctx context.Context, w Workload) error {
	if fleet.Listed(w.Key.Group, w.Key.Kind) {
		return nil
	}
	a, err := r.scales.refetch(ctx, w.Key)
	now, err := workloadOf(w.Key, a, err)
	switch {
	case err != nil:
		return err
	case now.UID != w.UID:
		return fmt.Errorf("%s in namespace %s was replaced by another object of that name", w.Key, w.Key.Namespace)
	}
	return nil
}

func workloadOf(key Key, a scaleInfo, err error) (Workload, error) {
	switch {
	case apierrors.IsNotFound(err):
		return Workload{}, fmt.Errorf("%s does not exist in namespace %s: %w", key, key.Namespace, ErrNoWorkload)
	case errors.Is(err, client.ErrNoScale), meta.IsNoMatchError(err):
		return Workload{}, fmt.Errorf("%s in namespace %s is %w: %w", key, key.Namespace, ErrNoWorkload, err)
	case err != nil:
		return Workload{}, fmt.Errorf("read the scale subresource of %s in namespace %s: %w", key, key.Namespace, err)
	case a.uid == "" || a.apiVersion == "":
		return Workload{}, fmt.Errorf("the scale subresource of %s in namespace %s has no metadata.uid, which the owner of a VPA requires", key, key.Namespace)
	}
	return Workload{Key: key, APIVersion: a.apiVersion, UID: a.uid}, nil
}

// SelectorKeys counts the label keys in selectors of controllers that outlive their pods:
// Deployments, StatefulSets, DaemonSets, ReplicationControllers, and ReplicaSets without owner.
// Other selectors contain labels of one generation of pods. It is safe for concurrent use.
type SelectorKeys struct {
	mu     sync.RWMutex
	counts map[string]map[string]int // number of controllers by namespace and key

	handlersSynced []cache.InformerSynced
}

// Synced reports whether all controllers in the informers are counted.
func (k *SelectorKeys) Synced() bool {
	return !slices.ContainsFunc(k.handlersSynced, func(synced cache.InformerSynced) bool { return !synced() })
}

// SelectorKeys returns the selector keys of all controllers. Call it before the informers start.
func (r *Resolver) SelectorKeys() (*SelectorKeys, error) {
	k := &SelectorKeys{counts: map[string]map[string]int{}}
	heard, err := r.workloads.watch("selectors", func(_ string, before, after any) {
		k.count(after, 1)
		k.count(before, -1)
	})
	k.handlersSynced = heard
	return k, err
}

// Contains reports whether any controller selector in a namespace has a key.
func (k *SelectorKeys) Contains(namespace, key string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.counts[namespace][key] > 0
}

func (k *SelectorKeys) count(object any, delta int) {
	switch o := object.(type) {
	case *batchv1.Job, *batchv1.CronJob:
		return
	case *client.ReplicaSet:
		if len(o.GetOwnerReferences()) > 0 {
			return
		}
	}
	w, _ := describe(object)
	if w.selector == nil {
		return
	}
	namespace := object.(metav1.Object).GetNamespace()
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := k.counts[namespace]
	if counts == nil {
		counts = map[string]int{}
		k.counts[namespace] = counts
	}
	add := func(key string) {
		if counts[key] += delta; counts[key] == 0 {
			delete(counts, key)
		}
	}
	for key := range w.selector.MatchLabels {
		add(key)
	}
	for i := range w.selector.MatchExpressions {
		add(w.selector.MatchExpressions[i].Key)
	}
	if len(counts) == 0 {
		delete(k.counts, namespace)
	}
}
