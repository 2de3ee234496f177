package recommender

import (
	"context"
	"fmt"
	"path/filepath"

	"loadline.dev/loadline/e2e/harness"
)

// Names of the recommenders in the flag -only and in the table.
const (
	ours      = "loadline"
	reference = "reference"
)

type subject struct {
	name   string
	binary string // empty: Loadline's, from bin/
}

// selectSubjects returns the recommenders to measure. It builds the reference in dir.
func selectSubjects(ctx context.Context, only, dir string) ([]subject, error) {
	var all []subject
	if only != reference {
		all = append(all, subject{name: ours})
	}
	if only != ours {
		binary := filepath.Join(dir, "reference-recommender")
		fmt.Println("build the recommender of", harness.ReferenceModule)
		if err := harness.BuildReference(ctx, "./pkg/recommender", binary); err != nil {
			return nil, fmt.Errorf("build %s: %w", harness.ReferenceModule, err)
		}
		all = append(all, subject{name: reference, binary: binary})
	}
	return all, nil
}

// prepare prepares a process of the subject with its defaults, except for the interval. It also
// returns the service account.
func (s subject) prepare(ctx context.Context, cluster *harness.Cluster, o options) (*harness.Daemon, string, error) {
	interval := fmt.Sprint("--recommender-interval=", o.interval)
	if s.binary == "" {
		d, err := cluster.Daemon(ctx, "recommender", "recommender", interval)
		return d, "vpa-recommender", err
	}
	d, err := cluster.Foreign(ctx, s.binary, s.name, interval)
	return d, "vpa-" + s.name, err
}
