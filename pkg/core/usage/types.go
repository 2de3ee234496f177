package usage

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Series is the handle of one history, until Expire returns it, or Rekey or DropSeries frees it.
type Series int32

// SeriesKey identifies a series.
type SeriesKey struct {
	Namespace string
	Container string
	Labels    string // pod labels: sorted k=v, joined with commas
}

// ContainerKey identifies a running container.
type ContainerKey struct {
	Namespace string
	Pod       string
	Container string
}

// Sample is one measurement of a container: CPU usage in millicores or memory usage in bytes, at
// the end of its time span.
type Sample struct {
	Container ContainerKey
	Kind      resources.Kind
	At        time.Time
	Amount    resources.Amount
	Throttled float64 // CPU: share of time at the limit, 0 to 1, 0 if unknown
	Pressure  float64 // CPU: share of time waiting for CPU, 0 to 1, 0 if unknown
}

// OOM is an OOM kill of a container.
type OOM struct {
	Container  ContainerKey
	At         time.Time
	Memory     resources.Amount // bytes: request, or usage at pod eviction; 0 is unknown
	Limit      resources.Amount // bytes: limit, 0 is none or unknown
	ID         string           // unique per kill of the container; empty counts repeats
	Discovered time.Time        // discovery in a newly seen pod, zero if observed live
}

// Rules are the settings of a series that a VPA may override.
type Rules struct {
	OOMRatio   float64          // minimum demand after an OOM kill, relative to memory before
	OOMMinBump resources.Amount // bytes: minimum increase after an OOM kill
	Interval   time.Duration    // length of a memory window with one peak
	Count      int64            // an idle series expires after Interval·Count
}

// StoreConfig configures a Store.
type StoreConfig struct {
	Shape ProfileShape // of all series
	Rules Rules        // of series without override
	Nodes Nodes        // nil is unknown
}

// Nodes limit the possible usage of containers. Implementations must be safe for concurrent use.
type Nodes interface {
	// Ceiling returns the maximum possible usage of a container, or 0 if unknown.
	Ceiling(ContainerKey, resources.Kind) resources.Amount
}

// DefaultConfig returns the defaults of the reference recommender.
func DefaultConfig() StoreConfig {
	const day = 24 * time.Hour
	return StoreConfig{
		Shape: NewProfileShape(day, day),
		Rules: Rules{OOMRatio: 1.2, OOMMinBump: 100 << 20, Interval: day, Count: 8},
	}
}

// Reason is why a sample was rejected. It is empty for an accepted sample.
type Reason string

// Reasons of Observe and ObserveOOM.
const (
	Accepted         Reason = ""
	UnknownContainer Reason = "the container is not tracked"
	NegativeAmount   Reason = "the amount is negative"
	NotNewer         Reason = "the container has a newer sample already"
	TooOld           Reason = "the OOM is more than one memory window older than the last memory sample, or than its discovery"
	Duplicate        Reason = "the OOM was recorded already"
	AboveCeiling     Reason = "the amount exceeds the possible usage of the container"
	OutOfRange       Reason = "the time is not between the years 1970 and 2190"
)

// maxInterval is the maximum of the API, an int32 in seconds.
const maxInterval = (1<<31 - 1) * time.Second

// Normalized returns r with all values in their valid ranges.
func (r Rules) Normalized() Rules {
	r.OOMMinBump = max(r.OOMMinBump, 0)
	r.Interval = min(max(r.Interval, time.Second), maxInterval)
	r.Count = max(r.Count, 1)
	return r
}

// Age returns when an idle series expires: Interval·Count, or the maximum duration on overflow.
func (r Rules) Age() time.Duration {
	const longest = 1<<63 - 1
	r = r.Normalized()
	if r.Count > longest/int64(r.Interval) {
		return longest
	}
	return r.Interval * time.Duration(r.Count)
}

// maxWithoutNodes are the upper ends of the histograms, in millicores and bytes.
var maxWithoutNodes = [resources.Kinds]resources.Amount{resources.CPU: 1_000_000, resources.Memory: 1e12}

// MaxUsage returns the maximum possible usage on a node; a capacity of 0 is unknown and returns the
// end of the histogram. CPU usage is a measured rate and may appear 10% too high.
func MaxUsage(k resources.Kind, capacity resources.Amount) resources.Amount {
	switch {
	case capacity <= 0:
		return maxWithoutNodes[k]
	case k == resources.CPU:
		return capacity.Add(capacity / 10)
	}
	return capacity
}
