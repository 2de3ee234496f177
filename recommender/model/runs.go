package model

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/flags"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
)

// maxIdleSets is the number of label sets without pods and with equal keys that triggers a search
// for run labels. It is also the number of label sets that are kept after OrphanGrace.
const maxIdleSets = 32

// keyGroup is the state of label sets with equal keys, for example the pods of a repeated workflow.
type keyGroup struct {
	runKeys  []string // keys that identify single runs
	idle     int      // upper bound for the label sets without pods
	searchAt int      // value of idle that triggers the next search
	used     bool     // since the last sweep
}

func (m *Model) foldRun(set *labelSet) {
	s := set.namespace
	b := s.keyGroup(set.labels)
	b.used = true
	if keys := m.foldable(s, b.runKeys); len(keys) > 0 && !s.isFoldTarget(set) {
		if into := m.fold(set, keys); into != nil {
			m.retire(into)
			return
		}
	}
	if b.idle++; b.idle >= b.searchAt {
		m.findRuns(s, set.labels, b)
	}
}

func (s *namespaceState) keyGroup(like labelList) *keyGroup {
	text := like.joinedKeys()
	b := s.keyGroups[text]
	if b == nil {
		b = &keyGroup{searchAt: maxIdleSets}
		if s.keyGroups == nil || s.keyGroupBytes+len(text) > maxBatchBytes {
			s.keyGroups, s.keyGroupBytes = map[string]*keyGroup{}, 0 // the run keys are found again
		}
		s.keyGroups[text] = b
		s.keyGroupBytes += len(text)
	}
	return b
}

// findRuns searches for run labels among the idle label sets with equal keys, and folds them.
func (m *Model) findRuns(s *namespaceState, like labelList, b *keyGroup) {
	var ended []*labelSet
	awaited := s.foldTargets()
	for _, set := range s.sets {
		if len(set.pods) == 0 && len(set.series) > 0 && !set.former && set.labels.sameKeys(like) && !awaited[set.labelText()] {
			ended = append(ended, set)
		}
	}
	b.idle, b.searchAt = len(ended), max(maxIdleSets, 2*len(ended))
	if len(ended) < maxIdleSets {
		return
	}
	if b.runKeys = runKeys(ended, m.foldable(s, like.keyList())); b.runKeys == nil {
		return
	}
	slices.SortFunc(ended, func(a, b *labelSet) int { return cmp.Compare(a.text, b.text) })
	for _, set := range ended {
		if into := m.fold(set, b.runKeys); into != nil {
			b.idle--
			m.retire(into)
		}
	}
}

// runKeys returns the keys with the most values, until few label sets remain without them. It
// returns nil if the number is not reduced enough.
func runKeys(sets []*labelSet, keys []string) []string {
	values := map[string]int{}
	for _, key := range keys {
		values[key] = distinct(sets, func(set *labelSet) string { return set.labels.Get(key) })
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return values[key] < 2 })
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
	rest := distinctWithout(sets, keys)
	for n := range keys {
		if rest[n] <= maxIdleSets/2 {
			return keys[:n+1]
		}
	}
	if len(keys) == 0 || rest[len(keys)-1] > len(sets)/2 {
		return nil
	}
	return keys
}

// distinctWithout returns for each n the number of label sets that remain without the labels of
// keys[:n+1]. All sets have the same keys. It takes O(label sets * labels): it numbers the sets by
// the values of all other keys, then adds the keys from the last to the second.
func distinctWithout(sets []*labelSet, keys []string) []int {
	numbers, count := make([]int, len(sets)), 1
	add := func(key string) {
		type extended struct {
			number int
			value  string
		}
		known := map[extended]int{}
		for i, set := range sets {
			e := extended{numbers[i], set.labels.Get(key)}
			if _, found := known[e]; !found {
				known[e] = len(known)
			}
			numbers[i] = known[e]
		}
		count = len(known)
	}
	for _, key := range sets[0].labels.keyList() {
		if !slices.Contains(keys, key) {
			add(key)
		}
	}
	counts := make([]int, len(keys))
	for n, key := range slices.Backward(keys) {
		counts[n] = count
		add(key)
	}
	return counts
}

func distinct(sets []*labelSet, value func(*labelSet) string) int {
	seen := map[string]struct{}{}
	for _, set := range sets {
		seen[value(set)] = struct{}{}
	}
	return len(seen)
}

// foldable returns the keys that no selector of a VPA or controller mentions. Folding a mentioned
// key would mix the histories of workloads, and a later VPA would find none. It returns nil while
// any selector is unknown.
func (m *Model) foldable(s *namespaceState, keys []string) []string {
	if len(keys) == 0 || s.hasUnknownSelector() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return s.selectors.requirementCounts[key] > 0 || m.config.Keys != nil && m.config.Keys.Contains(s.name, key)
	})
}

