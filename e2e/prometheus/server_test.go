package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programs returns the paths of prometheus and promtool, or skips the test.
func programs(t *testing.T) (server, tool string) {
	t.Helper()
	server, err1 := exec.LookPath("prometheus")
	tool, err2 := exec.LookPath("promtool")
	if err1 == nil && err2 == nil {
		return server, tool
	}
	folder, err := unpacked(t.Context())
	if err != nil {
		t.Skipf("there is no Prometheus here, and its Debian package cannot be had: %v", err)
	}
	return filepath.Join(folder, "usr/bin/prometheus"), filepath.Join(folder, "usr/bin/promtool")
}

// unpacked returns the folder of the unpacked package, in the user's cache
// directory and named after its version.
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
		// Without the package lists, what was unpacked before will do.
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

// packageFile returns the name of the newest package, prometheus_VERSION_ARCH.deb.
// A machine that never fetched the package lists fetches them.
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

// start fills a Prometheus with the samples of an OpenMetrics text, starts it, and
// returns its address. It ends with the test.
func start(t *testing.T, text string) string {
	t.Helper()
	server, tool := programs(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "past.txt")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	_, err := output(t.Context(), dir, tool, "tsdb", "create-blocks-from", "--max-block-duration=24h", "openmetrics", file, filepath.Join(dir, "data"))
	require.NoError(t, err)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte("scrape_configs: []\n"), 0o644))
	address := freeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	command := exec.Command(server, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--storage.tsdb.retention.time=30d",
		"--web.listen-address="+address, "--web.console.templates="+dir, "--web.console.libraries="+dir)
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		if err := command.Process.Signal(os.Interrupt); err == nil {
			require.NoError(t, <-ended)
		}
		log.Close()
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, 30*time.Second, 50*time.Millisecond, "Prometheus is not ready; its log: %s", log.Name())
	return "http://" + address
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
