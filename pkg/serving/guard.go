package serving

import (
	"fmt"
	"runtime/debug"
)

// Guard turns a panic of do into an error, so that one object does not stop the work on others.
func Guard(do func() error) (err error) {
	defer Recover(&err)
	return do()
}

// Recover turns a panic into an error. It must be deferred.
func Recover(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
	}
}
