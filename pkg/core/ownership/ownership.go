package ownership

import (
	"cmp"
	"slices"
	"time"
)

// VPA is what the choice needs to know of one VerticalPodAutoscaler.
type VPA struct {
	Namespace, Name        string
	TargetKind, TargetName string
	Created                time.Time
	Idle                   bool // mode Off without a startup boost: it changes no pod
	// Selects tells whether the selector of the target matches a pod's labels.
	// Nil, or a target whose selector is unknown, selects nothing.
	Selects func(labels map[string]string) bool
}

// Pod is what the choice needs to know of one pod.
type Pod struct {
	Namespace string
	Labels    map[string]string
	// ControllerKind and ControllerName are the topmost controller. A pod
	// without one is controlled by no VPA.
	ControllerKind, ControllerName string
}

// target is the key of the index. The API group is not part of it: the
// reference VPA does not compare it either.
type target struct{ namespace, kind, name string }

type id struct{ namespace, name string }

// Index finds VPAs by their target. The zero value is empty and ready to use.
type Index struct {
	byTarget map[target][]VPA // each list strongest first
	targets  map[id]target
}

// Put adds a VPA or replaces the one with its namespace and name.
func (x *Index) Put(v VPA) {
	if x.targets == nil {
		x.byTarget, x.targets = map[target][]VPA{}, map[id]target{}
	}
	x.Remove(v.Namespace, v.Name)
	key := target{v.Namespace, v.TargetKind, v.TargetName}
	at, _ := slices.BinarySearchFunc(x.byTarget[key], v, Compare)
	x.byTarget[key] = slices.Insert(x.byTarget[key], at, v)
	x.targets[id{v.Namespace, v.Name}] = key
}

// Remove takes a VPA out of the index; an unknown one is no error.
func (x *Index) Remove(namespace, name string) {
	key, known := x.targets[id{namespace, name}]
	if !known {
		return
	}
	delete(x.targets, id{namespace, name})
	rest := slices.DeleteFunc(x.byTarget[key], func(v VPA) bool { return v.Name == name })
	if len(rest) == 0 {
		delete(x.byTarget, key)
		return
	}
	x.byTarget[key] = rest
}

// Len returns the number of VPAs in the index.
func (x *Index) Len() int { return len(x.targets) }

// Controlling returns the VPA that controls the pod, and false if none does.
func (x *Index) Controlling(p Pod) (VPA, bool) {
	return First(x.Targeting(p.Namespace, p.ControllerKind, p.ControllerName), p.Labels)
}

// First returns the first of some VPAs that selects a pod with these labels.
// With Targeting it is Controlling in two steps, for callers that must not hold
// their lock while a selector is fetched.
func First(strongest []VPA, labels map[string]string) (VPA, bool) {
	for _, v := range strongest {
		if v.Selects != nil && v.Selects(labels) {
			return v, true
		}
	}
	return VPA{}, false
}

// Targeting returns all VPAs that point at a controller, strongest first. The
// caller must not change the list.
func (x *Index) Targeting(namespace, kind, name string) []VPA {
	return x.byTarget[target{namespace, kind, name}]
}

// Compare orders VPAs by who controls the pods that both select: those that may
// change pods before idle ones, then the earlier created, then the smaller name.
func Compare(a, b VPA) int {
	if a.Idle != b.Idle {
		if b.Idle {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}
