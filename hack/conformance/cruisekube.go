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

// hours is what a container that used the maxima of some hours is known by. A point stands for the hour in which it is.
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

// stands returns the use of a point that a use which is kept to a thousandth stands for, 0 if it is of none.
func (in peakInput) stands(kept float64) float64 {
	use := 0.0
	for _, p := range in.Points {
		if p.use*1000 <= kept*(1+1e-5) {
			use = max(use, p.use)
		}
	}
	return use
}
