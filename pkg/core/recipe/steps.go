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

// Factor multiplies the amount.
func Factor(f float64) Step {
	return Step{Name: fmt.Sprintf("x %g", f), Apply: func(_ Subject, in float64) float64 { return in * f }}
}

// AddFraction adds a fraction without rounding.
func AddFraction(f float64) Step {
	return Step{Name: fmt.Sprintf("margin %g", f), Apply: func(_ Subject, in float64) float64 { return in * (1 + f) }}
}

// RoundUp rounds up to a whole amount after a step.
func RoundUp(s Step) Step {
	return Step{Name: s.Name, Describe: s.Describe, Apply: func(subject Subject, in float64) float64 { return math.Ceil(s.Apply(subject, in)) }}
}

// AtLeast raises the amount to a minimum.
func AtLeast(least float64) Step {
	return Step{Name: fmt.Sprintf("at least %g", least), Apply: func(_ Subject, in float64) float64 { return max(in, least) }}
}

// Range limits the amount to a range.
func Range(least, most float64) Step {
	return Step{Name: fmt.Sprintf("from %g to %g", least, most), Apply: func(_ Subject, in float64) float64 {
		return min(max(in, least), most)
	}}
}

// Level begins a chain with a level of the slow (0) or the fast (1) histogram.
func Level(shape *sketch.LoadShape, i int) Step {
	return Step{Name: shape.Name(i), Apply: func(s Subject, _ float64) float64 { return s.Sketch.Load[shape.Kind()].Level(i, s.Sketch.Now) }}
}

// OrLevel raises the amount to a level.
func OrLevel(shape *sketch.LoadShape, i int) Step {
	return Step{Name: "or " + shape.Name(i), Apply: func(s Subject, in float64) float64 {
		return max(in, s.Sketch.Load[shape.Kind()].Level(i, s.Sketch.Now))
	}}
}

// LastHour raises the amount to the highest level of the last hour.
func LastHour(k resources.Kind) Step {
	return Step{Name: "highest of the last hour", Apply: func(s Subject, in float64) float64 { return max(in, s.Sketch.Load[k].Hour()) }}
}

// Default bounds. A request below lower x target or above upper x target is changed at once.
var (
	defaultLower = [resources.Kinds]float64{0.85, 0.95}
	defaultUpper = [resources.Kinds]float64{1.5, 1.3}
)

func setDefaultBounds(r *Recipe, lower, upper [resources.Kinds]float64) {
	for k := range resources.Kind(resources.Kinds) {
		r.Lower[k] = Chain{FromTarget(k), Factor(lower[k]), Floor(k)}
		r.Upper[k] = Chain{FromTarget(k), Factor(upper[k])}
	}
}

// FromTarget begins a bound chain with the target.
func FromTarget(k resources.Kind) Step {
	return Step{Name: "target", Apply: func(s Subject, _ float64) float64 { return float64(s.Target.Value(k)) }}
}

// FixedMargin is the part of a memory margin that does not depend on usage: a fraction, or ByLimit.
type FixedMargin float64

// ByLimit returns a margin that depends on the limit of the container.
func ByLimit() FixedMargin { return FixedMargin(math.NaN()) }

// FollowsLimit reports whether the margin is ByLimit.
func (f FixedMargin) FollowsLimit() bool { return math.IsNaN(float64(f)) }

// The default margin applies with a roomy limit, with a limit that does not follow the request, and
// with an unknown limit. Below roomyRatio the margin grows linearly up to tightMargin. For the
// numbers see lab/docs/recipe-design.md.
const (
	defaultMargin = 0.10
	tightMargin   = 0.20 // limit equal to the request
	roomyRatio    = 1.2  // minimum ratio of limit to request for the default margin
)

func marginForLimit(h sketch.LimitRatio) float64 {
	ratio, some := h.Ratio()
	if !some || ratio >= roomyRatio {
		return defaultMargin
	}
	return tightMargin - (tightMargin-defaultMargin)*max(ratio-1, 0)/(roomyRatio-1)
}

func (f FixedMargin) fraction(s Subject) float64 {
	if f.FollowsLimit() {
		return marginForLimit(s.Sketch.LimitRatio)
	}
	return float64(f)
}

