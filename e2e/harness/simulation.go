package harness

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ResizeAnnotation sets the response of the simulated node to a resize of the pod: "defer",
// "infeasible" or "error". Without it a resize succeeds.
const ResizeAnnotation = "sim.loadline.dev/resize"

// Uses makes a container use constant CPU and memory, as quantities.
func Uses(container, cpu, memory string) map[string]string {
	return map[string]string{
		"sim.loadline.dev/cpu." + container:    cpu,
		"sim.loadline.dev/memory." + container: memory,
	}
}

// Plays makes a container use the recorded usage of testdata/traces/<trace>.csv.gz, played from its
// beginning at speed times the recorded pace.
func Plays(container, trace string, speed int) map[string]string {
	return map[string]string{
		"sim.loadline.dev/trace." + container: trace,
		"sim.loadline.dev/speed":              strconv.Itoa(speed),
	}
}

// With returns annotations plus one more.
func With(annotations map[string]string, key, value string) map[string]string {
	return Merge(annotations, map[string]string{key: value})
}

// Merge returns the union of annotations.
func Merge(parts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// AdmissionController prepares the admission controller with a webhook that the API server reaches
// by URL: the local control plane has no pod network, so a Service could not lead to a process of
// this machine.
func (c *Cluster) AdmissionController(ctx context.Context, args ...string) (*Daemon, error) {
	reached, err := ByURL()
	if err != nil {
		return nil, err
	}
	return c.Daemon(ctx, "admission-controller", "admission-controller", append(reached, args...)...)
}

// ByURL returns the flags of an admission controller, of Loadline or the reference, that is reached
// by URL at a free port.
func ByURL() ([]string, error) {
	webhook, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	return Register(webhook), nil
}

// Register returns the flags of an admission controller with the URL of an address, host:port.
func Register(webhook string) []string {
	host, port, _ := strings.Cut(webhook, ":")
	return []string{"--port=" + port, "--register-by-url", "--webhook-address=https://" + host, "--webhook-port=" + port, "--webhook-timeout-seconds=5"}
}

// KeepLogs copies the logs out of the state directory, which Down removes, and returns their
// location.
func (c *Cluster) KeepLogs() string {
	kept, err := os.MkdirTemp("", "loadline-logs-")
	if err != nil {
		return "nowhere: " + err.Error()
	}
	if err := os.CopyFS(kept, os.DirFS(filepath.Join(c.Dir, "logs"))); err != nil {
		return kept + " (incomplete: " + err.Error() + ")"
	}
	return kept
}
