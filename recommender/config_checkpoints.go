package recommender

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
)

// Checkpoints says how history is kept between two runs.
type Checkpoints struct {
	Storage         string        // "prometheus", or anything else for checkpoints
	CollectInterval time.Duration // least time between two clean-ups of orphans
	Timeout         time.Duration // of writing in one pass
	Interval        time.Duration // between two writes of a VPA that can wait
	Min             int           // has no effect
}

// leastCheckpoints is the default of the flag that has no effect.
const leastCheckpoints = 10

// DefaultCheckpoints returns the defaults.
func DefaultCheckpoints() Checkpoints {
	return Checkpoints{
		CollectInterval: 10 * time.Minute,
		Timeout:         time.Minute,
		Interval:        10 * time.Minute,
		Min:             leastCheckpoints,
	}
}

// AddFlags binds the group to fs.
func (c *Checkpoints) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Storage, "storage", c.Storage, `"prometheus" takes history from there; everything else keeps it in checkpoint objects.`)
	fs.DurationVar(&c.CollectInterval, "checkpoints-gc-interval", c.CollectInterval, "Least time between two clean-ups of checkpoints without VPA.")
	fs.DurationVar(&c.Timeout, "checkpoints-timeout", c.Timeout, "How long a pass may write checkpoints; the rest follows in the next.")
	fs.DurationVar(&c.Interval, "checkpoints-interval", c.Interval, "How often the changed history of a VPA is written; what a published target rests on is written at once. 0: in each pass.")
	fs.IntVar(&c.Min, "min-checkpoints", c.Min, "Deprecated, has no effect.")
}

// InPrometheus reports whether history comes from there, and not from checkpoints.
func (c *Checkpoints) InPrometheus() bool { return c.Storage == "prometheus" }

// Validate returns all problems of the group.
func (c *Checkpoints) Validate() error {
	return errors.Join(
		flags.Check(c.CollectInterval >= 0, "checkpoints-gc-interval", c.CollectInterval, "must not be negative"),
		flags.Check(c.Interval >= 0, "checkpoints-interval", c.Interval, "must not be negative"),
		flags.Check(c.Timeout > 0, "checkpoints-timeout", c.Timeout, "must be longer than 0"),
	)
}

// Warnings returns a line for the flag that has no effect, if it is used.
func (c *Checkpoints) Warnings() []string {
	if c.Min == leastCheckpoints {
		return nil
	}
	return []string{flags.Problem("min-checkpoints", c.Min, "deprecated, has no effect").Error()}
}
