// Package model holds the state of the cluster: the running pods, the VPAs that select them, and
// their out-of-memory kills.
//
// Model groups the pods of a namespace by distinct label set, so that no step compares all pods
// with all VPAs. The pods of a label set feed the same series of the usage store. When its last pod
// is deleted, its history is folded into the set without the labels of pod generations and of
// single runs, which are detected by their many values. Many histories without pods and VPAs are
// dropped within hours. The revision of a VPA changes when its recommendation or checkpoints must
// be computed again.
//
// Changes and KillQueue are queues between informers and the loop. PodOOMs and EvictionOOMs detect
// kills. Roster lists VPAs with the selectors of their targets.
//
// Model belongs to the goroutine of the loop, which modifies it, the store and the sketches inside
// Change. Other goroutines may read them inside Read. The package writes nothing to the API server.
package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// Grace is how long the pods of an unreadable target still count, so that an API server outage or a
// replaced target does not withdraw a recommendation.
const Grace = 30 * time.Minute

// Config configures a Model.
type Config struct {
	Store       *usage.Store
	MemorySaver bool   // track only containers of pods that a VPA selects
	PerVPA      bool   // VPAs may override the rules of the store
	Backfills   bool   // history is loaded from Prometheus when the pods of a VPA appear
	Keys        Keys   // nil: unknown
	Owners      Owners // nil: selectors alone assign pods
}

// Keys looks up the label keys of selectors.
type Keys interface {
	// Contains reports whether a controller selector mentions a label key, even without pods.
	Contains(namespace, key string) bool
}

// Owners looks up the owners of pods.
type Owners interface {
	// Top returns the topmost controller at or above the controller of a pod, if it is known yet.
	Top(controller target.Key) (top target.Key, known bool)
}

// Model links pods, label sets and VPAs with the series of a store.
//
//	namespace ── VPA ──┐ selects
//	          └─ label set ── series, one for each container name
//	                   └ pod ── tracked containers, which feed the series
type Model struct {
	config           Config
	mu               sync.RWMutex
	namespaces       map[string]*namespaceState
	vpas             []*VPA           // sorted by namespace and name, nil: rebuild
	seriesLocations  []seriesLocation // by series handle, empty: no such series
	recentlyDeleted  map[cache.ObjectName]recentlyDeleted
	syncCount        uint64              // number of SyncVPAs calls
	unresolvedOwners map[*pod]target.Key // pods with unresolved owners, by controller
	changes          uint64              // counts changes of VPA links
	marksNewSeries   bool                // new series lack history, see BeginLate
	keys             []string            // reused buffer
	text             []byte              // reused buffer
}

type namespaceState struct {
	name      string
	vpas      map[string]*VPA
	selectors index
	owners    map[target.Key]int // number of label sets by custom resource
	sets      map[string]*labelSet
	keyGroups map[string]*keyGroup // by label keys
	pods      map[string]*pod
	recent    *labelSet // last looked up
	removed   int       // pods deleted since the map was built

	endedWeight    int  // upper bound for the weight of ended histories
	maxEndedWeight int  // limit at the last count, 0: default
	limitLogged    bool // exceeding the limit was logged
	keyGroupBytes  int  // total length of the keys
}

// labelSet groups the pods of a namespace with the same labels and the same owner.
type labelSet struct {
	namespace *namespaceState
	text      string     // sorted k=v list, with the owner if needed to be unique
	owner     target.Key // topmost controller of the pods, zero: none or unknown
	labels    labelList
	pods      []*pod
	series    []namedSeries // by container
	vpas      []*VPA        // selecting VPAs, the controlling one first

	former        bool   // history of formerly selected pods, matches no selector
	lastVPA       string // unlinked after its target was missing longer than Grace
	orphanedSince int64  // first sweep without pods and VPAs, 0: none
}

type namedSeries struct {
	container string
	series    usage.Series
	missing   bool // usage from before its creation must be loaded
}

type pod struct {
	name     string
	set      *labelSet
	at       int32 // index in the pods of the set
	finished bool
	tracked  bool // its containers are in the store
	stale    bool // containers or labels in the store are outdated
	*podTemplate
}

