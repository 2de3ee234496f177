package sketch

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

const (
	pointWidth   = int64(5 * time.Minute)
	hoursADay    = 24
	pointsAnHour = 12
	pointsADay   = hoursADay * pointsAnHour
	points       = 7 * pointsADay
)

// Points holds the usage in each five minutes of a week: the mean CPU or the peak memory of a pod,
// as the mean or the maximum over the pods of a workload. It also holds the last recommended target
// and its time, for recipes that limit changes. The requests in force do not show this time,
// because they follow the target within minutes.
type Points struct {
	kind        resources.Kind
	mean        bool             // of the pods, else the pod with the highest usage
	uses        [points]uint16   // scale codes by point number modulo the ring, 0 = none
	running     int64            // number of the open point since 1970
	open        []podUsage       // pods seen in the open point, ordered by key
	target      resources.Amount // last recommended target
	targetSince int64            // ns since 1970, 0 = no target
	profiledAt  int64            // point number at the last Profile call
	profile     UsageProfile     // result of the last Profile call
	sorted      codes            // known usage in ascending order, nil = not sorted yet
}

type podUsage struct {
	pod        uint64  // key
	sum, count float64 // CPU: of the samples. Memory: the peak, and 1
}

const anyPod = 0

func newPoints(k resources.Kind, mean bool) *Points { return &Points{kind: k, mean: mean} }

// Observe adds a sample of a pod in millicores or bytes. An old sample counts in the open point.
func (p *Points) Observe(at int64, use float64, pod string) {
	if number := at / pointWidth; number > p.running {
		p.advance(number)
	}
	u := p.openUsage(p.key(pod))
	if p.kind == resources.Memory {
		u.sum, u.count = max(u.sum, use), 1
		return
	}
	u.sum, u.count = u.sum+use, u.count+1
}

// key returns the hash of a pod name. The memory peak over all pods needs no keys.
func (p *Points) key(pod string) uint64 {
	if pod == "" || p.kind == resources.Memory && !p.mean {
		return anyPod
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(pod)) // a hash never fails
	return sum.Sum64()
}

func (p *Points) openUsage(key uint64) *podUsage {
	at, found := slices.BinarySearchFunc(p.open, key, func(u podUsage, key uint64) int { return cmp.Compare(u.pod, key) })
	if !found {
		p.open = slices.Insert(p.open, at, podUsage{pod: key})
	}
	return &p.open[at]
}

func (p *Points) advance(number int64) {
	if code := p.value(); code != 0 {
		p.uses[p.running%points] = code
		p.sorted.insert(code)
	}
	p.open = p.open[:0]
	for gone := p.running + 1; gone <= min(number, p.running+points); gone++ {
		p.sorted.remove(p.uses[gone%points])
	}
	advanceRing(&p.running, number, p.uses[:])
}

// codes are scale codes in ascending order. nil means unsorted, and insert keeps it nil.
type codes []uint16

type amounts struct {
	*scale
	codes
}

func (a amounts) Len() int { return len(a.codes) }

func (a amounts) At(rank int) float64 { return a.decode(a.codes[rank]) }

func (c *codes) insert(code uint16) {
	if *c != nil {
		at, _ := slices.BinarySearch(*c, code)
		*c = slices.Insert(*c, at, code)
	}
}

func (c *codes) remove(code uint16) {
	if at, found := slices.BinarySearch(*c, code); found {
		*c = slices.Delete(*c, at, at+1)
	}
}

