package sketch

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// The points of a week, five minutes each.
const (
	pointWidth   = int64(5 * time.Minute)
	hoursADay    = 24
	pointsAnHour = 12
	pointsADay   = hoursADay * pointsAnHour
	points       = 7 * pointsADay
)

// Points are the uses in each five minutes of a week. In each the pods of a workload count as one: as the pod that uses
// most, or as their mean. The use of a pod is its mean of CPU and its maximum of memory. Make it with newPoints.
//
// They also know the target that was recommended last. A recipe that changes a request by a bounded share at a time
// starts from the requests in force, which follow its own target within minutes: it must know when it changed that.
type Points struct {
	kind    resources.Kind
	mean    bool             // of the pods; else the one that uses most
	uses    [points]uint16   // codes of the scale of the kind; 0 = none; by number, modulo the ring
	running int64            // number of the point that is open, since 1970
	open    []podUse         // of the pods seen in it, by key
	target  resources.Amount // that was recommended last
	since   int64            // when it became this, nanoseconds since 1970; 0 = there is none
	takenAt int64            // number of points that habits were taken of
	habits  Habits           // as they were then
	ordered codes            // the uses that are known, in order; nil = to be put in order
}

// podUse is what a pod used in the open point.
type podUse struct {
	pod        uint64  // key
	sum, count float64 // of CPU: of the samples; of memory: the highest, and 1
}

// anyPod is the key of pods that need no key.
const anyPod = 0

// newPoints returns an empty one. It takes the mean of the pods, or the one that uses most.
func newPoints(k resources.Kind, mean bool) *Points { return &Points{kind: k, mean: mean} }

// Observe takes a use in millicores or bytes of a pod with a name. One older than the open point counts in it.
func (p *Points) Observe(at int64, use float64, pod string) {
	if number := at / pointWidth; number > p.running {
		p.advance(number)
	}
	u := p.of(p.key(pod))
	if p.kind == resources.Memory {
		u.sum, u.count = max(u.sum, use), 1
		return
	}
	u.sum, u.count = u.sum+use, u.count+1
}

// key returns what a pod is known by. The highest of all pods' maxima needs none.
func (p *Points) key(pod string) uint64 {
	if pod == "" || p.kind == resources.Memory && !p.mean {
		return anyPod
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(pod)) // a hash never fails
	return sum.Sum64()
}

// of returns the use of a pod in the open point.
func (p *Points) of(key uint64) *podUse {
	at, found := slices.BinarySearchFunc(p.open, key, func(u podUse, key uint64) int { return cmp.Compare(u.pod, key) })
	if !found {
		p.open = slices.Insert(p.open, at, podUse{pod: key})
	}
	return &p.open[at]
}

// advance completes the open point and opens another one.
func (p *Points) advance(number int64) {
	if code := p.value(); code != 0 {
		p.uses[p.running%points] = code
		p.ordered.insert(code)
	}
	p.open = p.open[:0]
	for gone := p.running + 1; gone <= min(number, p.running+points); gone++ {
		p.ordered.remove(p.uses[gone%points])
	}
	advanceRing(&p.running, number, p.uses[:])
}

// codes are the codes of amounts in ascending order: a larger amount has a larger code. nil is
// an order that is not known, and stays nil.
type codes []uint16

// amounts are the amounts of codes.
type amounts struct {
	*scale
	codes
}

// Len returns their number.
func (a amounts) Len() int { return len(a.codes) }

// At returns the amount of a rank.
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

// inOrder returns the codes of some uses that are known, in order.
func inOrder(uses ...[]uint16) codes {
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

// value returns the code of the open point, 0 if nothing was seen in it.
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

// adapt makes the pods count in one of the two ways. The open point begins anew where that was another one.
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

// Habits returns those of the points that are complete. A week is looked at anew every five minutes, so its order is
// kept, and of the hours of the day only those of the points that came and went are found anew.
func (p *Points) Habits() *Habits {
	if p.takenAt == p.running {
		return &p.habits
	}
	h := &p.habits
	if p.ordered == nil {
		p.ordered, p.takenAt = inOrder(p.uses[:]), 0
	}
	for hour := range h.Hourly {
		if !p.sawHour(hour) {
			continue
		}
		var days [points / pointsADay][]uint16
		for day := range days {
			from := day*pointsADay + hour*pointsAnHour
			days[day] = p.uses[from : from+pointsAnHour]
		}
		uses := inOrder(days[:]...)
		h.Known[hour], h.Hourly[hour] = len(uses) > 0, QuantilesOf(amounts{&scales[p.kind], uses})
	}
	h.Overall = QuantilesOf(amounts{&scales[p.kind], p.ordered})
	h.Judge(len(p.ordered), p.span().Hours()/24)
	p.takenAt = p.running
	return h
}

// sawHour reports whether a point of an hour of the day came or went since the habits were taken.
func (p *Points) sawHour(hour int) bool {
	from := p.takenAt / pointsAnHour // the point that went is one later than that which came, a week ago
	to := p.running / pointsAnHour
	return p.takenAt == 0 || to-from >= hoursADay || (int64(hour)-from%hoursADay+hoursADay)%hoursADay <= to-from
}

// span returns the time from the first point to the last.
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

// merge adds another one of the same kind, where both know a point the higher use.
func (p *Points) merge(o *Points) {
	theirs := o.uses
	switch {
	case o.running > p.running:
		p.advance(o.running)
		p.open = append(p.open, o.open...)
	case o.running == p.running:
		for _, u := range o.open {
			mine := p.of(u.pod)
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
	if o.since > p.since {
		p.target, p.since = o.target, o.since
	}
	p.takenAt, p.ordered = 0, nil
}

// write begins with the sums over all pods: they are what the open point was made of before pods had keys.
func (p *Points) write(w *imageWriter) {
	var all podUse
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
	w.Int(p.since)
}

// mostPods is how many pods a point can be read with.
const mostPods = 1 << 20

func (p *Points) read(r *imageReader) {
	*p = Points{kind: p.kind, mean: p.mean, running: r.Within(0, mostNumber)}
	all := podUse{anyPod, r.Float(), r.Float()}
	r.Scaled(&scales[p.kind], p.uses[:])
	if r.Empty() { // it was written before pods had keys
		if all.count > 0 {
			p.open = []podUse{all}
		}
		return
	}
	for range r.Within(0, mostPods) {
		u := podUse{uint64(r.Int()), r.Float(), r.Float()}
		if n := len(p.open); n > 0 && u.pod <= p.open[n-1].pod {
			r.Fail()
		}
		if r.Err() != nil {
			return
		}
		p.open = append(p.open, u)
	}
	p.target, p.since = resources.Amount(r.Within(0, math.MaxInt64)), r.Within(0, math.MaxInt64)
}

// Recommended takes the target of a kind that is recommended now. Without points nothing is noted.
func (t *Sketch) Recommended(k resources.Kind, target resources.Amount) {
	if p := t.Points[k]; p != nil && (p.since == 0 || p.target != target) {
		p.target, p.since = target, max(t.Now, 1)
	}
}

// Target returns the target of a kind that was recommended last, and for how long it has
// been this; false if there is none, or without points.
func (t *Sketch) Target(k resources.Kind) (target resources.Amount, since time.Duration, known bool) {
	p := t.Points[k]
	if p == nil {
		return 0, 0, false
	}
	return p.target, time.Duration(max(t.Now-p.since, 0)), p.since != 0
}
