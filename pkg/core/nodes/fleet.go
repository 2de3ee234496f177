package nodes

import (
	"time"

	"loadline.dev/loadline/pkg/core/backtest"
)

const day = 24 * time.Hour

// Fleet is a set of pods, each with a start in its trace.
type Fleet struct {
	Step  time.Duration
	Steps int
	Pods  []FleetPod
}

// FleetPod is a copy of a trace.
type FleetPod struct {
	Trace  int // index of the trace
	From   int // first step in the trace
	Length int // number of steps after which the trace repeats
}

// FleetOptions holds the parameters of NewFleet.
type FleetOptions struct {
	Step        time.Duration
	MaxDuration time.Duration // maximum duration, the longest trace may be shorter
	Copies      int           // number of copies of each trace, at least 1
	Unaligned   bool          // each container gets its own shift, so that peaks align only by hour of the day
	Seed        uint64        // for the shifts of the copies
}

// dataset is a set of traces recorded together, whose peaks must coincide in each copy too.
type dataset struct {
	start, end int64   // nanoseconds since 1970
	days       int     // number of whole days for shifts, 0 = shifts by any number of steps
	shifts     []int64 // of the copies
}

// NewFleet creates a fleet from the traces with the given indexes, which may repeat. The first copy
// of a dataset begins with its traces. Further copies are shifted: by whole days if the dataset has
// two or more, which keeps the hour of the day, else by any number of steps. A trace repeats after
// its end. Pods are shuffled to separate equal pods with simultaneous peaks.
func NewFleet(courses []*Trace, of []int, c FleetOptions) *Fleet {
	step, dice := int64(c.Step), backtest.Random(c.Seed)
	beds, order := groupDatasets(courses, of, step)
	longest := int64(0)
	for _, name := range order {
		b := beds[name]
		longest = max(longest, b.end-b.start)
		b.shifts = b.drawShifts(c, step, &dice)
	}
	f := &Fleet{Step: c.Step, Steps: int(max(min(int64(c.MaxDuration), longest)/step, 1))}
	for _, i := range of {
		b := beds[courses[i].Dataset]
		shifts := b.shifts
		if c.Unaligned {
			shifts = b.drawShifts(c, step, &dice)
		}
		for _, shift := range shifts {
			f.Pods = append(f.Pods, b.newPod(courses[i], i, shift, step))
		}
	}
	for i := len(f.Pods) - 1; i > 0; i-- {
		j := dice.IntN(i + 1)
		f.Pods[i], f.Pods[j] = f.Pods[j], f.Pods[i]
	}
	return f
}

func (b *dataset) newPod(c *Trace, number int, shift, step int64) FleetPod {
	length := c.Steps()
	if whole := int(int64(day) / step); b.days > 0 && length >= whole {
		length -= length % whole
	}
	from := (b.start + shift - c.Start) / step % int64(length)
	if from < 0 {
		from += int64(length)
	}
	return FleetPod{number, int(from), length}
}

func groupDatasets(courses []*Trace, of []int, step int64) (beds map[string]*dataset, order []string) {
	beds = map[string]*dataset{}
	for _, i := range of {
		c := courses[i]
		start, end := c.Start, c.Start+int64(c.Steps())*step
		b := beds[c.Dataset]
		if b == nil {
			b = &dataset{start: start, end: end}
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

// drawShifts draws the shifts of the copies, 0 first and distinct as long as possible.
func (b *dataset) drawShifts(c FleetOptions, step int64, dice *backtest.Random) (shifts []int64) {
	unit, times := step, int((b.end-b.start)/step)
	if b.days > 0 {
		unit, times = int64(day), b.days
	}
	order := make([]int, times)
	for i := range order {
		order[i] = i
	}
	for i := times - 1; i > 1; i-- {
		j := 1 + dice.IntN(i)
		order[i], order[j] = order[j], order[i]
	}
	for copied := range c.Copies {
		shifts = append(shifts, int64(order[copied%times])*unit)
	}
	return shifts
}
