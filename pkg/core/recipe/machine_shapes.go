package recipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"loadline.dev/loadline/pkg/core/resources"
)

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

// Smallest returns the first of ordered shapes that has room for both amounts, or
// false if none has.
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