func (s *namespaceState) hasUnknownSelector() bool {
	for _, v := range s.vpas {
		if v.TargetError != nil {
			return true
		}
	}
	return false
}

// isFoldTarget reports whether the label set of running pods will be folded into this one.
func (s *namespaceState) isFoldTarget(set *labelSet) bool {
	for _, other := range s.sets {
		if len(other.pods) > 0 && len(other.labels) > len(set.labels) && other.labels.equalsWithoutVolatile(set.labels) {
			return true
		}
	}
	return false
}

func (s *namespaceState) foldTargets() map[string]bool {
	texts := map[string]bool{}
	for _, set := range s.sets {
		if len(set.pods) > 0 {
			texts[set.labels.without(volatile).String()] = true
		}
	}
	return texts
}

func (l labelList) equalsWithoutVolatile(o labelList) bool {
	at := 0
	for _, x := range l {
		switch {
		case at < len(o) && x == o[at]:
			at++
		case !slices.Contains(volatile, x.key):
			return false
		}
	}
	return at == len(o)
}

func (l labelList) sameKeys(o labelList) bool {
	return slices.EqualFunc(l, o, func(a, b label) bool { return a.key == b.key })
}

func (l labelList) keyList() []string {
	keys := make([]string, len(l))
	for i, x := range l {
		keys[i] = x.key
	}
	return keys
}

func (l labelList) joinedKeys() string { return strings.Join(l.keyList(), ",") }

// OrphanGrace is how long many histories without pods and VPAs are kept.
const OrphanGrace = time.Hour

// sweep drops label sets without pods and VPAs after OrphanGrace, counted from the first sweep that
// finds them so. The latest maxIdleSets stay until they expire, because a VPA may be created later.
// Fold targets stay, and so do all sets of a namespace with an unknown selector.
func (m *Model) sweep(now time.Time) {
	for _, s := range m.namespaces {
		for text, b := range s.keyGroups {
			if !b.used {
				delete(s.keyGroups, text)
				s.keyGroupBytes -= len(text)
			}
			b.used = false
		}
		if s.hasUnknownSelector() {
			continue
		}
		var due []*labelSet
		for _, set := range s.sets {
			switch {
			case len(set.pods) > 0 || len(set.vpas) > 0:
				set.orphanedSince = 0
			case set.orphanedSince == 0:
				set.orphanedSince = now.UnixNano()
			case now.Sub(time.Unix(0, set.orphanedSince)) >= OrphanGrace:
				due = append(due, set)
			}
		}
		if len(due) > maxIdleSets {
			m.dropAll(s, due)
		}
	}
}

func (m *Model) dropAll(s *namespaceState, sets []*labelSet) {
	awaited := s.foldTargets()
	sets = slices.DeleteFunc(sets, func(set *labelSet) bool { return awaited[set.labelText()] })
	slices.SortFunc(sets, func(a, b *labelSet) int {
		return cmp.Or(cmp.Compare(b.orphanedSince, a.orphanedSince), cmp.Compare(a.text, b.text))
	})
	for _, set := range sets[min(len(sets), maxIdleSets):] {
		for _, n := range slices.Clone(set.series) {
			if m.config.Store.DropSeries(n.series) {
				m.removeSeries(n.series)
			}
		}
		m.dropEmptySet(set)
	}
}

// DefaultRecommender is the recommender of VPAs that name none.
const DefaultRecommender = convert.DefaultRecommender

// Roster lists the VPAs of one recommender. Its fields are set once. It is safe for concurrent use.
type Roster struct {
	Name       string // name of the recommender
	Namespaces flags.Namespaces
	VPAs       listers.VerticalPodAutoscalerLister // of all recommenders
	Targets    Targets
}

// Targets resolves the targets of VPAs to pod selectors.
type Targets interface {
	Resolve(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error)
	// Recheck makes Resolve read a target again soon.
	Recheck(namespace string, ref *autoscalingv1.CrossVersionObjectReference)
}

// Serves reports whether this recommender serves a VPA.
func (r *Roster) Serves(v *vpav1.VerticalPodAutoscaler) bool {
	if !r.Namespaces.Includes(v.Namespace) {
		return false
	}
	if len(v.Spec.Recommenders) == 0 {
		return r.Name == DefaultRecommender
	}
	return slices.ContainsFunc(v.Spec.Recommenders, func(s *vpav1.VerticalPodAutoscalerRecommenderSelector) bool {
		return s != nil && s.Name == r.Name
	})
}

// Has reports whether a VPA exists and this recommender serves it.
func (r *Roster) Has(namespace, name string) bool {
	object, err := r.VPAs.VerticalPodAutoscalers(namespace).Get(name)
	return err == nil && r.Serves(object)
}

