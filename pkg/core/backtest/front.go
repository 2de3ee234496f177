package backtest

import (
	"loadline.dev/loadline/pkg/core/resources"
)

// Point is a candidate in the plane of one kind.
type Point struct {
	Candidate string
	Kind      resources.Kind
	Slack     float64 // of the fleet
	Risk      float64 // share of days with a kill, or of work above the request
	Changes   float64 // a container-day
	Dominated string  // the first candidate that is no worse in all three and better in one; empty = on the front
}

// Front returns the points of one kind, in the order of the summaries of all
// classes.
func Front(summaries []Summary, k resources.Kind) []Point {
	risk := "starved_work"
	if k == resources.Memory {
		risk = "oom_day_share"
	}
	var points []Point
	for i := range summaries {
		if s := &summaries[i]; s.Kind == k && s.Class == "" {
			slack, _ := s.Figure("slack")
			hazard, _ := s.Figure(risk)
			changes, _ := s.Figure("changes_per_day")
			points = append(points, Point{Candidate: s.Candidate, Kind: k, Slack: slack.Value, Risk: hazard.Value, Changes: changes.Value})
		}
	}
	for i := range points {
		for j := range points {
			if points[j].dominates(points[i]) {
				points[i].Dominated = points[j].Candidate
				break
			}
		}
	}
	return points
}

func (p Point) dominates(q Point) bool {
	return p.Slack <= q.Slack && p.Risk <= q.Risk && p.Changes <= q.Changes && (p.Slack < q.Slack || p.Risk < q.Risk || p.Changes < q.Changes)
}
