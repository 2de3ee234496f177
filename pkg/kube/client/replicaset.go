package client

import (
	"strings"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReplicaSet is the cached form of a ReplicaSet. For each one with pods a cluster has ten old ones,
// and an empty appsv1.ReplicaSet takes 1.2 KiB. Other methods of metav1.Object than the ones below
// panic, because informers do not call them and the embedded interface is nil.
type ReplicaSet struct {
	metav1.Object

	name        string
	namespace   unique.Handle[string]
	version     string
	owner       *[1]metav1.OwnerReference // without UID, shared by revisions; nil: no controller
	selector    *metav1.LabelSelector     // nil for a ReplicaSet of a Deployment
	replicas    int32
	hasReplicas bool // replicas are set
}

func trimReplicaSet(o *appsv1.ReplicaSet) *ReplicaSet {
	r := &ReplicaSet{name: o.Name, namespace: unique.Make(o.Namespace), version: o.ResourceVersion}
	if o.Spec.Replicas != nil {
		r.replicas, r.hasReplicas = *o.Spec.Replicas, true
	}
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "Deployment" || customGroup(owner) {
		r.selector = BoundSelector(o.Spec.Selector)
	}
	if owner == nil {
		return r
	}
	// The name of a revision begins with the name of its owner.
	name := boundString(owner.Name)
	if strings.HasPrefix(r.name, name) {
		name = r.name[:len(name)]
	}
	r.owner = &[1]metav1.OwnerReference{{APIVersion: boundString(owner.APIVersion), Kind: boundString(owner.Kind), Name: name, Controller: &isController}}
	return r
}

// shareOwner reuses the owner reference of the previous ReplicaSet if they are equal. API servers
// list by name, so the revisions of a Deployment are adjacent.
func (t *Trimmer) shareOwner(r *ReplicaSet) *ReplicaSet {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.revision; last != nil && last.owner != nil && r.owner != nil && last.namespace == r.namespace && *last.owner == *r.owner {
		r.owner = last.owner
	}
	t.revision = r
	return r
}

func customGroup(owner *metav1.OwnerReference) bool { return strings.Contains(owner.APIVersion, ".") }

// GetName returns the name.
func (r *ReplicaSet) GetName() string { return r.name }

// GetNamespace returns the namespace.
func (r *ReplicaSet) GetNamespace() string { return r.namespace.Value() }

// GetResourceVersion returns the resource version.
func (r *ReplicaSet) GetResourceVersion() string { return r.version }

// GetOwnerReferences returns the controller without its UID, nil if there is none.
func (r *ReplicaSet) GetOwnerReferences() []metav1.OwnerReference {
	if r.owner == nil {
		return nil
	}
	return r.owner[:]
}

// Selector returns the pod selector, nil for a ReplicaSet of a Deployment, which is no VPA target.
func (r *ReplicaSet) Selector() *metav1.LabelSelector { return r.selector }

// Replicas returns the desired number of pods, nil if unset.
func (r *ReplicaSet) Replicas() *int32 {
	if !r.hasReplicas {
		return nil
	}
	return &r.replicas
}
