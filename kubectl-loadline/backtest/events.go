package backtest

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/backtest"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/printable"
)

// Types of events in a replay.
const (
	Recommended = "recommendation"
	Changed     = "change"
	Killed      = "kill"
)

// Event is one event of a container in a replay. Quantities have the format of the VPA status.
type Event struct {
	Dataset     string    `json:"dataset"`
	Workload    string    `json:"workload"`
	Container   string    `json:"container"`
	Recommender string    `json:"recommender"`
	Resource    string    `json:"resource"`
	At          time.Time `json:"at"`
	Event       string    `json:"event"`

	// Fields of a recommendation.
	Lower  string `json:"lower,omitempty"`
	Target string `json:"target,omitempty"`
	Upper  string `json:"upper,omitempty"`
	// Fields of a change: the request before and after, and the cause.
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Evicted bool   `json:"evicted,omitempty"`
	// Fields of a kill: the usage and the limit.
	Use   string `json:"use,omitempty"`
	Limit string `json:"limit,omitempty"`
}

// eventWriter is a replay.Observer that writes events.
type eventWriter struct {
	common   Event // fields common to all events
	kind     resources.Kind
	interval time.Duration // minimum interval, 0: only the last
	write    func(Event)

	last    replay.Advice    // latest recommendation
	written int64            // time of the last written one
	end     int64            // end of the latest sample
	request resources.Amount // in force at end
}

func (r *eventWriter) Sample(s replay.Sample) {
	if s.Kind == r.kind {
		r.request = s.Request
	}
	r.end = max(r.end, s.At+s.Duration)
}

func (r *eventWriter) Advised(a replay.Advice) {
	r.last = a
	if r.interval > 0 && (r.written == 0 || a.At-r.written >= int64(r.interval)) {
		r.recommend()
	}
}

func (r *eventWriter) Changed(c replay.Change) {
	if c.Kind != r.kind {
		return
	}
	r.request = c.To
	e := r.at(c.At, Changed)
	e.From, e.To, e.Cause, e.Evicted = r.text(c.From), r.text(c.To), string(c.Cause), c.Evicted
	r.write(e)
}

func (r *eventWriter) Killed(k replay.Kill) {
	e := r.at(k.At, Killed)
	e.Use, e.Limit = r.text(resources.FromFloat(k.Use)), r.text(k.Limit)
	r.write(e)
}

// finish writes the recommendation at the end, computed anew if samples came after the last one.
func (r *eventWriter) finish(a replay.Advisor, rule policy.Rule) {
	if r.end > r.last.At {
		current := resources.List{}.With(r.kind, r.request)
		r.last = replay.Advice{At: r.end, Bounds: policy.Cap(a.Advise(time.Unix(0, r.end).UTC(), current), rule)}
	}
	r.recommend()
}

func (r *eventWriter) recommend() {
	b := r.last.Bounds
	target, some := b.Target.Get(r.kind)
	if !some || r.written == r.last.At {
		return
	}
	r.written = r.last.At
	e := r.at(r.last.At, Recommended)
	e.Lower, e.Target, e.Upper = r.text(b.Lower.Value(r.kind)), r.text(target), r.text(b.Upper.Value(r.kind))
	r.write(e)
}

func (r *eventWriter) at(at int64, what string) Event {
	e := r.common
	e.At, e.Event = time.Unix(0, at).UTC(), what
	return e
}

func (r *eventWriter) text(a resources.Amount) string {
	q := convert.Quantity(r.kind, a)
	return q.String()
}

// Events replays a container under all candidates and writes the events by resource, candidate and
// time. The last recommendation is at the end, earlier ones at least every apart, or none if 0.
func Events(r *replay.Recording, o backtest.Options, every time.Duration, candidates []backtest.Candidate, write func(Event)) {
	for _, k := range o.Kinds {
		if !r.Has(k) {
			continue
		}
		ground, setup := backtest.NewGroundTruth(r, k, o.WarmUp), o.Setup(k)
		for _, one := range candidates {
			w := &eventWriter{kind: k, interval: every, write: write, common: Event{
				Dataset: r.Dataset, Workload: r.Workload, Container: r.Container, Recommender: one.Name, Resource: k.String(),
			}}
			advisor := one.Make(backtest.Case{Recording: r, Ground: ground, Kind: k, Setup: setup})
			replay.Run(r, setup, advisor, w)
			w.finish(advisor, setup.Rule)
		}
	}
}

// events writes the events of all containers as JSON lines, ordered by source and container.
func (c *Config) events(ctx context.Context, p plan, from []Source, out, errOut io.Writer) error {
	lines := json.NewEncoder(printable.JSON(out))
	o := &runResult{}
	for _, one := range from {
		reported := len(o.problems)
		err := o.read(ctx, c.Part, one, func(r *replay.Recording) (failed error) {
			Events(r, p.options, c.Every, p.candidates, func(e Event) {
				if failed == nil {
					failed = lines.Encode(e)
				}
			})
			return failed
		})
		c.report(errOut, o.problems[reported:])
		if err != nil {
			return err
		}
	}
	return o.complete()
}
