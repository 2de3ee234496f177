package backtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// tell replays the containers one after the other and writes what happens, as a
// line of JSON each: in the order of sources, containers, resources and recipes, and
// then of time. The last recommendation of each replay is that at its end.
func (c *Config) tell(ctx context.Context, p plan, from []Source, out, errOut io.Writer) error {
	lines := json.NewEncoder(out)
	var failed error
	containers, problems := 0, 0
	for _, one := range from {
		for r, problem := range one.Read(ctx, nil) {
			if problem != nil && !problem.Warning {
				problems++
			}
			if problem != nil && (!problem.Warning || !c.Quiet) {
				fmt.Fprintln(errOut, problem)
			}
			if r == nil || !belongs(c.Part, r) {
				continue
			}
			containers++
			Events(r, p.options, c.Every, p.candidates, func(e Event) {
				if failed == nil {
					failed = lines.Encode(e)
				}
			})
			if failed != nil {
				return failed
			}
		}
		if err := ctx.Err(); err != nil {
			return err
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
