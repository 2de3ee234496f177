package recommender

import (
	"context"
	"fmt"
	"os"
	"time"

	"loadline.dev/loadline/e2e/harness"
)

type observation struct {
	metrics   map[string]float64 // by name with labels
	cpu       time.Duration      // CPU time since its start
	rss, peak int64              // bytes
	at        time.Time
	load      float64 // load average of the machine over the last minute
}

const latency = "vpa_recommender_execution_latency_seconds"

// passes returns the number of ended iterations since the start.
func (o observation) passes() int {
	return int(o.metrics[latency+`_count{step="`+total+`"}`])
}

func (o observation) spent(step string) time.Duration {
	return time.Duration(o.metrics[latency+`_sum{step="`+step+`"}`] * float64(time.Second))
}

func observe(ctx context.Context, d *harness.Daemon) (o observation, err error) {
	o.at = time.Now()
	if o.metrics, err = d.Metrics(ctx); err != nil {
		return o, err
	}
	if o.cpu, err = harness.ProcessorTime(d.PID()); err != nil {
		return o, err
	}
	if o.rss, o.peak, err = harness.Memory(d.PID()); err != nil {
		return o, err
	}
	o.load, err = machineLoad()
	return o, err
}

func machineLoad() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(text), &load)
	return load, err
}
