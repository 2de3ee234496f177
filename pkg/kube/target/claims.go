package target

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/kube/client"
)

// Claim is what the choice needs to know of one VerticalPodAutoscaler.
type Claim struct {
	VPA                    *vpav1.VerticalPodAutoscaler // as it was read
	Namespace, Name        string
	TargetKind, TargetName string
	TargetVersion          string // API group and version of the target
	Created                time.Time
	Made                   bool // for a policy: any that a person wrote comes first
	Idle                   bool // mode Off without a startup boost: it changes no pod, unless it is Made and its policy does
	// Selector is the selector of the target, such as a labels.Selector. Nil matches nothing. VPAs with the same target
	// have the same selector.
	Selector interface{ Matches(labels.Labels) bool }
}

// ClaimOf reads what decides which of several VPAs controls a pod. Selector is left
// nil; a VPA without target claims the workload without kind and name.
func ClaimOf(vpa *vpav1.VerticalPodAutoscaler) Claim {
	claim := Claim{
		VPA: vpa, Namespace: vpa.Namespace, Name: vpa.Name, Created: vpa.CreationTimestamp.Time,
		Made: convert.MadeForPolicy(vpa),
		// What cannot be read may be a boost.
		Idle: convert.Mode(vpa) == vpav1.UpdateModeOff && !convert.HasBoost(vpa) && convert.Unreadable(vpa) == "",
	}
	if ref := vpa.Spec.TargetRef; ref != nil {
		claim.TargetKind, claim.TargetName, claim.TargetVersion = ref.Kind, ref.Name, ref.APIVersion
	}
	return claim
}

// Claims finds VPAs by their target. The zero value is empty and ready to use. Targets are
// compared by namespace, API group, kind and name, as the API server does. All versions of a
// group are the same object.
type Claims struct {
	byTarget map[Key]*claims
	targets  map[cache.ObjectName]Key
}

// claims are the VPAs of one target.
type claims struct {
	all []*Claim // strongest first
	// strongest can control a pod: all VPAs of a target select the same pods. Users can create any
	// number of VPAs with one target, and only this one is evaluated for each pod. Nil: none can.
	strongest *Claim
}

// single has room for the first VPA of a target, which is the only one of most targets, in one allocation.
type single struct {
	claims

	claim Claim
	slot  [1]*Claim
}

func (c *claims) choose() {
	c.strongest = nil
	if at := slices.IndexFunc(c.all, func(v *Claim) bool { return v.Selector != nil }); at >= 0 {
		c.strongest = c.all[at]
	}
}

// Put adds a VPA or replaces the one with its namespace and name.
func (x *Claims) Put(v Claim) {
	if x.targets == nil {
		x.byTarget, x.targets = map[Key]*claims{}, map[cache.ObjectName]Key{}
	}
	x.Remove(v.Namespace, v.Name)
	key := NewKey(v.Namespace, v.TargetVersion, v.TargetKind, v.TargetName)
	if key.static() {
		v.Selector = nil // the kubelet reads these pods from files of the node
	}
	c := x.byTarget[key]
	var added *Claim
	if c == nil {
		one := &single{claim: v}
		c, added = &one.claims, &one.claim
		c.all = one.slot[:0]
		x.byTarget[key] = c
	} else {
		added = new(v)
	}
	at, _ := slices.BinarySearchFunc(c.all, added, func(a, b *Claim) int { return CompareClaims(*a, *b) })
	c.all = slices.Insert(c.all, at, added)
	c.choose()
	x.targets[cache.NewObjectName(v.Namespace, v.Name)] = key
}

// Remove takes a VPA out of the index and returns it; false: it is not there.
func (x *Claims) Remove(namespace, name string) (Claim, bool) {
	key, known := x.targets[cache.NewObjectName(namespace, name)]
	if !known {
		return Claim{}, false
	}
	delete(x.targets, cache.NewObjectName(namespace, name))
	c := x.byTarget[key]
	at := slices.IndexFunc(c.all, func(v *Claim) bool { return v.Name == name })
	removed := *c.all[at]
	c.all = slices.Delete(c.all, at, at+1)
	c.choose()
	if len(c.all) == 0 {
		delete(x.byTarget, key)
	}
	return removed, true
}

// Has reports whether a VPA is among the claims.
func (x *Claims) Has(name cache.ObjectName) bool {
	_, found := x.targets[name]
	return found
}

// Len returns the number of VPAs in the index.
func (x *Claims) Len() int { return len(x.targets) }

// Controlling returns the VPA that controls a pod with some labels below a topmost
// controller, and false if none does. A pod without one is controlled by no VPA.
func (x *Claims) Controlling(top Key, of map[string]string) (Claim, bool) {
	if strongest, found := x.Targeting(top); found && !client.LabelsTooLarge(of) && strongest.Selector.Matches(labels.Set(of)) {
		return strongest, true
	}
	return Claim{}, false
}

// Targeting returns the strongest VPA of a target, the only one that may control its pods.
// With Selects it is Controlling in two steps, for callers that must not hold their lock while
// a selector is read.
func (x *Claims) Targeting(controller Key) (Claim, bool) {
	if c := x.byTarget[controller]; c != nil && c.strongest != nil {
		return *c.strongest, true
	}
	return Claim{}, false
}

// CompareClaims orders VPAs by who controls the pods that both select: those that people
// wrote before those made for a policy, then those that may change pods before idle ones,
// then the earlier created, then the smaller name.
func CompareClaims(a, b Claim) int {
	return cmp.Or(lastIf(a.Made, b.Made), lastIf(a.Idle, b.Idle), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// lastIf orders what something does not hold for before what it holds for.
func lastIf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
