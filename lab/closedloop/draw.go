package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// The size of the drawing and the edges of the plot, in pixels.
const (
	width, height            = 760, 300
	left, right, top, bottom = 64, 732, 40, 268
)

// style sets a background, so that the drawing is readable on any page.
const style = `<style>
text{font:12px sans-serif;fill:#24292f}path{fill:none;stroke-width:2}.ground{fill:#fff}.grid{stroke:#d8dee4;stroke-width:1}.use,.mean{fill:#d5dae0;stroke:none}.mean{fill:#a3acb6}
.expert{stroke:#1a7f37;stroke-dasharray:7 4}.vpa{stroke:#bc4c00}.loadline{stroke:#0969da}.kill{stroke:#24292f}
@media(prefers-color-scheme:dark){text{fill:#c9d1d9}.ground{fill:#0d1117}.grid{stroke:#30363d}.use{fill:#373d45}.mean{fill:#5d6570}
.expert{stroke:#56d364}.vpa{stroke:#ffa657}.loadline{stroke:#79c0ff}.kill{stroke:#c9d1d9}}
</style>
`

type axis struct{ min, max float64 }

// minSpan is the minimum ratio between the ends of an axis.
const minSpan = 6

func newAxis(s *Scenario, outcomes []*Outcome) axis {
	a := axis{float64(s.Expert), float64(s.Expert)}
	for _, o := range outcomes {
		for i := range o.Frames {
			if request, known := o.Frames[i].Request(); known {
				a.min, a.max = min(a.min, request), max(a.max, request, o.Frames[i].Highest)
			}
		}
	}
	return axis{min(a.min/1.5, a.max/minSpan), a.max * 1.3}
}

// y returns the vertical position of an amount, clamped to the plot.
func (a axis) y(amount float64) int {
	part := math.Log(max(amount, a.min)/a.min) / math.Log(a.max/a.min)
	return bottom - int(math.Round(part*(bottom-top)))
}

// ticks returns the labelled amounts: 1, 2 and 5 of each power of ten, or powers of two for memory.
func (a axis) ticks(k resources.Kind) (ticks []float64) {
	tick, factors := 1.0, []float64{2, 2.5, 2}
	if k == resources.Memory {
		tick, factors = mib, []float64{2}
	}
	for i := 0; tick <= a.max; i++ {
		if tick >= a.min {
			ticks = append(ticks, tick)
		}
		tick *= factors[i%len(factors)]
	}
	return ticks
}

func x(frame int) int { return left + frame*(right-left)/frames }

func draw(s *Scenario, names []string, outcomes []*Outcome) string {
	var b strings.Builder
	a := newAxis(s, outcomes)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s: %s of a pod over time</title>\n%s", s.Title, s.Kind, style)
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d"/>`+"\n", width, height)
	for _, tick := range a.ticks(s.Kind) {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %dH%d"/><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left, a.y(tick), right, left-6, a.y(tick)+4, amount(s.Kind, tick))
	}
	for _, d := range days(s.Length) {
		at := left + int(d*day*(right-left)/s.Length)
		fmt.Fprintf(&b, `<path class="grid" d="M%d %dV%d"/><text x="%d" y="%d" text-anchor="middle">day %d</text>`+"\n", at, top, bottom, at, bottom+18, d)
	}
	highest, mean := usageByFrame(outcomes)
	fmt.Fprintf(&b, `<path class="use" d="%s"/><path class="mean" d="%s"/>`+"\n", areaPath(a, highest), areaPath(a, mean))
	for i, name := range names {
		fmt.Fprintf(&b, `<path class="%s" d="%s"/>`+"\n", name, requestPath(a, outcomes[i]))
		if kills := killPath(outcomes[i], top+6+12*i); kills != "" {
			fmt.Fprintf(&b, `<path class="%s" style="stroke-dasharray:none" d="%s"/>`+"\n", name, kills)
		}
	}
	legend(&b, s, names)
	b.WriteString("</svg>\n")
	return b.String()
}

// days returns at most nine evenly spaced days to label.
func days(length time.Duration) (named []time.Duration) {
	all := length / day
	for d := time.Duration(0); d <= all; d += max((all+7)/8, 1) {
		named = append(named, d)
	}
	return named
}

// usageByFrame returns the highest and the mean usage of a pod by frame. It takes the maximum over
// all outcomes, because a killed container uses less.
func usageByFrame(outcomes []*Outcome) (highest, mean [frames]float64) {
	for _, o := range outcomes {
		for i := range o.Frames {
			f := &o.Frames[i]
			highest[i], mean[i] = max(highest[i], f.Highest), max(mean[i], f.used/max(f.podTime, 1))
		}
	}
	return highest, mean
}

func areaPath(a axis, use [frames]float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %d", left, bottom)
	last := bottom
	for i, amount := range use {
		if y := a.y(amount); y != last {
			fmt.Fprintf(&b, "H%dV%d", x(i), y)
			last = y
		}
	}
	fmt.Fprintf(&b, "H%dV%dZ", right, bottom)
	return b.String()
}

// requestPath returns the line of the mean request, with gaps while no pod runs.
func requestPath(a axis, o *Outcome) string {
	var b strings.Builder
	last, penDown := 0, false
	for i := range o.Frames {
		request, known := o.Frames[i].Request()
		switch y := a.y(request); {
		case penDown && !known:
			fmt.Fprintf(&b, "H%d", x(i))
		case known && !penDown:
			fmt.Fprintf(&b, "M%d %d", x(i), y)
			last = y
		case known && y != last:
			fmt.Fprintf(&b, "H%dV%d", x(i), y)
			last = y
		}
		penDown = known
	}
	if penDown {
		fmt.Fprintf(&b, "H%d", right)
	}
	return b.String()
}

// killMark draws a cross from its upper left corner.
const killMark = "l8 8m0 -8l-8 8"

// killPath returns the marks of kills at height y, without marks that would overlap.
func killPath(o *Outcome, y int) string {
	var b strings.Builder
	free := 0
	for _, at := range o.Kills {
		x := left + int(float64(at-begin.UnixNano())/float64(o.scenario.Length)*(right-left)) - 4
		if x >= free {
			fmt.Fprintf(&b, "M%d %d%s", x, y, killMark)
			free = x + 10
		}
	}
	return b.String()
}

func legend(b *strings.Builder, s *Scenario, names []string) {
	resource := map[resources.Kind]string{resources.CPU: "CPU", resources.Memory: "memory"}[s.Kind]
	fmt.Fprintf(b, `<rect class="use" x="%d" y="12" width="22" height="5"/><rect class="mean" x="%d" y="17" width="22" height="5"/>`, left, left)
	fmt.Fprintf(b, `<text x="%d" y="21">use of %s, highest and mean</text>`+"\n", left+28, resource)
	at := left + 260
	for _, name := range names {
		fmt.Fprintf(b, `<path class="%s" d="M%d 17h22"/><text x="%d" y="21">%s</text>`+"\n", name, at, at+28, name)
		at += 110
	}
	if s.Limit > 0 {
		fmt.Fprintf(b, `<path class="kill" d="M%d 13%s"/><text x="%d" y="21">killed</text>`+"\n", at+6, killMark, at+28)
	}
}
