// Package model holds what the cluster looks like to the recommender: which pods run,
// which VPA selects them, and which of their containers ran out of memory.
//
// Model holds the indexes: by namespace, and within it by distinct label set, so that no step compares all pods with
// all VPAs; the pods of a label set feed the same series of the usage store, and its VPAs are known. When the last pod
// of a label set goes, its history becomes part of that of its successors: without the labels of generations, and of
// single runs, which are found by their many values. Where much is left that nobody has or selects, it goes within
// hours. A VPA has a revision, which changes when there is something new to compute.
//
// Changes and OOMs are queues that informers fill and the loop drains; PodOOMs and EvictionOOMs are the rules by which
// a kill is recognised. Roster reads the VPAs of a pass with what their targets select.
//
// Model belongs to the goroutine of the loop. Other goroutines may read it, the store and the sketches inside Read: the
// loop changes inside Change what they read. The package makes no recommendation and writes nothing.
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

// Grace is how long the pods of a target that cannot be read any more still count: an API server that is away, or a
// target that is replaced, must not empty a recommendation.
const Grace = 30 * time.Minute

// Config says how a Model works.
type Config struct {
	Store       *usage.Store
	MemorySaver bool   // track only containers of pods that a VPA selects
	PerVPA      bool   // settings of a VPA override those of the store
	Backfills   bool   // history comes from Prometheus and is loaded when the pods of a VPA appear
	Keys        Keys   // nil: not known
	Owners      Owners // nil: no owner is known, and selectors alone decide
}

// Keys knows the label keys of selectors.
type Keys interface {
	// Mention reports whether the selector of a controller in a namespace mentions a
	// label key, whether it has pods or not.
	Mention(namespace, key string) bool
}

// Owners knows the owners of pods.
type Owners interface {
	// Top returns the topmost controller at or above the controller of a pod, and whether that is known yet.
	Top(controller target.Key) (top target.Key, known bool)
}

// Model links pods, label sets and VPAs with the series of a store.
//
//	namespace ── VPA ──┐ selects
//	          └─ label set ── series, one for each container name
//	                   └ pod ── tracked containers, which feed the series
type Model struct {
	config          Config
	mu              sync.RWMutex
	spaces          map[string]*space
	vpas            []*VPA  // sorted by namespace and name; nil: must be built again
	places          []place // by series handle; without set: no such series
	recentlyDeleted map[cache.ObjectName]recentlyDeleted
	pass            uint64              // number of calls of SyncVPAs
	unsettled       map[*pod]target.Key // pods whose owner is not known yet, with their controllers
	changes         uint64              // number of changes of what VPAs are linked with
	late            bool                // new series lack history, see BeginLate
	keys            []string            // of the labels that are looked up; kept for its memory
	text            []byte              // and their text
}

// space is what a namespace holds.
type space struct {
	name      string
	vpas      map[string]*VPA
	selectors index
	owners    map[target.Key]int // how many label sets each custom resource owns
	sets      map[string]*labelSet
	batches   map[string]*batch // by the keys of their labels
	pods      map[string]*pod
	recent    *labelSet // that was looked up last
	removed   int       // pods, since the map was made

	ended      int  // weight of the histories of containers that do not run, at most
	most       int  // what that may be, as counted last; 0: mostEnded
	crowded    bool // it was logged that it was more
	batchBytes int  // length of the keys of batches
}

// labelSet stands for all pods of a namespace with the same labels and the same owner.
type labelSet struct {
	space  *space
	text   string     // sorted k=v list, with the owner where another label set has these labels
	owner  target.Key // topmost controller of the pods; zero: none, or not known
	labels list
	pods   []*pod
	series []namedSeries // by container
	vpas   []*VPA        // that select it, the controlling one first

	former   bool   // it holds what a target selected before, and no selector matches it
	claimant string // name of a VPA that selected it until its target was missing for longer than Grace
	forsaken int64  // instant since which it has neither pods nor VPAs, as far as sweeps saw; 0: it has some
}

