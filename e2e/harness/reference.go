package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const referencePath = "k8s.io/autoscaler/vertical-pod-autoscaler"

// ReferenceModule is built for the comparison. It cannot be a package of this module, because it
// does not compile with the library versions of this module.
const ReferenceModule = referencePath + "@v1.8.1"

// BuildReference compiles a program of the reference in its directory of the module cache, with the
// library versions of its release.
func BuildReference(ctx context.Context, program, binary string) error {
	folder, err := referenceFolder(ctx)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as in the Makefile
	build.Dir = folder
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func referenceFolder(ctx context.Context) (string, error) {
	if out, err := exec.CommandContext(ctx, "go", "mod", "download", ReferenceModule).CombinedOutput(); err != nil {
		return "", fmt.Errorf("download: %w: %s", err, out)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return "", err
	}
	return filepath.Join(strings.TrimSpace(string(cache)), filepath.FromSlash(ReferenceModule)), nil
}

// ReferenceManifests returns the directory with the released manifests of the reference:
// definitions, roles, Deployments and a Service.
func ReferenceManifests(ctx context.Context) (string, error) {
	folder, err := referenceFolder(ctx)
	return filepath.Join(folder, "deploy"), err
}

// ReferenceChart returns the directory of the chart of the reference.
func ReferenceChart(ctx context.Context) (string, error) {
	folder, err := referenceFolder(ctx)
	return filepath.Join(folder, "charts", "vertical-pod-autoscaler"), err
}

// ReferenceProgram prepares a program of the reference, compiled as binary, with the service
// account and permissions of its manifests.
func (c *Cluster) ReferenceProgram(ctx context.Context, binary, name, label string, args ...string) (*Daemon, error) {
	kubeconfig, err := c.Credentials(ctx, name, label)
	if err != nil {
		return nil, err
	}
	return c.daemon(binary, label, append([]string{"--kubeconfig=" + kubeconfig}, args...))
}

// BuildReferenceUpdater compiles the updater of the reference in the version of go.mod, with the
// library versions of this module. This takes seconds, because these are compiled already. It is
// the only program of the reference for which this works. An up-to-date binary is kept.
func BuildReferenceUpdater(ctx context.Context, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, referencePath+"/pkg/updater")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // as in the Makefile
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the updater of %s: %w: %s", referencePath, err, out)
	}
	return nil
}

// ReferenceAdmissionController prepares the admission controller of the reference, compiled as
// binary. It is reached by URL, as with AdmissionController, and uses the certificate in the Secret
// of Loadline, because it issues none.
func (c *Cluster) ReferenceAdmissionController(ctx context.Context, binary, label string, args ...string) (*Daemon, error) {
	reached, err := ByURL()
	if err != nil {
		return nil, err
	}
	files, err := c.CertificateFiles(ctx, label)
	if err != nil {
		return nil, err
	}
	return c.Foreign(ctx, binary, label, slices.Concat(reached, files, args)...)
}

// CertificateFiles writes the certificate of the Secret vpa-tls-certs to files, as mounted in pods,
// and returns the flags for them. The label is part of the file names.
func (c *Cluster) CertificateFiles(ctx context.Context, label string) (flags []string, err error) {
	secret, err := c.Kube.CoreV1().Secrets(SystemNamespace).Get(ctx, "vpa-tls-certs", metav1.GetOptions{})
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
	return flags, nil
}
