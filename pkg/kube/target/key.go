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

// Key names a workload.
type Key struct {
	Namespace string
	Group     string // empty for the well-known kinds
	Kind      string
	Name      string
}

// String is the form for messages, as one printable line: Kind name, or Kind.group name.
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

// CheckRef returns an error for a target that cannot exist. A VPA with such a target gets no pods.
func CheckRef(ref *autoscalingv1.CrossVersionObjectReference) error {
	return RefKey(metav1.NamespaceDefault, ref).check()
}

// check returns an error if a part of k cannot be a segment of a request's path, or has characters that no name and no
// kind has. What such a reference names would be another object than the one that is read. Nothing that exists is
// longer than what is allowed here, and keys are kept: references may be as large as their object.
func (k Key) check() error {
	group := k.Group
	if group == "" {
		group = "core" // no part of a path
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

// unnameable reports whether a character is a space, not printable or invalid UTF-8.
func unnameable(r rune) bool { return r == ' ' || r == utf8.RuneError || !strconv.IsPrint(r) }

// node is the kind of the owner of static pods, which is no workload.
const node = "Node"

// NewKey returns the key of a workload as a reference spells it. The version is left out: all versions show the same
// object. For the well-known kinds the group is left out too, so that "apps/v1", the long gone "extensions/v1beta1" and
// no apiVersion at all mean the same.
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

// RefKey returns the key of a VPA's target; the reference must not be nil.
func RefKey(namespace string, ref *autoscalingv1.CrossVersionObjectReference) Key {
	return NewKey(namespace, ref.APIVersion, ref.Kind, ref.Name)
}

// Controller returns the key of the controlling owner among references of an
// object in namespace; of several the last counts. A Node is no owner.
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

// static reports whether k is a node, which owns static pods.
func (k Key) static() bool { return k.Kind == node && fleet.BuiltIn(k.Group) }

// Custom reports whether k is read through its scale subresource.
func (k Key) Custom() bool { return !k.wellKnown() && !k.static() }

// wellKnown reports whether k is read from an informer cache.
func (k Key) wellKnown() bool { return k.Group == "" && fleet.BuiltInKind(k.Kind) }

// GroupKind is what discovery is asked for.
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

// ErrNoWorkload says that there is no workload that a policy can select: it does not exist, its
// kind has no scale subresource, or another controller owns it.
var ErrNoWorkload = errors.New("nothing that a policy can select")

// Read returns a workload of a kind that is not listed, from its scale subresource, which it asks for if nobody did
// before. It is ErrNoWorkload if there is none; any other error says that it is not known.
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
		return Workload{}, fmt.Errorf("find out whether another controller owns %s in namespace %s: %w", key, key.Namespace, err)
	case found && top != key:
		return Workload{}, fmt.Errorf("%s in namespace %s is %w: %s owns it, which a policy can name", key, key.Namespace, ErrNoWorkload, top)
	}
	return w, nil
}

// ReadScale is Read for callers without caches; it does not look who owns the workload. It returns
// the selector of its pods, too.
func ReadScale(ctx context.Context, read Scale, key Key) (w Workload, selector string, err error) {
	if err := key.check(); err != nil {
		return Workload{}, "", fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	scale, err := read(ctx, key.Namespace, key.GroupKind(), key.Name)
	var a answer
	if err == nil {
		a = answerOf(scale)
	}
	w, err = workloadOf(key, a, err)
	return w, a.selector, err
}

// Known is Read from what is known, and ErrNotRead if nothing is: then Run reads it, as far as its
// namespace has some left.
func (r *Resolver) Known(key Key) (Workload, error) {
	if err := key.check(); err != nil {
		return Workload{}, fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	a, err := r.scales.cached(key)
	if errors.Is(err, ErrNotRead) {
		return Workload{}, ErrNotRead
	}
	return workloadOf(key, a, err)
}

// Confirm returns an error if a workload is not there any more, or if another has its name: what names it as its owner
// would be removed at once. Of those that are listed an informer says so; that of others is read again.
func (r *Resolver) Confirm(ctx context.Context, w Workload) error {
	if fleet.Listed(w.Key.Group, w.Key.Kind) {
		return nil
	}
	a, err := r.scales.again(ctx, w.Key)
	now, err := workloadOf(w.Key, a, err)
	switch {
	case err != nil:
		return err
	case now.UID != w.UID:
		return fmt.Errorf("%s in namespace %s was replaced by another of that name", w.Key, w.Key.Namespace)
	}
	return nil
}

// workloadOf returns a workload from what was said, or not, about its scale subresource.
func workloadOf(key Key, a answer, err error) (Workload, error) {
	switch {
	case apierrors.IsNotFound(err):
		return Workload{}, fmt.Errorf("%s does not exist in namespace %s: %w", key, key.Namespace, ErrNoWorkload)
	case errors.Is(err, client.ErrNoScale), meta.IsNoMatchError(err):
		return Workload{}, fmt.Errorf("%s in namespace %s is %w: %w", key, key.Namespace, ErrNoWorkload, err)
	case err != nil:
		return Workload{}, fmt.Errorf("read the scale subresource of %s in namespace %s: %w", key, key.Namespace, err)
	case a.uid == "" || a.apiVersion == "":
		return Workload{}, fmt.Errorf("the scale subresource of %s in namespace %s says no metadata.uid, so that it could own no VPA", key, key.Namespace)
	}
	return Workload{Key: key, APIVersion: a.apiVersion, UID: a.uid}, nil
}

// Keys knows which label keys the selectors of the controllers of a namespace mention that stay when their pods go:
// Deployments, StatefulSets, DaemonSets, ReplicationControllers, and ReplicaSets that nobody owns. The selector of any
// other ReplicaSet, and that of a Job, mentions what one generation of pods has and the next has not. It is safe for
// concurrent use.
type Keys struct {
	mu    sync.RWMutex
	users map[string]map[string]int // number of controllers by namespace and key

	heard []cache.InformerSynced
}

// Synced reports whether the controllers that the informers know are all counted.
func (k *Keys) Synced() bool {
	return !slices.ContainsFunc(k.heard, func(synced cache.InformerSynced) bool { return !synced() })
}

// Keys returns what knows the keys of the controllers that the resolver reads. It must
// be called before the informers start.
func (r *Resolver) Keys() (*Keys, error) {
	k := &Keys{users: map[string]map[string]int{}}
	heard, err := r.workloads.watch("selectors", func(_ string, before, after any) {
		k.count(after, 1)
		k.count(before, -1)
	})
	k.heard = heard
	return k, err
}

// Mention reports whether the selector of a controller in a namespace mentions a key.
func (k *Keys) Mention(namespace, key string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.users[namespace][key] > 0
}

// count counts a controller that comes or goes.
func (k *Keys) count(object any, more int) {
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
	users := k.users[namespace]
	if users == nil {
		users = map[string]int{}
		k.users[namespace] = users
	}
	add := func(key string) {
		if users[key] += more; users[key] == 0 {
			delete(users, key)
		}
	}
	for key := range w.selector.MatchLabels {
		add(key)
	}
	for i := range w.selector.MatchExpressions {
		add(w.selector.MatchExpressions[i].Key)
	}
	if len(users) == 0 {
		delete(k.users, namespace)
	}
}
