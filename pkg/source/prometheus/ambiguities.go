package prometheus

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"loadline.dev/loadline/pkg/core/usage"
)

// Ambiguities holds the containers that the readers of one program leave out, and why. The zero
// value has none. All methods are safe for concurrent use, and do nothing on nil.
type Ambiguities struct {
	mu         sync.Mutex
	live, past map[usage.ContainerKey]error
}

// setLive replaces the containers without live usage.
func (a *Ambiguities) setLive(found map[usage.ContainerKey]error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = found
}

// AddPast adds the containers without history.
func (a *Ambiguities) AddPast(d *Distinct) {
	if a == nil || len(d.ambiguous) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.past == nil {
		a.past = map[usage.ContainerKey]error{}
	}
	maps.Copy(a.past, d.ambiguous)
}

// Each visits all containers by name.
func (a *Ambiguities) Each(visit func(c usage.ContainerKey, why error)) {
	if a == nil {
		return
	}
	a.mu.Lock()
	all := map[usage.ContainerKey]error{}
	maps.Copy(all, a.past)
	maps.Copy(all, a.live)
	a.mu.Unlock()
	order := slices.SortedFunc(maps.Keys(all), func(x, y usage.ContainerKey) int {
		return strings.Compare(x.Namespace+"/"+x.Pod+"/"+x.Container, y.Namespace+"/"+y.Pod+"/"+y.Container)
	})
	for _, c := range order {
		visit(c, all[c])
	}
}
