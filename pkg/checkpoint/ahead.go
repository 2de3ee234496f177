package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"loadline.dev/loadline/pkg/core/usage"
)

// ErrFuture says that a checkpoint has times that cannot be yet: it was written
// while a clock was wrong. They were moved to the present. As they are, nothing
// new would weigh anything next to them, and they would never expire.
var ErrFuture = errors.New("has times in the future, which count as now: was it written while a clock was wrong?")

// Ahead is how far the times of a checkpoint may be ahead of our clock. The
// zero value allows everything.
type Ahead struct {
	Sample      time.Duration // first and last sample
	CPU, Memory time.Duration // references of the decay
	Window      time.Duration // ends of open windows
}

// mend moves times that are too far ahead to now, and names them.
func (a Ahead) mend(i *usage.ProfileImage, now time.Time) (err error) {
	for _, t := range []struct {
		field string
		at    *time.Time
		most  time.Duration
	}{
		{"status.firstSampleStart", &i.First, a.Sample},
		{"status.lastSampleStart", &i.Last, a.Sample},
		{"status.cpuHistogram.referenceTimestamp", &i.CPU.Reference, a.CPU},
		{"status.memoryHistogram.referenceTimestamp", &i.Memory.Reference, a.Memory},
	} {
		if t.most > 0 && t.at.Sub(now) > t.most {
			err = errors.Join(err, fmt.Errorf("%s is %s: %w", t.field, stamp(*t.at), ErrFuture))
			*t.at = now
		}
	}
	return err
}

// close lets windows end now that would end too far ahead.
func (a Ahead) close(windows map[string]usage.Window, now time.Time) (err error) {
	for pod, w := range windows {
		if a.Window > 0 && w.End.Sub(now) > a.Window {
			w.End, err = now, fmt.Errorf("a window in the annotation %s ends at %s: %w", OpenWindows, stamp(w.End), ErrFuture)
		}
		if a.Sample > 0 && w.Kill.Sub(now) > a.Sample {
			w.Kill = time.Time{} // or it would outrank all that follow
			if len(w.Kills) > 0 {
				w.Kill = now // what follows has other IDs
			}
		}
		windows[pod] = w
	}
	return err
}