type namedSeries struct {
	container string
	series    usage.Series
	missing   bool // the usage from before its creation must be loaded
}

type pod struct {
	name     string
	set      *labelSet
	at       int32 // index in the pods of the set
	finished bool
	tracked  bool // the store knows the containers
	stale    bool // but not these, or not with these labels
	*form
}

// form is what pods of one template have in common. It never changes once made.
type form struct {
	containers []string
	limitRatio []sketch.LimitRatio // of the containers
}

type place struct {
	set       *labelSet
	container string
}

// NewModel returns an empty model.
func NewModel(c Config) *Model {
	return &Model{config: c, spaces: map[string]*space{}, recentlyDeleted: map[cache.ObjectName]recentlyDeleted{}, unsettled: map[*pod]target.Key{}}
}

// Change calls a function that changes what Read reads. Calls do not nest.
func (m *Model) Change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// lockInterval is the time between two attempts of Read.
const lockInterval = 10 * time.Millisecond

// Read calls a function that changes nothing, beside the loop. It returns an error if ctx ends before Change does.
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

func (m *Model) space(namespace string) *space {
	s := m.spaces[namespace]
	if s == nil {
		s = &space{name: namespace, selectors: newIndex(),
			vpas: map[string]*VPA{}, owners: map[target.Key]int{}, sets: map[string]*labelSet{}, pods: map[string]*pod{}}
		m.spaces[namespace] = s
	}
	return s
}

// VPAs returns all VPAs, sorted by namespace and name. The caller must not change the list.
func (m *Model) VPAs() []*VPA {
	if m.vpas != nil {
		return m.vpas
	}
	m.vpas = []*VPA{}
	for _, s := range m.spaces {
		m.vpas = slices.AppendSeq(m.vpas, maps.Values(s.vpas))
	}
	slices.SortFunc(m.vpas, func(a, b *VPA) int {
		return cmp.Or(strings.Compare(a.Object.Namespace, b.Object.Namespace), strings.Compare(a.Object.Name, b.Object.Name))
	})
	return m.vpas
}

// Controlling returns the VPA that controls the pod of a container, and nil if none does.
func (m *Model) Controlling(c usage.ContainerKey) *VPA {
	if vpas := m.Selecting(c); len(vpas) > 0 {
		return vpas[0]
	}
	return nil
}

// Selecting returns the VPAs that select the pod of a container and get its usage, the controlling
// one first. The caller must not change the list.
func (m *Model) Selecting(c usage.ContainerKey) []*VPA {
	if s := m.spaces[c.Namespace]; s != nil && s.pods[c.Pod] != nil {
		return s.pods[c.Pod].set.served()
	}
	return nil
}

// MarkAmbiguous sets for each VPA why usage of a container that it selects is left out.
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

// Find returns the VPA with a name, and nil if there is none.
func (m *Model) Find(namespace, name string) *VPA {
	if s := m.spaces[namespace]; s != nil {
		return s.vpas[name]
	}
	return nil
}

// Guard stops panics of one step of a pass, so that a defect in the work on one VPA does
// not stop the others. The zero Guard stops none.
type Guard struct {
	step   string
	panics prometheus.Counter
}

// NewGuard returns a guard that counts by step.
func NewGuard(step string, panics *prometheus.CounterVec) Guard {
	return Guard{step, panics.WithLabelValues(step)} // to be seen also while it is 0
}

// Recover is deferred around the work on one VPA, or on a whole step, where v is nil. It logs a panic and counts it.
func (g Guard) Recover(v *VPA) {
	if g.panics == nil {
		return
	}
	defect := recover()
	if defect == nil {
		return
	}
	g.panics.Inc()
	vpa := "none"
	if v != nil && v.Object != nil {
		vpa = klog.KObj(v.Object).String()
	}
	klog.Background().Error(fmt.Errorf("%v", defect), "A defect of the recommender: please report it. Going on with the rest", "step", g.step, "vpa", vpa, "stack", string(debug.Stack()))
}
