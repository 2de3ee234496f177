package target

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
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

// Claims finds VPAs by their target. The zero value is empty and ready to use. Targets are compared by namespace, API
// group, kind and name, as the API server does. All versions of a group are the same object.
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

// Targeting returns the strongest VPA of a target, the only one that may control its pods. With Selects it is
// Controlling in two steps, for callers that must not hold their lock while a selector is read.
func (x *Claims) Targeting(controller Key) (Claim, bool) {
	if c := x.byTarget[controller]; c != nil && c.strongest != nil {
		return *c.strongest, true
	}
	return Claim{}, false
}

// CompareClaims orders VPAs by who controls the pods that both select: those that people wrote before those made for a
// policy, then those that may change pods before idle ones, then the earlier created, then the smaller name.
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

// byTarget is the index of VPAs by target.
const byTarget = "target"

// Indexers returns the index of an informer of VPAs that VPAsOf reads.
func Indexers() cache.Indexers {
	return cache.Indexers{byTarget: func(object any) ([]string, error) {
		vpa, ok := object.(*vpav1.VerticalPodAutoscaler)
		if ok && vpa.Spec.TargetRef != nil && CheckRef(vpa.Spec.TargetRef) == nil {
			return []string{RefKey(vpa.Namespace, vpa.Spec.TargetRef).indexed()}, nil
		}
		return nil, nil // not indexed: a path such as ../other would be a key of another namespace
	}}
}

func (k Key) indexed() string { return path.Join(k.Namespace, k.Group, k.Kind, k.Name) }

// VPAsOf returns the VPAs with a target, in no order. The error is a missing index.
func VPAsOf(vpas cache.Indexer, target Key) ([]*vpav1.VerticalPodAutoscaler, error) {
	objects, err := vpas.ByIndex(byTarget, target.indexed())
	found := make([]*vpav1.VerticalPodAutoscaler, 0, len(objects))
	for _, object := range objects {
		if vpa, ok := object.(*vpav1.VerticalPodAutoscaler); ok {
			found = append(found, vpa)
		}
	}
	return found, err
}

// Generations remembers from which generation on each VPA has had the target that it has now. The zero value knows of
// no VPA, and so does nil. It is safe for concurrent use.
type Generations struct {
	mu    sync.Mutex
	known map[cache.ObjectName]sighting
}

// sighting is what was seen of one VPA.
type sighting struct {
	uid    types.UID
	target Key
	since  int64 // it has had the target from this generation on
	last   int64 // the newest generation that was seen
}

// Watch learns from an informer of VPAs. Of a VPA that is there already only the present generation is known.
func (g *Generations) Watch(vpas cache.SharedInformer) error {
	_, err := vpas.AddEventHandler(vpaHandler(func(vpa *vpav1.VerticalPodAutoscaler) { g.see(vpa, true) }, g.forget))
	if err != nil {
		return fmt.Errorf("watch the targets of VPAs: %w", err)
	}
	return nil
}

// Outdated reports whether the recommendation in the status of a VPA may be for another target than the VPA has now. A
// cache may show a VPA a moment before Watch hears of it: what it shows counts.
func (g *Generations) Outdated(vpa *vpav1.VerticalPodAutoscaler) bool {
	if g == nil {
		return convert.Outdated(vpa, vpa.Generation)
	}
	return convert.Outdated(vpa, g.see(vpa, false))
}

// see takes note of a VPA and returns from which generation on it has had its target.
// One that is not known is only added if it is there for certain.
func (g *Generations) see(vpa *vpav1.VerticalPodAutoscaler, there bool) (since int64) {
	name, at := cache.MetaObjectToName(vpa), vpa.Generation
	var target Key
	if vpa.Spec.TargetRef != nil {
		target = RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, known := g.known[name]
	switch {
	case !known && !there:
		return at
	case !known || s.uid != vpa.UID:
		s = sighting{uid: vpa.UID, target: target, since: at, last: at}
	case at >= s.last && s.target != target:
		s.target, s.since, s.last = target, at, at
	case at < s.last && s.target != target: // the news of it comes late
		s.since = max(s.since, at+1)
	default:
		s.last = max(s.last, at)
	}
	if g.known == nil {
		g.known = map[cache.ObjectName]sighting{}
	}
	g.known[name] = s
	return s.since
}

func (g *Generations) forget(name cache.ObjectName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, name)
}
