package client

import (
	"strings"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReplicaSet is what caches hold of a ReplicaSet: its name and its controlling owner, and what it is asked for as the
// owner of pods. A cluster has ten old ones, without pods, for each that has some, and an appsv1.ReplicaSet takes 1.2
// KiB before anything is in it.
//
// Informers ask a cached object for its name, namespace and resource version.
// The other methods of metav1.Object are those of a nil interface and panic.
type ReplicaSet struct {
	metav1.Object

	name      string
	namespace unique.Handle[string]
	version   string
	owner     *[1]metav1.OwnerReference // without UID, shared by revisions; nil: no controller
	selector  *metav1.LabelSelector     // nil: that of a Deployment is not needed
	replicas  int32
	counted   bool // replicas are said
}

func trimReplicaSet(o *appsv1.ReplicaSet) *ReplicaSet {
	r := &ReplicaSet{name: o.Name, namespace: unique.Make(o.Namespace), version: o.ResourceVersion}
	if o.Spec.Replicas != nil {
		r.replicas, r.counted = *o.Spec.Replicas, true
	}
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "Deployment" || customGroup(owner) {
		r.selector = BoundSelector(o.Spec.Selector)
	}
	if owner == nil {
		return r
	}
	// The name of a revision begins with that of its owner.
	name := word(owner.Name)
	if strings.HasPrefix(r.name, name) {
		name = r.name[:len(name)]
	}
	r.owner = &[1]metav1.OwnerReference{{APIVersion: word(owner.APIVersion), Kind: word(owner.Kind), Name: name, Controller: &controls}}
	return r
}

// keepReplicaSet gives a ReplicaSet the owner reference of the previous one if they are equal. API servers
// list by name, so the revisions of a Deployment follow each other.
func (t *Trimmer) keepReplicaSet(r *ReplicaSet) *ReplicaSet {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.revision; last != nil && last.owner != nil && r.owner != nil && last.namespace == r.namespace && *last.owner == *r.owner {
		r.owner = last.owner
	}
	t.revision = r
	return r
}

// customGroup reports whether an owner is a custom resource, whatever its kind is called.
func customGroup(owner *metav1.OwnerReference) bool { return strings.Contains(owner.APIVersion, ".") }

// GetName returns the name.
func (r *ReplicaSet) GetName() string { return r.name }

// GetNamespace returns the namespace.
func (r *ReplicaSet) GetNamespace() string { return r.namespace.Value() }

// GetResourceVersion returns the version of the object.
func (r *ReplicaSet) GetResourceVersion() string { return r.version }

// GetOwnerReferences returns the controlling owner, without its UID; nil if there is none.
func (r *ReplicaSet) GetOwnerReferences() []metav1.OwnerReference {
	if r.owner == nil {
		return nil
	}
	return r.owner[:]
}

// Selector returns what selects the pods; nil for a ReplicaSet of a Deployment, which cannot be the target of a VPA.
func (r *ReplicaSet) Selector() *metav1.LabelSelector { return r.selector }

// Replicas returns how many pods are wanted; nil if that is not said.
func (r *ReplicaSet) Replicas() *int32 {
	if !r.counted {
		return nil
	}
	return &r.replicas
}
