package sketch

import (
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

const keptKills = 4

// Kills holds the last four OOM kills.
type Kills [keptKills]kill

type kill struct {
	at      int64 // ns since 1970, 0 = empty
	request resources.Amount
	reached resources.Amount // limit that was hit or, without a limit, the usage
}

func (one kill) coveredBy(o kill) bool {
	return one.at <= o.at && one.request <= o.request && one.reached <= o.reached
}

// add replaces a kill that fresh covers, else the oldest, so that many small kills do not displace
// a large one.
func (k *Kills) add(fresh kill) {
	oldest := 0
	for i := range k {
		if fresh.coveredBy(k[i]) {
			return
		}
		if k[i].at < k[oldest].at {
			oldest = i
		}
	}
	less := slices.IndexFunc(k[:], func(one kill) bool { return one.coveredBy(fresh) })
	switch {
	case less >= 0:
		k[less] = fresh
	case fresh.at > k[oldest].at:
		k[oldest] = fresh
	}
}

// LargestRequest returns the largest request at a kill within an age, or false if there was no
// kill.
func (k *Kills) LargestRequest(now int64, age time.Duration) (resources.Amount, bool) {
	return k.maxOf(now, age, func(one kill) resources.Amount { return one.request })
}

// ReachedMemory returns the highest limit hit, else usage, at a kill within an age, 0 if none.
func (k *Kills) ReachedMemory(now int64, age time.Duration) resources.Amount {
	reached, _ := k.maxOf(now, age, func(one kill) resources.Amount { return one.reached })
	return reached
}

func (k *Kills) maxOf(now int64, age time.Duration, of func(kill) resources.Amount) (most resources.Amount, found bool) {
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
	if r.Empty() { // older images hold requests only
		return
	}
	for i := range k {
		k[i].reached = resources.Amount(r.Within(0, math.MaxInt64))
	}
}

// After a kill, a container is assumed to need killRatio times its memory, and at least killBump
// bytes more. With each further kill soon after, the ratio applies again and the bytes double, up
// to twice the memory or to the first step if that is higher.
const (
	killRatio = 1.2
	killBump  = 16 << 20
	maxKills  = 5
)

// NeededAfterKill returns the assumed need in bytes after kills of a container with had bytes.
func NeededAfterKill(had float64, kills uint8) float64 {
	first := max(killRatio*had, had+killBump)
	ratio, bump := 1.0, float64(killBump)/2
	for range kills {
		ratio, bump = ratio*killRatio, bump*2
	}
	return max(first, min(max(ratio*had, had+bump), 2*had))
}

// ObserveKill records an OOM kill or a memory eviction by the kubelet. request is the request, or the
// usage of an evicted pod, and limit is the limit that was hit, 0 = none.
func (t *Sketch) ObserveKill(at time.Time, request, limit resources.Amount) {
	instant := at.UnixNano()
	t.recordTime(resources.Memory, instant)
	had := float64(max(request, limit))
	need := NeededAfterKill(had, 1)
	if t.Peaks != nil {
		need = t.Peaks.addKill(instant, had)
	}
	if l := t.Load[resources.Memory]; l != nil {
		l.Observe(instant, need)
	}
	if m := t.Models[resources.Memory]; m != nil {
		m.Observe(instant, need)
	}
	if t.Kills != nil {
		t.Kills.add(kill{instant, request, t.memoryAtKill(request, limit)})
	}
}

func (t *Sketch) memoryAtKill(reported, limit resources.Amount) resources.Amount {
	switch hours := t.Hours[resources.Memory]; {
	case limit > 0:
		return limit
	case hours != nil:
		const lately, highest = 30, 1 // minutes and quantile
		return max(reported, resources.FromFloat(hours.Recent(lately, highest)))
	}
	return reported
}

// LimitRatio is the memory limit as a multiple of the request in hundredths: 120 is a limit of 1.2
// times the request. A resize with proportional limits does not change it.
type LimitRatio uint16

// Values that are not a ratio.
const (
	UnknownRatio LimitRatio = 0              // no pod with the container seen yet
	NoLimitRatio LimitRatio = math.MaxUint16 // no limit, or a limit that does not follow the request
)

const equalRatio LimitRatio = 100

// LimitRatioOf returns the ratio of limit to request, 0 = none. A missing request equals the limit.
func LimitRatioOf(request, limit resources.Amount) LimitRatio {
	switch {
	case limit <= 0:
		return NoLimitRatio
	case request <= 0:
		return equalRatio
	}
	ratio := math.Round(float64(equalRatio) * float64(limit) / float64(request))
	return LimitRatio(min(max(ratio, float64(equalRatio)), float64(NoLimitRatio-1)))
}

// Ratio returns the limit as a multiple of the request, and false if there is none.
func (h LimitRatio) Ratio() (float64, bool) {
	return float64(h) / float64(equalRatio), h != UnknownRatio && h != NoLimitRatio
}

// Tighter returns the smaller of two ratios.
func (h LimitRatio) Tighter(o LimitRatio) LimitRatio {
	if h == UnknownRatio || o != UnknownRatio && o < h {
		return o
	}
	return h
}

// SetLimitRatio records the ratio of the current pods if it is needed, and reports whether it
// changed. Without pods the last ratio remains, because new pods use the same template.
func (t *Sketch) SetLimitRatio(h LimitRatio) bool {
	if !t.flags.has(needsLimitRatio) || h == UnknownRatio || h == t.LimitRatio {
		return false
	}
	t.LimitRatio = h
	return true
}

// NeedsDeclared reports whether the container is new and its declared memory request is missing.
func (t *Sketch) NeedsDeclared() bool { return t.declared == 0 && t.isNew() && !t.Peaks.Empty() }

// SetDeclared records the memory request of a new container in bytes, and reports whether it did.
// Only the first counts, because later ones may be recommendations.
func (t *Sketch) SetDeclared(request resources.Amount) bool {
	if request <= 0 || t.declared != 0 || !t.isNew() {
		return false
	}
	t.declared = scales[ram].encode(float64(request))
	return true
}

// Declared returns the declared memory request of a new container, 0 if it is not new or unknown.
func (t *Sketch) Declared() float64 {
	if !t.isNew() {
		return 0
	}
	return scales[ram].decode(t.declared)
}

func (t *Sketch) isNew() bool {
	return t.Peaks != nil && (t.Peaks.Empty() || t.Peaks.Age(t.Now) < time.Duration(t.declaredIn)*time.Minute) && t.declaredIn > 0
}

// addKill records a kill at a memory, and returns the assumed need, which grows faster with each
// kill in the open window. Kills with less memory than the previous need do not count.
func (p *DailyPeaks) addKill(at int64, had float64) (need float64) {
	if at/window > p.running {
		p.kills = 0
	}
	if p.kills == 0 || had >= p.CurrentPeak() {
		p.kills = min(p.kills+1, maxKills)
	}
	need = NeededAfterKill(had, p.kills)
	p.addPeak(at, need)
	return need
}
