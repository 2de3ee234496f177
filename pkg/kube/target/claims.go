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

// Claim describes a VPA in the choice of the VPA that controls a pod.
type Claim struct {
	VPA                    *vpav1.VerticalPodAutoscaler // as read
	Namespace, Name        string
	TargetKind, TargetName string
	TargetVersion          string // API group and version of the target
	Created                time.Time
	Generated              bool // for a policy; user VPAs take precedence
	Idle                   bool // mode Off without startup boost: changes no pod, except by its policy
	// Selector is the selector of the target, equal for all VPAs of a target. Nil matches nothing.
	Selector interface{ Matches(labels.Labels) bool }
}

// ClaimOf returns a claim without Selector. Without targetRef, kind and name are empty.
func ClaimOf(vpa *vpav1.VerticalPodAutoscaler) Claim {
	claim := Claim{
		VPA: vpa, Namespace: vpa.Namespace, Name: vpa.Name, Created: vpa.CreationTimestamp.Time,
		Generated: convert.IsGenerated(vpa),
		// An unreadable spec may contain a boost.
		Idle: convert.Mode(vpa) == vpav1.UpdateModeOff && !convert.HasBoost(vpa) && convert.UnreadableReason(vpa) == "",
	}
	if ref := vpa.Spec.TargetRef; ref != nil {
		claim.TargetKind, claim.TargetName, claim.TargetVersion = ref.Kind, ref.Name, ref.APIVersion
	}
	return claim
}

// Claims finds VPAs by namespace, API group, kind and name of their target. Versions of a group are
// the same object, as in the API server. The zero value is ready to use.
type Claims struct {
	byTarget map[Key]*claims
	targets  map[cache.ObjectName]Key
}

type claims struct {
	all []*Claim // strongest first
	// strongest is the only VPA that can control a pod, nil if none has a selector. Users can
	// create any number of VPAs for a target, but only this one is evaluated for each pod.
	strongest *Claim
}

// single is one allocation for a target with one VPA, as most have.
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

// Put adds or replaces a VPA.
func (x *Claims) Put(v Claim) {
	if x.targets == nil {
		x.byTarget, x.targets = map[Key]*claims{}, map[cache.ObjectName]Key{}
	}
	x.Remove(v.Namespace, v.Name)
	key := NewKey(v.Namespace, v.TargetVersion, v.TargetKind, v.TargetName)
	if key.static() {
		v.Selector = nil // the kubelet reads static pods from files of the node
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

// Remove removes and returns a VPA, or returns false if the index lacks it.
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

// Has reports whether a VPA is in the index.
func (x *Claims) Has(name cache.ObjectName) bool {
	_, found := x.targets[name]
	return found
}

// Len returns the number of VPAs in the index.
func (x *Claims) Len() int { return len(x.targets) }

// Controlling returns the VPA that controls a pod with this topmost controller and labels.
func (x *Claims) Controlling(top Key, podLabels map[string]string) (Claim, bool) {
	if strongest, found := x.Strongest(top); found && !client.LabelsTooLarge(podLabels) && strongest.Selector.Matches(labels.Set(podLabels)) {
		return strongest, true
	}
	return Claim{}, false
}

// Strongest returns the first VPA of a target by CompareClaims, the only one that may control its
// pods. The caller matches its selector, outside of its lock.
func (x *Claims) Strongest(controller Key) (Claim, bool) {
	if c := x.byTarget[controller]; c != nil && c.strongest != nil {
		return *c.strongest, true
	}
	return Claim{}, false
}

// CompareClaims orders VPAs by precedence for the same pods: user VPAs before generated VPAs, then
// VPAs that may change pods before idle ones, then by creation time, then by name.
func CompareClaims(a, b Claim) int {
	return cmp.Or(falseFirst(a.Generated, b.Generated), falseFirst(a.Idle, b.Idle), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

const byTarget = "target"

// Indexers returns the index of VPAs for VPAsOf.
func Indexers() cache.Indexers {
	return cache.Indexers{byTarget: func(object any) ([]string, error) {
		vpa, ok := object.(*vpav1.VerticalPodAutoscaler)
		if ok && vpa.Spec.TargetRef != nil && CheckRef(vpa.Spec.TargetRef) == nil {
			return []string{RefKey(vpa.Namespace, vpa.Spec.TargetRef).indexKey()}, nil
		}
		return nil, nil // a path such as ../other would be a key of another namespace
	}}
}

func (k Key) indexKey() string { return path.Join(k.Namespace, k.Group, k.Kind, k.Name) }

// VPAsOf returns the VPAs with a target, in no order, or an error if the index is missing.
func VPAsOf(vpas cache.Indexer, target Key) ([]*vpav1.VerticalPodAutoscaler, error) {
	objects, err := vpas.ByIndex(byTarget, target.indexKey())
	found := make([]*vpav1.VerticalPodAutoscaler, 0, len(objects))
	for _, object := range objects {
		if vpa, ok := object.(*vpav1.VerticalPodAutoscaler); ok {
			found = append(found, vpa)
		}
	}
	return found, err
}

// Generations records since which generation each VPA has had its current target. The zero value
// and nil are empty. It is safe for concurrent use.
type Generations struct {
	mu    sync.Mutex
	known map[cache.ObjectName]observation
}

type observation struct {
	uid    types.UID
	target Key
	since  int64 // generation of the first observation with target
	last   int64 // newest observed generation
}

// Watch observes the VPAs of an informer. Earlier generations of existing VPAs are unknown.
func (g *Generations) Watch(vpas cache.SharedInformer) error {
	_, err := vpas.AddEventHandler(vpaHandler(func(vpa *vpav1.VerticalPodAutoscaler) { g.observe(vpa, true) }, g.forget))
	if err != nil {
		return fmt.Errorf("watch the targets of VPAs: %w", err)
	}
	return nil
}

// Outdated reports whether the recommendation in a VPA's status may be for an earlier target. It
// also observes the VPA, because a cache may return it before Watch is notified.
func (g *Generations) Outdated(vpa *vpav1.VerticalPodAutoscaler) bool {
	if g == nil {
		return convert.IsOutdated(vpa, vpa.Generation)
	}
	return convert.IsOutdated(vpa, g.observe(vpa, false))
}

// observe returns the generation of the current target. An unknown VPA is added only if it exists.
func (g *Generations) observe(vpa *vpav1.VerticalPodAutoscaler, exists bool) (since int64) {
	name, at := cache.MetaObjectToName(vpa), vpa.Generation
	var target Key
	if vpa.Spec.TargetRef != nil {
		target = RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, known := g.known[name]
	switch {
	case !known && !exists:
		return at
	case !known || s.uid != vpa.UID:
		s = observation{uid: vpa.UID, target: target, since: at, last: at}
	case at >= s.last && s.target != target:
		s.target, s.since, s.last = target, at, at
	case at < s.last && s.target != target: // a late notification
		s.since = max(s.since, at+1)
	default:
		s.last = max(s.last, at)
	}
	if g.known == nil {
		g.known = map[cache.ObjectName]observation{}
	}
	g.known[name] = s
	return s.since
}

func (g *Generations) forget(name cache.ObjectName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, name)
}