// Observe returns the served VPAs, sorted by namespace and name. It ticks health before each. An
// unresolved target is an error of its VPAs only. Each target is resolved once.
func (r *Roster) Observe(ctx context.Context, health *serving.Health) ([]Observed, error) {
	objects, err := r.VPAs.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(v *vpav1.VerticalPodAutoscaler) bool { return !r.Serves(v) })
	slices.SortFunc(objects, func(a, b *vpav1.VerticalPodAutoscaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	resolve := r.resolveOnce()
	observed := make([]Observed, len(objects))
	for i, object := range objects {
		health.Tick()
		selector, err := resolve(ctx, object.Namespace, object.Spec.TargetRef)
		if problem := convert.UnreadableReason(object); problem != "" {
			selector, err = nil, errors.New(problem)
		}
		observed[i] = Observed{Object: object, Selector: selector, Err: err}
	}
	return observed, nil
}

func (r *Roster) resolveOnce() func(context.Context, string, *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	type reference struct {
		namespace string
		ref       autoscalingv1.CrossVersionObjectReference
	}
	type result struct {
		selector labels.Selector
		err      error
	}
	results := map[reference]result{}
	return func(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
		if ref == nil {
			return r.Targets.Resolve(ctx, namespace, nil)
		}
		key := reference{namespace, *ref}
		found, known := results[key]
		if !known {
			found.selector, found.err = r.Targets.Resolve(ctx, namespace, ref)
			results[key] = found
		}
		return found.selector, found.err
	}
}

// HasUnknown reports whether any served VPA is not in the model yet.
func (r *Roster) HasUnknown(m *Model) bool {
	objects, err := r.VPAs.List(labels.Everything())
	return err == nil && slices.ContainsFunc(objects, func(v *vpav1.VerticalPodAutoscaler) bool {
		return r.Serves(v) && m.Find(v.Namespace, v.Name) == nil
	})
}

const (
	// unreadRetryInterval is the pause between attempts of ObserveRead, and maxUnreadWait its total
	// limit. 10,000 targets take less at 50 requests a second. If only a hanging kind is left, the
	// limit is maxHangWait.
	unreadRetryInterval = 5 * time.Second
	maxUnreadWait       = 10 * time.Minute
	maxHangWait         = 2 * time.Minute
	// maxNamespaceWait is how long one namespace may delay ObserveRead after all others are read.
	maxNamespaceWait = 10 * time.Second
)

// ObserveRead is Observe with retries for at most maxUnreadWait until all targets are read.
func (r *Roster) ObserveRead(ctx context.Context) ([]Observed, error) {
	began := time.Now()
	unread := func(o Observed) bool {
		return errors.Is(o.Err, target.ErrNotRead) && (!errors.Is(o.Err, target.ErrHangs) || time.Since(began) < maxHangWait)
	}
	var lastNamespaceSince time.Time // since when only one namespace has unread targets
	for {
		observed, err := r.Observe(ctx, nil)
		waiting := namespacesOf(observed, unread)
		if err != nil || len(waiting) == 0 || time.Since(began) >= maxUnreadWait {
			return observed, err
		}
		switch all := namespacesOf(observed, func(Observed) bool { return true }); {
		case len(waiting) > 1 || len(all) == 1:
			lastNamespaceSince = time.Time{}
		case lastNamespaceSince.IsZero():
			lastNamespaceSince = time.Now()
		case time.Since(lastNamespaceSince) >= maxNamespaceWait:
			return observed, nil
		}
		select {
		case <-ctx.Done():
			return observed, nil
		case <-time.After(unreadRetryInterval):
		}
	}
}

func namespacesOf(observed []Observed, holds func(Observed) bool) map[string]bool {
	names := map[string]bool{}
	for _, o := range observed {
		if holds(o) {
			names[o.Object.Namespace] = true
		}
	}
	return names
}

// LogTargetErrors logs target errors that are new to the model, and the number of unread targets.
func LogTargetErrors(log klog.Logger, model *Model, observed []Observed) {
	var unread []klog.ObjectRef
	for _, o := range observed {
		switch {
		case o.Err == nil:
			continue
		case errors.Is(o.Err, target.ErrNotRead):
			unread = append(unread, klog.KObj(o.Object))
			continue
		}
		v := model.Find(o.Object.Namespace, o.Object.Name)
		if v == nil || v.TargetError == nil || v.TargetError.Error() != o.Err.Error() {
			log.Info("VPA has no usable target", "vpa", klog.KObj(o.Object), "reason", o.Err.Error())
		}
	}
	if len(unread) > 0 {
		log.Info("Waiting for the API server to read the scale subresources of targets", "vpas", len(unread), "first", unread[0])
	}
}
