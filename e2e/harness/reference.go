package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// referencePath is the module of the reference.
const referencePath = "k8s.io/autoscaler/vertical-pod-autoscaler"

// ReferenceModule is built for the comparison. It cannot be a package of this
// module: with our versions of its libraries it does not compile.
const ReferenceModule = referencePath + "@v1.8.1"

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
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as the Makefile builds the programs
	build.Dir = filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(ReferenceModule))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// BuildReferenceUpdater compiles the updater of the reference, of the version in go.mod, with our
// versions of its libraries, which takes seconds: they are compiled already. Unlike others of
// its programs it can be. A binary that is there already, and right, stays.
func BuildReferenceUpdater(ctx context.Context, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, referencePath+"/pkg/updater")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as the Makefile builds the programs
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the updater of %s: %w: %s", referencePath, err, out)
	}
	return nil
}

// ReferenceAdmissionController prepares that of the reference, compiled as binary, as
// AdmissionController does with ours, and with the certificate that ours keeps in its Secret:
// it makes none.
func (c *Cluster) ReferenceAdmissionController(ctx context.Context, binary, label string, args ...string) (*Daemon, error) {
	secret, err := c.Kube.CoreV1().Secrets(SystemNamespace).Get(ctx, "vpa-tls-certs", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	flags, err := byURL()
	if err != nil {
		return nil, err
	}
	for flag, key := range map[string]string{"client-ca-file": "caCert.pem", "tls-cert-file": "serverCert.pem", "tls-private-key": "serverKey.pem"} {
		path := filepath.Join(c.Dir, label+"-"+key)
		if err := os.WriteFile(path, secret.Data[key], 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--"+flag+"="+path)
	}
	return c.Foreign(ctx, binary, label, append(flags, args...)...)
}
