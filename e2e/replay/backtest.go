package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Event is a line of the backtester's output.
type Event struct {
	Workload, Recommender string
	Resource              corev1.ResourceName
	At                    time.Time
	Event                 string // recommendation, change or kill
	Lower, Target, Upper  string
	From, To              string
	Use, Limit            string
}

const recommendation = "recommendation"

// Key identifies one replay of the backtester.
type Key struct {
	Workload, Recipe string
	Resource         corev1.ResourceName
}

// Story holds the events of backtester replays in order of time.
type Story map[Key][]Event

// Backtest replays recordings with the plugin under the recipes and returns every recommendation,
// change and kill. The memory limit has the format of the flag. With startup, each recording begins
// at its container start.
func Backtest(ctx context.Context, plugin, dir, memoryLimit string, startup bool, recipes []string, recordings ...*Recording) (Story, error) {
	file := filepath.Join(dir, "recordings-"+memoryLimit+".csv")
	if err := write(file, recordings); err != nil {
		return nil, err
	}
	args := []string{"backtest", "-o", "events", "--every=1m", "--baselines=false", "--min-memory=0", "--memory-limit=" + memoryLimit, fmt.Sprintf("--startup=%v", startup)}
	for _, recipe := range recipes {
		args = append(args, "--recipe="+recipe)
	}
	command := exec.CommandContext(ctx, plugin, append(args, file)...)
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command, err, errOut.String())
	}
	story := Story{}
	for line := range bytes.Lines(out.Bytes()) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s prints %q: %w", command, line, err)
		}
		key := Key{e.Workload, e.Recommender, e.Resource}
		story[key] = append(story[key], e)
	}
	return story, nil
}

// write writes recordings in the backtester's file format.
func write(path string, recordings []*Recording) error {
	var text strings.Builder
	text.WriteString("workload,container,timestamp,cpu_cores,memory_bytes,cpu_request_cores,memory_request_bytes\n")
	for _, r := range recordings {
		cpu, err := resource.ParseQuantity(r.CPURequest)
		if err != nil {
			return fmt.Errorf("CPU request of %s: %w", r.Name, err)
		}
		memory, err := resource.ParseQuantity(r.MemoryRequest)
		if err != nil {
			return fmt.Errorf("memory request of %s: %w", r.Name, err)
		}
		for _, s := range r.Samples {
			fmt.Fprintf(&text, "%s,%s,%d,%s,%s,%s,%d\n", r.Name, Container, r.Start.Add(s.After).Unix(),
				decimal(s.Nanocores), byteText(s.Bytes), decimal(cpu.ScaledValue(resource.Nano)), memory.Value())
		}
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// decimal formats cores, or returns "" if they are unknown.
func decimal(nanocores int64) string {
	if nanocores < 0 {
		return ""
	}
	return fmt.Sprintf("%d.%09d", nanocores/1e9, nanocores%1e9)
}

func byteText(bytes int64) string {
	if bytes < 0 {
		return ""
	}
	return strconv.FormatInt(bytes, 10)
}

// Recommendation returns the recommendation of an observer that samples once a minute, with its
// last sample at the given time.
func (s Story) Recommendation(k Key, last time.Time) (Event, error) {
	for _, e := range s[k] {
		if e.Event == recommendation && e.At.After(last) {
			if e.At.After(last.Add(Minute)) {
				return e, fmt.Errorf("the backtester recommends nothing for %v in the minute after %s, only at %s", k, last.UTC(), e.At)
			}
			return e, nil
		}
	}
	return Event{}, fmt.Errorf("the backtester recommends nothing for %v after %s", k, last.UTC())
}

// Final returns the last recommendation of a replay, or false if there is none.
func (s Story) Final(k Key) (Event, bool) {
	for _, e := range slices.Backward(s[k]) {
		if e.Event == recommendation { // a resulting change may follow it
			return e, true
		}
	}
	return Event{}, false
}

// Others returns the changes and kills of a replay.
func (s Story) Others(k Key) []Event {
	var others []Event
	for _, e := range s[k] {
		if e.Event != recommendation {
			others = append(others, e)
		}
	}
	return others
}
