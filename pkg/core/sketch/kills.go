package sketch

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// keptKills is how many kills are remembered.
const keptKills = 4

// Kills are the last kills.
type Kills [keptKills]kill

// kill is what is known of one.
type kill struct {
	at      int64            // 0 = there is none
	request resources.Amount // of the container
	reached resources.Amount // memory: the limit that it hit or, without one, its use
}

// within reports whether another kill is as new and tells of as much.
func (one kill) within(o kill) bool {
	return one.at <= o.at && one.request <= o.request && one.reached <= o.reached
}

// add keeps a kill, in the place of one that says no more, else of the oldest. Many small
// ones do not hide a large one.
func (k *Kills) add(fresh kill) {
	oldest := 0
	for i := range k {
		if fresh.within(k[i]) {
			return
		}
		if k[i].at < k[oldest].at {
			oldest = i
		}
	}
	less := slices.IndexFunc(k[:], func(one kill) bool { return one.within(fresh) })
	switch {
	case less >= 0:
		k[less] = fresh
	case fresh.at > k[oldest].at:
		k[oldest] = fresh
	}
}

// Largest returns the largest request at a kill that is not older than an age, or
// false if there was none.
func (k *Kills) Largest(now int64, age time.Duration) (resources.Amount, bool) {
	largest, found := resources.Amount(0), false
	for _, one := range k {
		if one.at != 0 && now-one.at <= int64(age) {
			largest, found = max(largest, one.request), true
		}
	}
	return largest, found
}

// Reached returns the most memory that a kill which is not older than an age tells of: the
// limit that was hit, else the use; 0 if there was none.
func (k *Kills) Reached(now int64, age time.Duration) resources.Amount {
	most := resources.Amount(0)
	for _, one := range k {
		if one.at != 0 && now-one.at <= int64(age) {
			most = max(most, one.reached)
		}
	}
	return most
}

func (k *Kills) merge(o *Kills) {
	for _, one := range o {
		if one.at != 0 {
			k.add(one)
		}
	}
}

func (k *Kills) write(w *imageWriter) {
	for _, one := range k {
		w.Int(one.at)
		w.Int(int64(one.request))
	}
	for _, one := range k {
		w.Int(int64(one.reached))
	}
}

func (k *Kills) read(r *imageReader) {
	for i := range k {
		k[i].at = r.Within(0, math.MaxInt64)
		k[i].request = resources.Amount(r.Within(0, math.MaxInt64))
		k[i].reached = k[i].request
	}
	if r.Empty() { // it was written when requests were all that was known
		return
	}
	for i := range k {
		k[i].reached = resources.Amount(r.Within(0, math.MaxInt64))
	}
}
