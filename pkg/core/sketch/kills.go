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

// within reports whether another kill is as new and as large.
func (one kill) within(o kill) bool {
	return one.at <= o.at && one.request <= o.request && one.reached <= o.reached
}

// add keeps a kill, in the place of one that says no more, else of the oldest. Many small ones do not hide a large one.
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

// Largest returns the largest request at a kill that is not older than an age, or false if there was none.
func (k *Kills) Largest(now int64, age time.Duration) (resources.Amount, bool) {
	return k.most(now, age, func(one kill) resources.Amount { return one.request })
}

// Reached returns the most memory at which a kill happened that is not older than an age:
// the limit that was hit, else the use; 0 if there was none.
func (k *Kills) Reached(now int64, age time.Duration) resources.Amount {
	reached, _ := k.most(now, age, func(one kill) resources.Amount { return one.reached })
	return reached
}

func (k *Kills) most(now int64, age time.Duration, of func(kill) resources.Amount) (most resources.Amount, found bool) {
	for _, one := range k {
		if one.at != 0 && now-one.at <= int64(age) {
			most, found = max(most, of(one)), true
		}
	}
	return most, found
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

// After a kill a container is taken to need this multiple of what it had, and at least so many bytes more. With each
// further kill that comes soon the multiple applies once more and the bytes double, up to twice of what it had or, if
// that is more, the first step.
const (
	killRatio = 1.2
	killBump  = 16 << 20
	mostKills = 5
)

// NeededAfterKill returns what a container that had so many bytes at most is taken to need after a
// number of kills, from 1 on.
func NeededAfterKill(had float64, kills uint8) float64 {
	first := max(killRatio*had, had+killBump)
	ratio, bump := 1.0, float64(killBump)/2
	for range kills {
		ratio, bump = ratio*killRatio, bump*2
	}
	return max(first, min(max(ratio*had, had+bump), 2*had))
}

// Killed takes a kill for want of memory: what was requested, or used where the kubelet
// evicted the pod, and the limit that was hit, 0 = none.
func (t *Sketch) Killed(at time.Time, request, limit resources.Amount) {
	instant := at.UnixNano()
	t.saw(resources.Memory, instant)
	had := float64(max(request, limit))
	need := NeededAfterKill(had, 1)
	if t.Peaks != nil {
		need = t.Peaks.kill(instant, had)
	}
	if l := t.Load[resources.Memory]; l != nil {
		l.Observe(instant, need)
	}
	if m := t.Models[resources.Memory]; m != nil {
		m.Observe(instant, need)
	}
	if t.Kills != nil {
		t.Kills.add(kill{instant, request, t.reached(request, limit)})
	}
}

// reached returns the memory at which a container was killed: its limit or, without one,
// the most that was seen of it lately, but no less than the report says.
func (t *Sketch) reached(reported, limit resources.Amount) resources.Amount {
	switch hours := t.Hours[resources.Memory]; {
	case limit > 0:
		return limit
	case hours != nil:
		const lately, highest = 30, 1 // minutes, and the quantile of them
		return max(reported, resources.FromFloat(hours.Recent(lately, highest)))
	}
	return reported
}

// LimitRatio is the memory limit of a container as a multiple of its request, in hundredths: 120 is a limit of 1.2
// times the request. A resize that keeps limits in proportion does not change it.
type LimitRatio uint16

// Values that are no ratio.
const (
	Unseen LimitRatio = 0              // no pod that has the container was seen yet
	Free   LimitRatio = math.MaxUint16 // no limit follows the request: there is none, or resizes leave it as it is
)

const equal LimitRatio = 100

// LimitRatioOf returns the ratio of a limit to a request, both in bytes, 0 = none. A
// container with a limit and no request has a request of the same size.
func LimitRatioOf(request, limit resources.Amount) LimitRatio {
	switch {
	case limit <= 0:
		return Free
	case request <= 0:
		return equal
	}
	ratio := math.Round(float64(equal) * float64(limit) / float64(request))
	return LimitRatio(min(max(ratio, float64(equal)), float64(Free-1)))
}

// Ratio returns the limit as a multiple of the request, and false if there is none.
func (h LimitRatio) Ratio() (float64, bool) {
	return float64(h) / float64(equal), h != Unseen && h != Free
}

// Tighter returns the smaller of two ratios.
func (h LimitRatio) Tighter(o LimitRatio) LimitRatio {
	if h == Unseen || o != Unseen && o < h {
		return o
	}
	return h
}

// Limited notes the limit ratio that the pods have now, and reports whether it changed. While there are no pods, that
// of the last ones stays: others of the same template will come. Where the recipe does not need it nothing is noted.
func (t *Sketch) Limited(h LimitRatio) bool {
	if !t.flags.has(limited) || h == Unseen || h == t.LimitRatio {
		return false
	}
	t.LimitRatio = h
	return true
}

// Undeclared reports whether the container is new, so that its memory request matters, and nothing is known of that.
func (t *Sketch) Undeclared() bool { return t.declared == 0 && t.new() && !t.Peaks.Empty() }

// Declare takes the memory request of a container, in bytes, and reports whether it matters.
// The first counts: later ones may be recommendations.
func (t *Sketch) Declare(request resources.Amount) bool {
	if request <= 0 || t.declared != 0 || !t.new() {
		return false
	}
	t.declared = scales[ram].encode(float64(request))
	return true
}

// Declared returns the memory request of a container that is new, and 0 for others or if it is not known.
func (t *Sketch) Declared() float64 {
	if !t.new() {
		return 0
	}
	return scales[ram].decode(t.declared)
}

func (t *Sketch) new() bool {
	return t.Peaks != nil && (t.Peaks.Empty() || t.Peaks.Age(t.Now) < time.Duration(t.declaredIn)*time.Minute) && t.declaredIn > 0
}

// kill takes a kill of a container that had an amount, and returns what it is taken to
// need from then on. That grows faster with each kill in the open window, but not
// where the container did not even have what it was taken to need before.
func (p *DailyPeaks) kill(at int64, had float64) (need float64) {
	if at/window > p.running {
		p.kills = 0
	}
	if p.kills == 0 || had >= p.Running() {
		p.kills = min(p.kills+1, mostKills)
	}
	need = NeededAfterKill(had, p.kills)
	p.peak(at, need)
	return need
}
