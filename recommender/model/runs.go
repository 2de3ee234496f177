package model

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// manySets is how many label sets without pods a namespace keeps that have the same
// label keys, before it looks which of the labels are those of single runs, and how
// many it keeps for longer than Forsaken.
const manySets = 32

// keysText names the label sets that have the same keys.
type keysText string

// batch is what is known of the label sets of a namespace that have the same keys:
// the pods of one workflow, for example, run after run.
type batch struct {
	runKeys []string // whose values come and go with runs
	left    int      // label sets without pods; at most that many, some may have pods again
	look    int      // how many of them make it worth to look again for such keys
	used    bool     // since the last sweep
}

// retireRun folds a label set without pods into that without the labels of single
// runs, where it is known which these are.
func (m *Model) retireRun(set *labelSet) {
	s := set.space
	b := s.batch(set.labels)
	b.used = true
	if keys := m.foldable(s, b.runKeys); len(keys) > 0 && !s.awaits(set) {
		if into := m.fold(set, keys); into != nil {
			m.retire(into)
			return
		}
	}
	if b.left++; b.left >= b.look {
		m.findRuns(s, set.labels, b)
	}
}

// batch returns that of label sets with the keys of a list.
func (s *space) batch(like list) *batch {
	text := like.keys()
	b := s.batches[text]
	if b == nil {
		b = &batch{look: manySets}
		if s.batches == nil || s.batchBytes+len(text) > mostBatchBytes {
			s.batches, s.batchBytes = map[keysText]*batch{}, 0 // what they knew is found again
		}
		s.batches[text] = b
		s.batchBytes += len(text)
	}
	return b
}

// findRuns looks for the labels of single runs among the label sets without pods
// that have the same keys, and folds all of them.
func (m *Model) findRuns(s *space, like list, b *batch) {
	var ended []*labelSet
	awaited := s.awaited()
	for _, set := range s.sets {
		if len(set.pods) == 0 && len(set.series) > 0 && !set.former && set.labels.sameKeys(like) && !awaited[set.plain()] {
			ended = append(ended, set)
		}
	}
	b.left, b.look = len(ended), max(manySets, 2*len(ended))
	if len(ended) < manySets {
		return
	}
	if b.runKeys = runKeys(ended, m.foldable(s, like.keyList())); b.runKeys == nil {
		return
	}
	slices.SortFunc(ended, func(a, b *labelSet) int { return cmp.Compare(a.text, b.text) })
	for _, set := range ended {
		if into := m.fold(set, b.runKeys); into != nil {
			b.left--
			m.retire(into)
		}
	}
}

// runKeys returns those of some keys that tell label sets apart which are many: the
// keys with the most values, until few label sets are left without them. It returns
// nil if no keys make them much fewer.
func runKeys(sets []*labelSet, keys []string) []string {
	values := map[string]int{}
	for _, key := range keys {
		values[key] = distinct(sets, func(set *labelSet) string { return set.labels.Get(key) })
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return values[key] < 2 })
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
	rest := distinctWithout(sets, keys)
	for n := range keys {
		if rest[n] <= manySets/2 {
			return keys[:n+1]
		}
	}
	if len(keys) == 0 || rest[len(keys)-1] > len(sets)/2 {
		return nil
	}
	return keys
}

// distinctWithout returns for each n how many label sets remain without the labels of keys[:n+1].
// All label sets have the same keys. It takes O(label sets * labels): it numbers the label sets by
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

// distinct counts the values that label sets have.
func distinct(sets []*labelSet, value func(*labelSet) string) int {
	seen := map[string]struct{}{}
	for _, set := range sets {
		seen[value(set)] = struct{}{}
	}
	return len(seen)
}

// foldable returns the keys that no VPA of the namespace mentions, and no controller:
// without them the histories of different workloads would become one, also where these
// have no pods now, and a VPA that comes later would find none. It returns none while a
// VPA is there of which it is not known what it mentions.
func (m *Model) foldable(s *space, keys []string) []string {
	if len(keys) == 0 || s.hasUnknownSelector() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return s.selectors.mentions[key] > 0 || m.config.Keys != nil && m.config.Keys.Mention(s.name, key)
	})
}

// hasUnknownSelector reports whether there is a VPA whose selector may not be known.
func (s *space) hasUnknownSelector() bool {
	for _, v := range s.vpas {
		if v.TargetError != nil {
			return true
		}
	}
	return false
}

// awaits reports whether there are pods whose label set will be folded into another
// one when they go, as long as that is there.
func (s *space) awaits(set *labelSet) bool {
	for _, other := range s.sets {
		if len(other.pods) > 0 && len(other.labels) > len(set.labels) && other.labels.lastsAs(set.labels) {
			return true
		}
	}
	return false
}

// awaited returns the texts of all label sets of which awaits says so.
func (s *space) awaited() map[string]bool {
	texts := map[string]bool{}
	for _, set := range s.sets {
		if len(set.pods) > 0 {
			texts[set.labels.without(volatile).String()] = true
		}
	}
	return texts
}

// lastsAs reports whether the labels without the volatile ones are those of another
// list, which has none of these.
func (l list) lastsAs(o list) bool {
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

// sameKeys reports whether two lists have the same keys.
func (l list) sameKeys(o list) bool {
	return slices.EqualFunc(l, o, func(a, b label) bool { return a.key == b.key })
}

// keyList returns the keys.
func (l list) keyList() []string {
	keys := make([]string, len(l))
	for i, x := range l {
		keys[i] = x.key
	}
	return keys
}

// keys returns the text of the keys.
func (l list) keys() keysText { return keysText(strings.Join(l.keyList(), ",")) }

// Forsaken is how long label sets keep their histories that no pod has and no VPA
// selects, where they are many.
const Forsaken = time.Hour

// sweep drops the histories of label sets that have had neither pods nor VPAs for
// as long as Forsaken, counted from the first sweep that found them so. Some of a
// namespace stay until they expire, the latest, because a VPA may come later. So do
// those that pods will be folded into, and all of a namespace where a VPA may select
// them once its target can be read.
func (m *Model) sweep(now time.Time) {
	for _, s := range m.spaces {
		for text, b := range s.batches {
			if !b.used {
				delete(s.batches, text)
				s.batchBytes -= len(text)
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
				set.forsaken = 0
			case set.forsaken == 0:
				set.forsaken = now.UnixNano()
			case now.Sub(time.Unix(0, set.forsaken)) >= Forsaken:
				due = append(due, set)
			}
		}
		if len(due) > manySets {
			m.dropAll(s, due)
		}
	}
}

// dropAll drops label sets without pods, with their histories, but for the latest and
// those that pods will be folded into.
func (m *Model) dropAll(s *space, sets []*labelSet) {
	awaited := s.awaited()
	sets = slices.DeleteFunc(sets, func(set *labelSet) bool { return awaited[set.plain()] })
	slices.SortFunc(sets, func(a, b *labelSet) int {
		return cmp.Or(cmp.Compare(b.forsaken, a.forsaken), cmp.Compare(a.text, b.text))
	})
	for _, set := range sets[min(len(sets), manySets):] {
		for _, n := range slices.Clone(set.series) {
			if m.config.Store.Drop(n.series) {
				m.drop(n.series)
			}
		}
		m.abandon(set)
	}
}
