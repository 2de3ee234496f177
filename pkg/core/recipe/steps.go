package recipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
)

// Factor multiplies.
func Factor(f float64) Step {
	return Step{Name: fmt.Sprintf("x %g", f), Apply: func(_ Subject, in float64) float64 { return in * f }}
}

// Enlarged adds a fraction, without rounding.
func Enlarged(f float64) Step {
	return Step{Name: fmt.Sprintf("margin %g", f), Apply: func(_ Subject, in float64) float64 { return in * (1 + f) }}
}

// Up rounds up to whole amounts after a step.
func Up(s Step) Step {
	return Step{Name: s.Name, Says: s.Says, Apply: func(subject Subject, in float64) float64 { return math.Ceil(s.Apply(subject, in)) }}
}

// AtLeast raises to an amount.
func AtLeast(least float64) Step {
	return Step{Name: fmt.Sprintf("at least %g", least), Apply: func(_ Subject, in float64) float64 { return max(in, least) }}
}

// Range keeps the amount within two others.
func Range(least, most float64) Step {
	return Step{Name: fmt.Sprintf("from %g to %g", least, most), Apply: func(_ Subject, in float64) float64 {
		return min(max(in, least), most)
	}}
}

// Level begins a chain: a share of a slow (0) or a fast (1) memory.
func Level(shape *sketch.LoadShape, i int) Step {
	return Step{Name: shape.Name(i), Apply: func(s Subject, _ float64) float64 { return s.Sketch.Load[shape.Kind()].Level(i, s.Sketch.Now) }}
}

// OrLevel takes it where it is larger.
func OrLevel(shape *sketch.LoadShape, i int) Step {
	return Step{Name: "or " + shape.Name(i), Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Load[shape.Kind()].Level(i, s.Sketch.Now))
	}}
}

// LastHour raises to the highest level of the last hour.
func LastHour(k resources.Kind) Step {
	return Step{Name: "highest of the last hour", Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Load[k].Hour()) }}
}

// The bounds of recipes that have none of their own: a request below lower x
// target or above upper x target is changed at once.
var (
	lower = [resources.Kinds]float64{0.85, 0.95}
	upper = [resources.Kinds]float64{1.5, 1.3}
)

// around gives a recipe bounds that follow its target.
func around(r *Recipe, lower, upper [resources.Kinds]float64) {
	for k := range resources.Kind(resources.Kinds) {
		r.Lower[k] = Chain{FromTarget(k), Factor(lower[k]), Floor(k)}
		r.Upper[k] = Chain{FromTarget(k), Factor(upper[k])}
	}
}

// FromTarget begins a chain for a bound: the target.
func FromTarget(k resources.Kind) Step {
	return Step{Name: "target", Apply: func(s Subject, _ float64) float64 { return float64(s.Target.Value(k)) }}
}

// Fixed is the part of a margin of memory that does not depend on use: a fraction, or what ByLimit returns.
type Fixed float64

// ByLimit is the fixed part that the limit of the container asks for.
func ByLimit() Fixed { return Fixed(math.NaN()) }

// FollowsLimit reports whether it is what ByLimit returns.
func (f Fixed) FollowsLimit() bool { return math.IsNaN(float64(f)) }

// The usual fixed part is enough where the limit is roomy, where none follows the request, and where nobody has seen
// it. It grows straight to that where both are equal. Why these numbers: lab/docs/recipe-design.md.
const (
	usual = 0.10
	tight = 0.20 // where limit and request are equal
	roomy = 1.2  // least limit for the usual one, as a multiple of the request
)

// asks returns the fixed part for the ratio of a limit to its request.
func asks(h sketch.LimitRatio) float64 {
	ratio, some := h.Ratio()
	if !some || ratio >= roomy {
		return usual
	}
	return tight - (tight-usual)*max(ratio-1, 0)/(roomy-1)
}

// of returns the fraction for a subject.
func (f Fixed) of(s Subject) float64 {
	if f.FollowsLimit() {
		return asks(s.Sketch.LimitRatio)
	}
	return float64(f)
}

// says writes it for people.
func (f Fixed) says(s Subject) string {
	if !f.FollowsLimit() {
		return fmt.Sprintf("%g", float64(f))
	}
	why := "the limit is not known yet"
	if ratio, some := s.Sketch.LimitRatio.Ratio(); some {
		why = fmt.Sprintf("limit %g x request", ratio)
	} else if s.Sketch.LimitRatio == sketch.Free {
		why = "no limit follows the request"
	}
	return fmt.Sprintf("%.3g (%s)", f.of(s), why)
}

// overDay is what the memory request that follows use has above the highest use of the last day, as a fraction.
const overDay = 0.10

