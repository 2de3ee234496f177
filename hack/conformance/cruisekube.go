package main

import (
	"time"

	"loadline.dev/loadline/pkg/core/sketch"
)

type peakInput struct {
	Now    time.Time
	Points []sample
}

type peakOutput struct {
	Current float64 `json:"current"`
	Hourly  float64 `json:"hourly"`
	Weekly  float64 `json:"weekly"`
	Peak    float64 `json:"peak"`
}

func peak(in peakInput) (peakOutput, error) {
	all, weekday := observeHours(in, func(time.Time) bool { return true }), observeHours(in, func(at time.Time) bool { return at.Weekday() == in.Now.Weekday() })
	return peakOutput{
		Current: in.pointValue(all.LastHour()), Hourly: in.pointValue(all.SameHour()), Weekly: in.pointValue(weekday.SameHour()), Peak: in.pointValue(all.Peak()),
	}, nil
}

// observeHours returns the hourly maximums of the selected points. A point stands for its whole
// hour.
func observeHours(in peakInput, selected func(time.Time) bool) *sketch.Hours {
	h := &sketch.Hours{}
	for _, p := range in.Points {
		if selected(p.at) && !p.at.After(in.Now) {
			h.Observe(p.at.UnixNano(), 1000*p.value)
		}
	}
	h.Observe(in.Now.UnixNano(), 0)
	return h
}

// pointValue returns the original value of a stored usage, which is rounded to a thousandth. It
// returns 0 if there is none.
func (in peakInput) pointValue(stored float64) float64 {
	use := 0.0
	for _, p := range in.Points {
		if p.value*1000 <= stored*(1+1e-5) {
			use = max(use, p.value)
		}
	}
	return use
}
