package recommender

import (
	"context"
	"fmt"
	"path/filepath"

	"loadline.dev/loadline/e2e/harness"
)

// Names of what is measured, as -only takes them and the table shows them.
const (
	ours      = "loadline"
	reference = "reference"
)

// subject is a recommender that is measured.
type subject struct {
	name   string
	binary string // empty: ours, from bin/
}

// chosen returns what to measure; dir is for a program that must be built first.
func chosen(ctx context.Context, only, dir string) ([]subject, error) {
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

// prepare makes a process of the subject, with its defaults but for the
// interval. It returns the service account it uses, too.
func (s subject) prepare(ctx context.Context, cluster *harness.Cluster, o options) (*harness.Daemon, string, error) {
	interval := fmt.Sprint("--recommender-interval=", o.interval)
	if s.binary == "" {
		d, err := cluster.Daemon(ctx, "recommender", "recommender", interval)
		return d, "vpa-recommender", err
	}
	d, err := cluster.Foreign(ctx, s.binary, s.name, interval)
	return d, "vpa-" + s.name, err
}