// wholeDay is how long a container must have been seen before its request follows: before, the
// highest use of a day is not known.
const wholeDay = 24 * time.Hour

// follow makes the memory request of a recipe follow use, and what was its target what the limit protects.
func (l *loadline) follow(r *Recipe) {
	protects := r.Target[resources.Memory]
	r.SeparateMemoryLimit = true
	r.Upper[resources.Memory] = protects
	r.Target[resources.Memory] = append(slices.Clone(protects), Following(overDay, max(wholeDay, hours(l.declaredHours))), Floor(resources.Memory))
}

// Following lowers what a limit protects to the highest use of the last day and a margin, for
// the request. Where the request must stay with the limit, because they are equal or because
// the limit was not seen yet, and for the first time, it stays.
func Following(margin float64, first time.Duration) Step {
	usual := fmt.Sprintf("highest of the last day + %g, if that is less", margin)
	says := func(s Subject) string {
		if why := stays(s, first); why != "" {
			return "the same for the request, as " + why
		}
		return usual
	}
	return Step{Name: usual, Says: says, Apply: func(s Subject, in float64) float64 {
		if stays(s, first) != "" {
			return in
		}
		return min(in, s.Sketch.Peaks.Day()*(1+margin))
	}}
}

// stays says why the memory request does not follow use; empty: it does.
func stays(s Subject, first time.Duration) string {
	ratio, some := s.Sketch.LimitRatio.Ratio()
	switch {
	case some && ratio <= 1:
		return "limit and request are equal"
	case s.Sketch.LimitRatio == sketch.Unseen:
		return "the limit is not known yet"
	case s.Sketch.Peaks.Age(s.Sketch.Now) < first:
		return fmt.Sprintf("less than %g hours were seen", first.Hours())
	}
	return ""
}

// MachineShape is a size that machines are offered in, or containers made of.
type MachineShape struct {
	CPU    resources.Amount // millicores
	Memory resources.Amount // bytes
}

// ParseShapes reads a list such as "0.25c0.5g,1c4g": cores and GiB.
func ParseShapes(text string) ([]MachineShape, error) {
	var shapes []MachineShape
	for item := range strings.SplitSeq(text, ",") {
		cores, rest, found := strings.Cut(strings.TrimSpace(item), "c")
		gib, end, closed := strings.Cut(rest, "g")
		cpu, err1 := strconv.ParseFloat(cores, 64)
		memory, err2 := strconv.ParseFloat(gib, 64)
		if !found || !closed || end != "" || err1 != nil || err2 != nil || !(cpu > 0) || !(memory > 0) || math.IsInf(cpu, 0) || math.IsInf(memory, 0) {
			return nil, fmt.Errorf("shape %q: must be cores and GiB, as 0.5c1g", item)
		}
		shapes = append(shapes, MachineShape{resources.FromFloat(cpu * 1000), resources.FromFloat(memory * (1 << 30))})
	}
	slices.SortFunc(shapes, func(a, b MachineShape) int { return cmp.Or(cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Memory, b.Memory)) })
	return shapes, nil
}

// DefaultShapes are those that Crane knows.
func DefaultShapes() []MachineShape {
	shapes, err := ParseShapes("0.25c0.25g,0.25c0.5g,0.25c1g,0.5c0.5g,0.5c1g,1c1g,1c2g,1c4g,1c8g,2c2g,2c4g,2c8g,2c16g,4c4g,4c8g,4c16g,4c32g," +
		"8c8g,8c16g,8c32g,8c64g,16c32g,16c64g,16c128g,32c64g,32c128g,32c256g,64c128g,64c256g")
	if err != nil {
		panic(err) // it is a constant
	}
	return shapes
}

// Smallest returns the first of ordered shapes that has room for both amounts, or false if none has.
func Smallest(shapes []MachineShape, cpu, memory resources.Amount) (MachineShape, bool) {
	i := slices.IndexFunc(shapes, func(s MachineShape) bool { return s.CPU >= cpu && s.Memory >= memory })
	if i < 0 {
		return MachineShape{}, false
	}
	return shapes[i], true
}

// ToShape rounds up to the smallest shape that has room for what the chains of
// both kinds give. Without one the amount stays.
func ToShape(k resources.Kind, shapes []MachineShape, both [resources.Kinds]Chain) Step {
	return Step{Name: "smallest shape", Apply: func(s Subject, in float64) float64 {
		shape, ok := Smallest(shapes, both[resources.CPU].Run(s, nil), both[resources.Memory].Run(s, nil))
		if !ok {
			return in
		}
		return float64([resources.Kinds]resources.Amount{shape.CPU, shape.Memory}[k])
	}}
}
