package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"loadline.dev/loadline/e2e/harness"
)

// Names of what is measured, as -only takes them and the table shows them.
const (
	ours      = "loadline"
	reference = "reference"
)

// referenceModule is built for the comparison. It cannot be a package of this
// module: with our versions of its libraries it does not compile.
const referenceModule = "k8s.io/autoscaler/vertical-pod-autoscaler@v1.8.1"

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
		fmt.Println("build the recommender of", referenceModule)
		if err := buildReference(ctx, "./pkg/recommender", binary); err != nil {
			return nil, fmt.Errorf("build %s: %w", referenceModule, err)
		}
		all = append(all, subject{name: reference, binary: binary})
	}
	return all, nil
}

// buildReference compiles a program of the reference in its own folder of the
// module cache, with the versions of its libraries that it was released with.
func buildReference(ctx context.Context, program, binary string) error {
	if out, err := exec.CommandContext(ctx, "go", "mod", "download", referenceModule).CombinedOutput(); err != nil {
		return fmt.Errorf("download: %w: %s", err, out)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, program)
	build.Dir = filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(referenceModule))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
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
