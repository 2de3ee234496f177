package trail

import (
	"time"

	"loadline.dev/loadline/pkg/core/amount"
)

// Needs says what a recipe wants to know.
type Needs struct {
	Peaks    bool       // of memory
	Load     *LoadShape // of CPU; nil = none
	Points   bool       // of both kinds
	Hours    bool       // of both kinds
	Weighted *WeightedShape
}

// Any tells whether anything is needed.
func (n Needs) Any() bool { return n != Needs{} }

// Trail is what was needed, filled. What was not is nil.
type Trail struct {
	Peaks    *Peaks
	Load     *Load
	Points   [amount.Kinds]*Points
	Hours    [amount.Kinds]*Hours
	Weighted [amount.Kinds]*Weighted
	Kills    Kills
	Now      int64 // nanoseconds since 1970: when it is read, or was written last
}

// New returns an empty trail.
func New(n Needs) *Trail {
	t := &Trail{}
	if n.Peaks {
		t.Peaks = &Peaks{}
	}
	if n.Load != nil {
		t.Load = NewLoad(n.Load)
	}
	for k := range amount.Kinds {
		if n.Points {
			t.Points[k] = NewPoints(amount.Kind(k))
		}
		if n.Hours {
			t.Hours[k] = &Hours{}
		}
		if n.Weighted != nil {
			t.Weighted[k] = NewWeighted(n.Weighted, amount.Kind(k))
		}
	}
	return t
}

// clipped is the share of its limit from which on CPU use says only that more
// was wanted, and censored what it is taken for, as a multiple of the limit.
// Otherwise a container that is held down would look as if it needed no more.
const clipped, censored = 0.98, 2

// Observe takes the use of a kind at an instant, in millicores or bytes; limit is
// what it could have at most, 0 = no limit.
func (t *Trail) Observe(at time.Time, k amount.Kind, use, limit amount.Amount) {
	instant, value := at.UnixNano(), float64(use)
	t.Now = max(t.Now, instant)
	if k == amount.Memory && t.Peaks != nil {
		t.Peaks.Observe(instant, value)
	}
	if k == amount.CPU && t.Load != nil {
		weighed := value
		if limit > 0 && value >= clipped*float64(limit) {
			weighed = censored * float64(limit)
		}
		t.Load.Observe(instant, weighed)
	}
	if p := t.Points[k]; p != nil {
		p.Observe(instant, value)
	}
	if h := t.Hours[k]; h != nil {
		h.Observe(instant, value)
	}
	if w := t.Weighted[k]; w != nil {
		w.Observe(instant, value)
	}
}

// Killed takes a kill for want of memory: what was requested, and the limit that
// was hit, 0 = none.
func (t *Trail) Killed(at time.Time, request, limit amount.Amount) {
	instant := at.UnixNano()
	t.Now = max(t.Now, instant)
	had := max(request, limit)
	if t.Peaks != nil {
		t.Peaks.Observe(instant, needed(float64(had)))
	}
	t.Kills.add(instant, request)
}

// After a kill a container is taken to need this multiple of what it had, and at
// least so many bytes more.
const (
	killRatio = 1.2
	killBump  = 16 << 20
)

func needed(had float64) float64 { return max(killRatio*had, had+killBump) }

// keptKills is how many kills are remembered.
const keptKills = 4

// Kills are the last kills, with the requests at them.
type Kills struct {
	at      [keptKills]int64 // 0 = none
	request [keptKills]amount.Amount
}

// add keeps a kill in the place of the oldest.
func (k *Kills) add(at int64, request amount.Amount) {
	oldest := 0
	for i := range k.at {
		if k.at[i] < k.at[oldest] {
			oldest = i
		}
	}
	k.at[oldest], k.request[oldest] = at, request
}

// Largest returns the largest request at a kill that is not older than an age, or
// false if there was none.
func (k *Kills) Largest(now int64, age time.Duration) (amount.Amount, bool) {
	largest, found := amount.Amount(0), false
	for i, at := range k.at {
		if at != 0 && now-at <= int64(age) {
			largest, found = max(largest, k.request[i]), true
		}
	}
	return largest, found
}