func sortCodes(uses ...[]uint16) codes {
	all := make(codes, 0, len(uses)*len(uses[0]))
	for _, some := range uses {
		for _, code := range some {
			if code != 0 {
				all = append(all, code)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (p *Points) value() uint16 {
	if len(p.open) == 0 {
		return 0
	}
	highest, sum := 0.0, 0.0
	for _, u := range p.open {
		use := u.sum / max(u.count, 1)
		highest, sum = max(highest, use), sum+use
	}
	if p.mean {
		highest = sum / float64(len(p.open))
	}
	return scales[p.kind].encode(highest)
}

func (p *Points) adapt(k resources.Kind, needed, mean bool) *Points {
	switch {
	case !needed:
		return nil
	case p == nil:
		return newPoints(k, mean)
	case p.mean != mean:
		p.mean, p.open = mean, nil
	}
	return p
}

// Profile returns the usage profile of the complete points. Only changed hours are computed again.
func (p *Points) Profile() *UsageProfile {
	if p.profiledAt == p.running {
		return &p.profile
	}
	h := &p.profile
	if p.sorted == nil {
		p.sorted, p.profiledAt = sortCodes(p.uses[:]), 0
	}
	for hour := range h.Hourly {
		if !p.hourChanged(hour) {
			continue
		}
		var days [points / pointsADay][]uint16
		for day := range days {
			from := day*pointsADay + hour*pointsAnHour
			days[day] = p.uses[from : from+pointsAnHour]
		}
		uses := sortCodes(days[:]...)
		h.Known[hour], h.Hourly[hour] = len(uses) > 0, QuantilesOf(amounts{&scales[p.kind], uses})
	}
	h.Overall = QuantilesOf(amounts{&scales[p.kind], p.sorted})
	h.Assess(len(p.sorted), p.span().Hours()/24)
	p.profiledAt = p.running
	return h
}

func (p *Points) hourChanged(hour int) bool {
	from := p.profiledAt / pointsAnHour // the expired point is one later than the added one, a week ago
	to := p.running / pointsAnHour
	return p.profiledAt == 0 || to-from >= hoursADay || (int64(hour)-from%hoursADay+hoursADay)%hoursADay <= to-from
}

func (p *Points) span() time.Duration {
	first, last := max(p.running-points+1, 0), p.running-1
	for first < last && p.uses[first%points] == 0 {
		first++
	}
	for first < last && p.uses[last%points] == 0 {
		last--
	}
	return time.Duration(max(last-first, 0) * pointWidth)
}

func (p *Points) merge(o *Points) {
	theirs := o.uses
	switch {
	case o.running > p.running:
		p.advance(o.running)
		p.open = append(p.open, o.open...)
	case o.running == p.running:
		for _, u := range o.open {
			mine := p.openUsage(u.pod)
			if p.kind == resources.Memory {
				mine.sum, mine.count = max(mine.sum, u.sum), 1
			} else {
				mine.sum, mine.count = mine.sum+u.sum, mine.count+u.count
			}
		}
	default:
		theirs[o.running%points] = max(theirs[o.running%points], o.value())
	}
	mergeRings(&p.running, p.uses[:], o.running, theirs[:])
	if o.targetSince > p.targetSince {
		p.target, p.targetSince = o.target, o.targetSince
	}
	p.profiledAt, p.sorted = 0, nil
}

// write begins with the sums over all pods, which older versions read as the open point.
func (p *Points) write(w *imageWriter) {
	var all podUsage
	for _, u := range p.open {
		all.sum, all.count = all.sum+u.sum, all.count+u.count
	}
	w.Int(p.running)
	w.Float(all.sum)
	w.Float(all.count)
	w.Codes(p.uses[:])
	w.Int(int64(len(p.open)))
	for _, u := range p.open {
		w.Int(int64(u.pod))
		w.Float(u.sum)
		w.Float(u.count)
	}
	w.Int(int64(p.target))
	w.Int(p.targetSince)
}

const maxPods = 1 << 20

func (p *Points) read(r *imageReader) {
	*p = Points{kind: p.kind, mean: p.mean, running: r.Within(0, maxSlotNumber)}
	all := podUsage{anyPod, r.Float(), r.Float()}
	r.Scaled(&scales[p.kind], p.uses[:])
	if r.Empty() { // older images have no pod keys
		if all.count > 0 {
			p.open = []podUsage{all}
		}
		return
	}
	for range r.Within(0, maxPods) {
		u := podUsage{uint64(r.Int()), r.Float(), r.Float()}
		if n := len(p.open); n > 0 && u.pod <= p.open[n-1].pod {
			r.Fail()
		}
		if r.Err() != nil {
			return
		}
		p.open = append(p.open, u)
	}
	p.target, p.targetSince = resources.Amount(r.Within(0, math.MaxInt64)), r.Within(0, math.MaxInt64)
}

// SetTarget records a new recommended target of a resource. Without points it does nothing.
func (t *Sketch) SetTarget(k resources.Kind, target resources.Amount) {
	if p := t.Points[k]; p != nil && (p.targetSince == 0 || p.target != target) {
		p.target, p.targetSince = target, max(t.Now, 1)
	}
}

// Target returns the last recommended target of a resource and its age, or false if there is none.
func (t *Sketch) Target(k resources.Kind) (target resources.Amount, since time.Duration, known bool) {
	p := t.Points[k]
	if p == nil {
		return 0, 0, false
	}
	return p.target, time.Duration(max(t.Now-p.targetSince, 0)), p.targetSince != 0
}
