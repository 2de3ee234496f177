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
	all, weekday := hours(in, func(time.Time) bool { return true }), hours(in, func(at time.Time) bool { return at.Weekday() == in.Now.Weekday() })
	return peakOutput{
		Current: in.stands(all.LastHour()), Hourly: in.stands(all.SameHour()), Weekly: in.stands(weekday.SameHour()), Peak: in.stands(all.Peak()),
	}, nil
}

// observeHours returns the hourly maximums of the selected points. A point stands for its whole
// hour.
func hours(in peakInput, of func(time.Time) bool) *sketch.Hours {
	h := &sketch.Hours{}
	for _, p := range in.Points {
		if of(p.at) && !p.at.After(in.Now) {
			h.Observe(p.at.UnixNano(), 1000*p.use)
		}
	}
	h.Observe(in.Now.UnixNano(), 0)
	return h
}

// pointValue returns the original value of a stored usage, which is rounded to a thousandth. It
// returns 0 if there is none.
func (in peakInput) stands(kept float64) float64 {
	use := 0.0
	for _, p := range in.Points {
		if p.use*1000 <= kept*(1+1e-5) {
			use = max(use, p.use)
		}
	}
	return use
}
