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
	Apart  bool          // each container of a copy begins at a time of its own, so that nothing peaks together but by the hour
	Seed   uint64        // of the times at which copies begin
}

// bed is all courses of one dataset. They were recorded side by side, so what peaks together
// there must peak together in each copy.
type bed struct {
	start, end int64   // nanoseconds since 1970
	days       int     // whole days that copies may be shifted by; 0 = by any time
	shifts     []int64 // of the copies
}

// NewFleet makes a fleet of the courses with the given numbers, of which some may be there several times. The first
// copy of a dataset begins where its courses do, and the others later: by whole days where there are two or more, so
// that it is the same hour for all, else by any time. A course that ends begins again. The pods are in a drawn order,
// so that of those that are alike the ones that peak together do not stand side by side.
func NewFleet(courses []*Course, of []int, c Copies) *Fleet {
	step, dice := int64(c.Step), backtest.Dice(c.Seed)
	beds, order := bedsOf(courses, of, step)
	longest := int64(0)
	for _, name := range order {
		b := beds[name]
		longest = max(longest, b.end-b.start)
		b.shifts = b.shift(c, step, &dice)
	}
	f := &Fleet{Step: c.Step, Steps: int(max(min(int64(c.Most), longest)/step, 1))}
	for _, i := range of {
		b := beds[courses[i].Dataset]
		shifts := b.shifts
		if c.Apart {
			shifts = b.shift(c, step, &dice)
		}
		for _, shift := range shifts {
			f.Pods = append(f.Pods, b.begin(courses[i], i, shift, step))
		}
	}
	for i := len(f.Pods) - 1; i > 0; i-- {
		j := dice.Below(i + 1)
		f.Pods[i], f.Pods[j] = f.Pods[j], f.Pods[i]
	}
	return f
}

// begin returns the copy of a course that begins some time after the dataset.
func (b *bed) begin(c *Course, number int, shift, step int64) Place {
	length := c.Steps()
	if whole := int(int64(day) / step); b.days > 0 && length >= whole {
		length -= length % whole
	}
	from := (b.start + shift - c.Start) / step % int64(length)
	if from < 0 {
		from += int64(length)
	}
	return Place{number, int(from), length}
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

// shift draws when each copy begins: the first with the dataset, and no two at the same time as
// long as there are times left.
func (b *bed) shift(c Copies, step int64, dice *backtest.Dice) (shifts []int64) {
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
		shifts = append(shifts, int64(order[copied%times])*unit)
	}
	return shifts
}
