package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// ReferenceModule is built for the comparison. It cannot be a package of this
// module: with our versions of its libraries it does not compile.
const ReferenceModule = "k8s.io/autoscaler/vertical-pod-autoscaler@v1.8.1"

// BuildReference compiles a program of the reference in its own folder of the
// module cache, with the versions of its libraries that it was released with.
func BuildReference(ctx context.Context, program, binary string) error {
	if out, err := exec.CommandContext(ctx, "go", "mod", "download", ReferenceModule).CombinedOutput(); err != nil {
		return fmt.Errorf("download: %w: %s", err, out)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, program)
	build.Dir = filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(ReferenceModule))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
