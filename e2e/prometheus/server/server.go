// Package server runs a real Prometheus for tests.
//
// Find downloads the Debian package into the user's cache directory and unpacks it there, without
// installing it. The package asserts nothing. Tests do.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

// Programs are the paths of a Prometheus server and its tool.
type Programs struct{ server, tool string }

// Find returns the installed programs, or else the programs of the Debian package.
func Find(ctx context.Context) (Programs, error) {
	server, err1 := exec.LookPath("prometheus")
	tool, err2 := exec.LookPath("promtool")
	if err1 == nil && err2 == nil {
		return Programs{server, tool}, nil
	}
	folder, err := unpacked(ctx)
	if err != nil {
		return Programs{}, fmt.Errorf("there is no Prometheus here, and its Debian package cannot be had: %w", err)
	}
	return Programs{filepath.Join(folder, "usr/bin/prometheus"), filepath.Join(folder, "usr/bin/promtool")}, nil
}

// unpacked returns the directory of the unpacked package, in the user's cache directory and named
// after its version.
func unpacked(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "loadline")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	file, err := packageFile(ctx)
	if err != nil {
		// Without the package lists, a previously unpacked version is used.
		if known, _ := filepath.Glob(filepath.Join(parent, "prometheus_*", "usr/bin/promtool")); len(known) > 0 {
			return strings.TrimSuffix(known[len(known)-1], "/usr/bin/promtool"), nil
		}
		return "", err
	}
	folder := filepath.Join(parent, strings.TrimSuffix(file, ".deb"))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	work, err := os.MkdirTemp(parent, "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if _, err := output(ctx, work, "apt-get", "download", "prometheus"); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(work, "prometheus_*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("apt-get download left %v", files)
	}
	if _, err := output(ctx, work, "dpkg", "-x", files[0], "root"); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(work, "root"), folder); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return folder, nil
}

// packageFile returns the name of the newest package, prometheus_VERSION_ARCH.deb. It fetches the
// package lists if the machine has none.
func packageFile(ctx context.Context) (string, error) {
	line, err := output(ctx, "", "apt-get", "download", "--print-uris", "prometheus")
	if err != nil {
		if _, failed := output(ctx, "", "apt-get", "update"); failed != nil {
			return "", errors.Join(err, failed)
		}
		line, err = output(ctx, "", "apt-get", "download", "--print-uris", "prometheus")
	}
	if err != nil {
		return "", err
	}
	// 'http://…/prometheus_2.42.0%2bds-5_amd64.deb' prometheus_2.42.0+ds-5_amd64.deb 19252676 SHA256:…
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasSuffix(fields[1], ".deb") {
		return "", fmt.Errorf("apt-get prints %q: want the URI and the name of a package", line)
	}
	return filepath.Base(fields[1]), nil
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// Server is a running Prometheus.
type Server struct {
	URL string

	command *exec.Cmd
	ended   chan error
}

// data is the directory of the samples.
func data(dir string) string { return filepath.Join(dir, "data") }

// Fill writes the samples of an OpenMetrics text for a server that is later started in dir.
func (p Programs) Fill(ctx context.Context, dir, text string) error {
	file := filepath.Join(dir, "past.txt")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	_, err := output(ctx, dir, p.tool, "tsdb", "create-blocks-from", "--max-block-duration=24h", "openmetrics", file, data(dir))
	return err
}

// TestRules runs the tests of alert rules in a file. The error contains the failures.
func (p Programs) TestRules(ctx context.Context, file string) error {
	_, err := output(ctx, filepath.Dir(file), p.tool, "test", "rules", filepath.Base(file))
	return err
}

// Start starts a server with a configuration and waits until it is ready. All its files are in dir.
// The server ends with Stop, or when this process is killed.
func (p Programs) Start(ctx context.Context, dir, config string) (*Server, error) {
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	address, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &Server{URL: "http://" + address, ended: make(chan error, 1)}
	s.command = exec.Command(p.server, "--config.file="+file, "--storage.tsdb.path="+data(dir), "--storage.tsdb.retention.time=30d",
		"--web.listen-address="+address, "--web.console.templates="+dir, "--web.console.libraries="+dir)
	s.command.Stdout, s.command.Stderr = log, log
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.server, err)
	}
	go func() { s.ended <- s.command.Wait() }()
	if err := s.awaitReady(ctx); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("%w; its log: %s", err, said), s.Stop())
	}
	return s, nil
}

// startTimeout limits the time until the server is ready.
const startTimeout = 30 * time.Second

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if response, err := http.Get(s.URL + "/-/ready"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Prometheus is not ready: %w", ctx.Err())
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("Prometheus ended at once: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends the server and waits for it.
func (s *Server) Stop() error {
	_ = s.command.Process.Signal(os.Interrupt) // it may have ended
	return <-s.ended
}
