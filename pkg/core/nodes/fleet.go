package nodes

import (
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
)

const day = 24 * time.Hour

// Fleet is which pods run, and where in its course each begins.
type Fleet struct {
	Step  time.Duration
	Steps int
	Pods  []Place
}

// Place is a pod: a copy of a course.
type Place struct {
	Course int // its number
	From   int // step of the course at which the pod begins
	Length int // steps after which the course begins again
}

// Copies says how a fleet is made of courses.
type Copies struct {
	Step   time.Duration
	Most   time.Duration // for which the fleet runs, if its longest course is not shorter
	Number int           // of copies of each course, 1 or more
	Seed   uint64        // of the times at which copies begin
}

// bed is all courses of one dataset. They were recorded side by side, so what peaks together
// there must peak together in each copy.
type bed struct {
	start, end int64 // nanoseconds since 1970
	days       int   // whole days that copies may be shifted by; 0 = by any time
	shifts     []int64
}

// NewFleet makes a fleet of the courses with the given numbers, of which some may be there
// several times. The first copy of a dataset begins where its courses do, and the others
// later: by whole days where there are two or more, so that it is the same hour for all, else
// by any time. A course that ends begins again.
func NewFleet(courses []*Course, of []int, c Copies) *Fleet {
	step := int64(c.Step)
	beds, order := bedsOf(courses, of, step)
	longest, dice := int64(0), backtest.Dice(c.Seed)
	for _, name := range order {
		b := beds[name]
		longest = max(longest, b.end-b.start)
		b.shift(c, step, &dice)
	}
	f := &Fleet{Step: c.Step, Steps: int(max(min(int64(c.Most), longest)/step, 1))}
	for copied := range c.Number {
		for _, i := range of {
			one := courses[i]
			b, length := beds[one.Dataset], one.Steps()
			if b.days > 0 && length >= int(day/c.Step) {
				length -= length % int(day/c.Step)
			}
			from := (b.start + b.shifts[copied] - one.Start) / step % int64(length)
			if from < 0 {
				from += int64(length)
			}
			f.Pods = append(f.Pods, Place{i, int(from), length})
		}
	}
	return f
}

// bedsOf returns the datasets of courses, and their names in the order of the courses.
func bedsOf(courses []*Course, of []int, step int64) (beds map[string]*bed, order []string) {
	beds = map[string]*bed{}
	for _, i := range of {
		c := courses[i]
		start, end := c.Start, c.Start+int64(c.Steps())*step
		b := beds[c.Dataset]
		if b == nil {
			b = &bed{start: start, end: end}
			beds[c.Dataset], order = b, append(order, c.Dataset)
		}
		b.start, b.end = min(b.start, start), max(b.end, end)
	}
	for _, b := range beds {
		if midnight := (b.start + int64(day) - 1) / int64(day) * int64(day); b.end-midnight >= 2*int64(day) {
			b.start, b.days = midnight, int((b.end-midnight)/int64(day))
		}
	}
	return beds, order
}

// shift draws when each copy begins: the first where the courses do, and no two at the same
// time as long as there are times left.
func (b *bed) shift(c Copies, step int64, dice *backtest.Dice) {
	unit, times := step, int((b.end-b.start)/step)
	if b.days > 0 {
		unit, times = int64(day), b.days
	}
	order := make([]int, times)
	for i := range order {
		order[i] = i
	}
	for i := times - 1; i > 1; i-- {
		j := 1 + dice.Below(i)
		order[i], order[j] = order[j], order[i]
	}
	for copied := range c.Number {
		b.shifts = append(b.shifts, int64(order[copied%times])*unit)
	}
}
