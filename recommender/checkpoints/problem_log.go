package checkpoints

import (
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

const (
	reminder    = 10 * time.Minute // how often problems that stay the same are logged
	loggedLines = 10               // how many of the joined errors are logged
)

// ProblemLog logs joined errors when they are not those of the last time. A name
// that is taken, for one, stays so until somebody acts.
type ProblemLog struct {
	text string
	said time.Time
}

// Note takes the result of the last attempt and returns how many errors it has.
func (c *ProblemLog) Note(log klog.Logger, err error, message string, now time.Time) int {
	if err == nil {
		*c = ProblemLog{}
		return 0
	}
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines) // they come in the order of the workers
	text := strings.Join(lines[:min(len(lines), loggedLines)], "; ")
	if text != c.text || now.Sub(c.said) >= reminder {
		*c = ProblemLog{text, now}
		log.Error(errors.New(text), message, "problems", len(lines))
	}
	return len(lines)
}