func (f FixedMargin) describe(s Subject) string {
	if !f.FollowsLimit() {
		return fmt.Sprintf("%g", float64(f))
	}
	why := "the limit is not known yet"
	if ratio, some := s.Sketch.LimitRatio.Ratio(); some {
		why = fmt.Sprintf("limit %g x request", ratio)
	} else if s.Sketch.LimitRatio == sketch.NoLimitRatio {
		why = "no limit follows the request"
	}
	return fmt.Sprintf("%.3g (%s)", f.fraction(s), why)
}

// Margin over the peak of the last day, as a fraction.
const followMargin = 0.10

// A younger container has no complete daily peak.
const minFollowAge = 24 * time.Hour

// follow makes the memory request follow usage, and turns the former target into the limit.
func (l *loadline) follow(r *Recipe) {
	protects := r.Target[resources.Memory]
	r.SeparateMemoryLimit = true
	r.Upper[resources.Memory] = protects
	r.Target[resources.Memory] = append(slices.Clone(protects), Following(followMargin, max(minFollowAge, hours(l.declaredHours))), Floor(resources.Memory))
}

// Following lowers the request from the limit to the peak of the last day plus a margin, unless
// limit and request are equal, the limit is unknown, or the container is younger than first.
func Following(margin float64, first time.Duration) Step {
	usual := fmt.Sprintf("highest of the last day + %g, if that is less", margin)
	says := func(s Subject) string {
		if why := followBlocker(s, first); why != "" {
			return "the same for the request, as " + why
		}
		return usual
	}
	return Step{Name: usual, Describe: says, Apply: func(s Subject, in float64) float64 {
		if followBlocker(s, first) != "" {
			return in
		}
		return min(in, s.Sketch.Peaks.LastDayPeak()*(1+margin))
	}}
}

func followBlocker(s Subject, first time.Duration) string {
	ratio, some := s.Sketch.LimitRatio.Ratio()
	switch {
	case some && ratio <= 1:
		return "limit and request are equal"
	case s.Sketch.LimitRatio == sketch.UnknownRatio:
		return "the limit is not known yet"
	case s.Sketch.Peaks.Age(s.Sketch.Now) < first:
		return fmt.Sprintf("less than %g hours were seen", first.Hours())
	}
	return ""
}

// MachineShape is a size of machines or containers.
type MachineShape struct {
	CPU    resources.Amount // millicores
	Memory resources.Amount // bytes
}

// ParseShapes parses a list such as "0.25c0.5g,1c4g", in cores and GiB.
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

// DefaultShapes returns the shapes of Crane.
func DefaultShapes() []MachineShape {
	shapes, err := ParseShapes("0.25c0.25g,0.25c0.5g,0.25c1g,0.5c0.5g,0.5c1g,1c1g,1c2g,1c4g,1c8g,2c2g,2c4g,2c8g,2c16g,4c4g,4c8g,4c16g,4c32g," +
		"8c8g,8c16g,8c32g,8c64g,16c32g,16c64g,16c128g,32c64g,32c128g,32c256g,64c128g,64c256g")
	if err != nil {
		panic(err) // constant input
	}
	return shapes
}

// Smallest returns the first of ordered shapes that has room for both amounts, or false if none
// has.
func Smallest(shapes []MachineShape, cpu, memory resources.Amount) (MachineShape, bool) {
	i := slices.IndexFunc(shapes, func(s MachineShape) bool { return s.CPU >= cpu && s.Memory >= memory })
	if i < 0 {
		return MachineShape{}, false
	}
	return shapes[i], true
}

// ToShape rounds up to the smallest shape with room for the results of both chains, if any.
func ToShape(k resources.Kind, shapes []MachineShape, both [resources.Kinds]Chain) Step {
	return Step{Name: "smallest shape", Apply: func(s Subject, in float64) float64 {
		shape, ok := Smallest(shapes, both[resources.CPU].Run(s, nil), both[resources.Memory].Run(s, nil))
		if !ok {
			return in
		}
		return float64([resources.Kinds]resources.Amount{shape.CPU, shape.Memory}[k])
	}}
}