// podTemplate holds the common fields of equal pods. It is immutable.
type podTemplate struct {
	containers []string
	limitRatio []sketch.LimitRatio // by container
}

type seriesLocation struct {
	set       *labelSet
	container string
}

// NewModel returns an empty model.
func NewModel(c Config) *Model {
	return &Model{config: c, namespaces: map[string]*namespaceState{}, recentlyDeleted: map[cache.ObjectName]recentlyDeleted{}, unresolvedOwners: map[*pod]target.Key{}}
}

// Change runs do exclusively of Read. Calls must not nest.
func (m *Model) Change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

const lockInterval = 10 * time.Millisecond

// Read runs do, which must not modify anything, outside of Change. It fails if ctx ends first.
func (m *Model) Read(ctx context.Context, do func()) error {
	for !m.mu.TryRLock() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockInterval):
		}
	}
	defer m.mu.RUnlock()
	do()
	return nil
}

func (m *Model) namespaceState(namespace string) *namespaceState {
	s := m.namespaces[namespace]
	if s == nil {
		s = &namespaceState{name: namespace, selectors: newIndex(),
			vpas: map[string]*VPA{}, owners: map[target.Key]int{}, sets: map[string]*labelSet{}, pods: map[string]*pod{}}
		m.namespaces[namespace] = s
	}
	return s
}

// VPAs returns all VPAs, sorted by namespace and name. The list must not be modified.
func (m *Model) VPAs() []*VPA {
	if m.vpas != nil {
		return m.vpas
	}
	m.vpas = []*VPA{}
	for _, s := range m.namespaces {
		m.vpas = slices.AppendSeq(m.vpas, maps.Values(s.vpas))
	}
	slices.SortFunc(m.vpas, func(a, b *VPA) int {
		return cmp.Or(strings.Compare(a.Object.Namespace, b.Object.Namespace), strings.Compare(a.Object.Name, b.Object.Name))
	})
	return m.vpas
}

// Controlling returns the VPA that controls the pod of a container, or nil.
func (m *Model) Controlling(c usage.ContainerKey) *VPA {
	if vpas := m.Selecting(c); len(vpas) > 0 {
		return vpas[0]
	}
	return nil
}

// Selecting returns, read-only, the VPAs that get the usage of a container, controlling one first.
func (m *Model) Selecting(c usage.ContainerKey) []*VPA {
	if s := m.namespaces[c.Namespace]; s != nil && s.pods[c.Pod] != nil {
		return s.pods[c.Pod].set.served()
	}
	return nil
}

// MarkAmbiguous sets on each VPA why usage of one of its containers is ignored.
func (m *Model) MarkAmbiguous(each func(visit func(c usage.ContainerKey, why error))) {
	for _, v := range m.VPAs() {
		v.Ambiguous = ""
	}
	each(func(c usage.ContainerKey, why error) {
		for _, v := range m.Selecting(c) {
			if v.Ambiguous == "" {
				v.Ambiguous = why.Error()
			}
		}
	})
}

// Find returns the VPA with a name, or nil.
func (m *Model) Find(namespace, name string) *VPA {
	if s := m.namespaces[namespace]; s != nil {
		return s.vpas[name]
	}
	return nil
}

// Guard recovers panics, so that a bug does not stop other VPAs. The zero Guard recovers none.
type Guard struct {
	step   string
	panics prometheus.Counter
}

// NewGuard returns a guard that counts panics by step.
func NewGuard(step string, panics *prometheus.CounterVec) Guard {
	return Guard{step, panics.WithLabelValues(step)} // exported as 0 before the first panic
}

// Recover logs and counts a panic. Defer it for one VPA, or with a nil v for a whole step.
func (g Guard) Recover(v *VPA) {
	if g.panics == nil {
		return
	}
	recovered := recover()
	if recovered == nil {
		return
	}
	g.panics.Inc()
	vpa := "none"
	if v != nil && v.Object != nil {
		vpa = klog.KObj(v.Object).String()
	}
	klog.Background().Error(fmt.Errorf("%v", recovered), "Recovered from panic, please report this bug", "step", g.step, "vpa", vpa, "stack", string(debug.Stack()))
}
