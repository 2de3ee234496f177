package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/hack/document"
)

// usage is the resource usage of a program since its start.
type usage struct {
	processor time.Duration
	resident  int64              // bytes, current
	buckets   map[float64]uint64 // cumulative pod reviews by upper bound in seconds, from the program
}

func spent(ctx context.Context, d *harness.Daemon) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.PID()))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var user, system, pages int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12]+" "+fields[21], &user, &system, &pages); err != nil {
		return u, fmt.Errorf("read /proc: %w", err)
	}
	const ticks = 100 // per second, on all Linux systems
	u.processor, u.resident = time.Duration(user+system)*time.Second/ticks, pages*int64(syscall.Getpagesize())
	metrics, err := d.Metrics(ctx)
	if err != nil {
		return u, err
	}
	u.buckets = map[float64]uint64{}
	for _, bound := range bounds {
		u.buckets[bound] = uint64(metrics[fmt.Sprintf(`loadline_admission_controller_review_duration_seconds_bucket{resource="Pod",le="%v"}`, bound)])
	}
	return u, nil
}

// bounds are the shown buckets of the program, in seconds.
var bounds = []float64{.00005, .0001, .0002, .0005, .002}

func (u usage) since(before usage) usage {
	less := usage{processor: u.processor - before.processor, resident: u.resident, buckets: map[float64]uint64{}}
	for bound, n := range u.buckets {
		less.buckets[bound] = n - before.buckets[bound]
	}
	return less
}

type report struct {
	options
	took    []time.Duration // of reviews, measured by the client, sorted
	nothing []time.Duration // of requests that do nothing, sorted
	used    usage
	size    int // bytes of a review
}

// at returns a quantile of sorted durations, with part from 0 to 1.
func at(took []time.Duration, part float64) time.Duration {
	return took[int(part*float64(len(took)-1))]
}

func (r report) markdown() string {
	var b strings.Builder
	over := map[bool]string{true: ", made for one SizingPolicy over all, each with a SizingRecord"}[r.policy]
	fmt.Fprintf(&b, "%d reviews of %d bytes in %s, %d a second, under %d VPAs%s; processors %s; %s.\n\n",
		len(r.took), r.size, r.duration, r.rate, r.vpas, over, map[bool]string{true: "kept awake", false: "may sleep"}[r.awake], time.Now().Format("2 January 2006"))
	fmt.Fprintf(&b, "| as the client sees it | reviews | requests that do nothing |\n|---|---|---|\n")
	for _, row := range []struct {
		name string
		part float64
	}{{"median", .5}, {"90th percentile", .9}, {"99th percentile", .99}, {"99.9th percentile", .999}, {"slowest", 1}} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.name, at(r.took, row.part).Round(time.Microsecond), at(r.nothing, row.part).Round(time.Microsecond))
	}
	fmt.Fprintf(&b, "\n| reviews in the program | |\n|---|---|\n")
	for _, bound := range bounds {
		fmt.Fprintf(&b, "| at most %s | %.2f %% |\n", time.Duration(bound*float64(time.Second)), 100*float64(r.used.buckets[bound])/float64(len(r.took)))
	}
	fmt.Fprintf(&b, "| processor time of a review, all included | %s |\n", (r.used.processor / time.Duration(len(r.took))).Round(time.Microsecond))
	fmt.Fprintf(&b, "| resident memory | %d MiB |\n", r.used.resident>>20)
	return b.String()
}

func (r report) writeTo(page string) error {
	what := "webhook figures"
	if r.policy {
		what += " under a policy"
	}
	return document.Fill(page, what, r.markdown())
}

// judge fails if reviews exceeded the time limits.
func (r report) judge() error {
	var problems []error
	if is := at(r.took, .5); is >= r.median {
		problems = append(problems, fmt.Errorf("the median is %s, not below %s", is, r.median))
	}
	if is := at(r.took, .99); is >= r.slow {
		problems = append(problems, fmt.Errorf("the 99th percentile is %s, not below %s", is, r.slow))
	}
	return errors.Join(problems...)
}
