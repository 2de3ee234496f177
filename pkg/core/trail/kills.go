package trail

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/trail/ring"
)

// keptKills is how many kills are remembered.
const keptKills = 4

// Kills are the last kills, with the requests at them.
type Kills struct {
	at      [keptKills]int64 // 0 = none
	request [keptKills]amount.Amount
}

// add keeps a kill in the place of the oldest, if it is newer.
func (k *Kills) add(at int64, request amount.Amount) {
	oldest := 0
	for i := range k.at {
		if k.at[i] < k.at[oldest] {
			oldest = i
		}
	}
	if at > k.at[oldest] {
		k.at[oldest], k.request[oldest] = at, request
	}
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

func (k *Kills) merge(o *Kills) {
	for i, at := range o.at {
		if at != 0 {
			k.add(at, o.request[i])
		}
	}
}

func (k *Kills) write(w *ring.Writer) {
	for i := range k.at {
		w.Int(k.at[i])
		w.Int(int64(k.request[i]))
	}
}

func (k *Kills) read(r *ring.Reader) {
	for i := range k.at {
		k.at[i] = r.Within(0, math.MaxInt64)
		k.request[i] = amount.Amount(r.Within(0, math.MaxInt64))
	}
}
