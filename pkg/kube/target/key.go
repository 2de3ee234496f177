package target

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"loadline.dev/loadline/pkg/core/fleet"
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

// check returns an error if a part of k cannot be a segment of a request's path, or has characters
// that no name and no kind has. What such a reference names would be another object than the one
// that is read. Nothing that exists is longer than what is allowed here, and keys are kept:
// references may be as large as their object.
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

// NewKey returns the key of a workload as a reference spells it. The version is
// left out: all versions show the same object. For the well-known kinds the
// group is left out too, so that "apps/v1", the long gone "extensions/v1beta1"
// and no apiVersion at all mean the same.
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
