package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"loadline.dev/loadline/kubectl-loadline/events"
	"loadline.dev/loadline/pkg/core/backtest/tape"
	"loadline.dev/loadline/pkg/source/trace"
)

// tell replays the containers one after the other and writes what happens, as a
// line of JSON each: in the order of files, containers, resources and recipes, and
// then of time. The last event of each replay is the recommendation at its end.
func (c *Config) tell(ctx context.Context, p plan, files []string, out, errOut io.Writer) error {
	lines := json.NewEncoder(out)
	var failed error
	containers, problems := 0, 0
	for _, name := range files {
		err := c.each(ctx, p, name, func(r *tape.Recording) {
			containers++
			events.Of(r, p.options, c.Every, p.candidates, func(e events.Event) {
				if failed == nil {
					failed = lines.Encode(e)
				}
			})
		}, func(problem *trace.Problem) {
			if !problem.Warning {
				problems++
			}
			if !problem.Warning || !c.Quiet {
				fmt.Fprintln(errOut, problem)
			}
		})
		if err != nil || failed != nil {
			return errors.Join(err, failed)
		}
	}
	switch {
	case containers == 0:
		return errors.New("nothing could be replayed")
	case problems > 0:
		return fmt.Errorf("%d problems left containers out; the result has the %d others", problems, containers)
	}
	return nil
}

// each hands out the containers of a file, and its problems.
func (c *Config) each(ctx context.Context, p plan, name string, take func(*tape.Recording), complain func(*trace.Problem)) error {
	file, err := os.Open(name)
	if err != nil {
		complain(&trace.Problem{File: name, Text: fmt.Sprintf("cannot be opened: %v", err)})
		return nil
	}
	defer file.Close() //nolint:errcheck // it was only read
	for r, problem := range trace.Read(file, filepath.Base(name), p.reading) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if problem != nil {
			problem.File = name
			complain(problem)
		}
		if r != nil && within(c.Part, r) {
			take(r)
		}
	}
	return nil
}
