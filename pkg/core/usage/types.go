package usage

import (
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Series is the handle of one history. It is valid until Expire returns it, or Fold or Drop gives it up.
type Series int32

// SeriesKey names a series.
type SeriesKey struct {
	Namespace string
	Container string // name of the container
	Labels    string // labels of the pod: sorted k=v, joined with commas
}

// ContainerKey names a running container.
type ContainerKey struct {
	Namespace string
	Pod       string // name of the pod
	Container string // name of the container
}

// Sample is one measurement of a container: CPU use in millicores or memory use
// in bytes, at the end of the time it was measured over.
type Sample struct {
	Container ContainerKey
	Kind      resources.Kind
	At        time.Time
	Amount    resources.Amount
	Throttled float64 // of CPU: share of that time, 0 to 1, in which the limit was reached; 0 also where nobody knows
	Waiting   float64 // of CPU: share of that time, 0 to 1, in which work waited for it; 0 also where nobody knows
}

// OOM is the report that a container was killed for want of memory.
type OOM struct {
	Container ContainerKey
	At        time.Time
	Memory    resources.Amount // bytes: the request, or the use when the pod was evicted; 0 = unknown
	Limit     resources.Amount // bytes: the limit that the container ran into; 0 = none, or unknown
	ID        string           // another one for each kill of the container; empty = unknown, and repeats count
	Found     time.Time        // when it was found in a pod seen for the first time; zero = it was seen to happen
}

// Rules are the settings of a series that a VPA may override.
type Rules struct {
	OOMRatio   float64          // after an OOM a container needs at least this multiple of what it had
	OOMMinBump resources.Amount // bytes; and at least this much more
	Interval   time.Duration    // length of a memory window, in which only the highest use counts
	Count      int64            // an idle series expires after Interval·Count
}

// StoreConfig is what a store needs to know from the start.
type StoreConfig struct {
	Shape ProfileShape // of all series
	Rules Rules        // of series without override
	Nodes Nodes        // nil = unknown
}

// Nodes bound the use of containers. They must be safe for concurrent use.
type Nodes interface {
	// Ceiling returns the most that a container can use of a kind, 0 if that is not known.
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

// Reason says why a sample was not taken. Accepted, the empty one, says it was.
type Reason string

// The reasons.
const (
	Accepted         Reason = ""
	UnknownContainer Reason = "the container is not tracked"
	NegativeAmount   Reason = "the amount is negative"
	NotNewer         Reason = "the container has a newer sample already"
	TooOld           Reason = "the OOM is more than one memory window older than the last memory sample, or than when it was found"
	Duplicate        Reason = "the OOM was taken already"
	AboveCeiling     Reason = "the amount is more than the container can use"
	OutOfRange       Reason = "the time is not between the years 1970 and 2190"
)

// maxInterval is what the API can express in seconds as int32.
const maxInterval = (1<<31 - 1) * time.Second

// Sound returns r with what makes no sense brought into range.
func (r Rules) Sound() Rules {
	r.OOMMinBump = max(r.OOMMinBump, 0)
	r.Interval = min(max(r.Interval, time.Second), maxInterval)
	r.Count = max(r.Count, 1)
	return r
}

// Age returns the age at which an idle series expires: Interval·Count, or the longest duration where that overflows.
func (r Rules) Age() time.Duration {
	const longest = 1<<63 - 1
	r = r.Sound()
	if r.Count > longest/int64(r.Interval) {
		return longest
	}
	return r.Interval * time.Duration(r.Count)
}

// maxWithoutNodes are the ends of the histograms, in millicores and bytes.
var maxWithoutNodes = [resources.Kinds]resources.Amount{resources.CPU: 1_000_000, resources.Memory: 1e12}

// MaxOn returns the most that a container can use of a kind on a node of some capacity; 0: the capacity is not
// known, and the end of the histogram counts. CPU use is measured as a rate and may appear a tenth higher than it is.
func MaxOn(k resources.Kind, capacity resources.Amount) resources.Amount {
	switch {
	case capacity <= 0:
		return maxWithoutNodes[k]
	case k == resources.CPU:
		return capacity.Add(capacity / 10)
	}
	return capacity
}
