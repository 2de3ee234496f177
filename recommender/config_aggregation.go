package recommender

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
)

// Aggregation says how samples become histories.
type Aggregation struct {
	Interval       time.Duration // length of a memory peak window
	Count          int64         // windows kept
	CPUHalfLife    time.Duration
	MemoryHalfLife time.Duration
	OOMRatio       float64
	OOMMinBump     float64 // bytes
}

// DefaultAggregation returns the defaults of the reference recommender.
func DefaultAggregation() Aggregation {
	rules := usage.DefaultConfig().Rules
	return Aggregation{
		Interval:       rules.Interval,
		Count:          rules.Count,
		CPUHalfLife:    24 * time.Hour,
		MemoryHalfLife: 24 * time.Hour,
		OOMRatio:       rules.OOMRatio,
		OOMMinBump:     float64(rules.OOMMinBump),
	}
}

// AddFlags binds the group to fs.
func (a *Aggregation) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&a.Interval, "memory-aggregation-interval", a.Interval, "Length of the window of which the memory peak is taken.")
	fs.Int64Var(&a.Count, "memory-aggregation-interval-count", a.Count, "Windows kept; this times the interval is the age at which idle history expires.")
	fs.DurationVar(&a.MemoryHalfLife, "memory-histogram-decay-half-life", a.MemoryHalfLife, "Age at which a memory peak has lost half its weight.")
	fs.DurationVar(&a.CPUHalfLife, "cpu-histogram-decay-half-life", a.CPUHalfLife, "Age at which a CPU sample has lost half its weight.")
	fs.Float64Var(&a.OOMRatio, "oom-bump-up-ratio", a.OOMRatio, "After an out-of-memory kill at least this multiple of the memory is taken as needed.")
	fs.Float64Var(&a.OOMMinBump, "oom-min-bump-up-bytes", a.OOMMinBump, "After an out-of-memory kill at least this many bytes more are taken as needed.")
}

// Validate returns all problems of the group.
func (a *Aggregation) Validate() error {
	return errors.Join(
		flags.Check(a.Interval > 0, "memory-aggregation-interval", a.Interval, "must be longer than 0"),
		flags.Check(a.Count > 0, "memory-aggregation-interval-count", a.Count, "must be at least 1"),
		flags.Check(a.Count <= 0 || a.Interval <= 0 || a.Interval <= longest/time.Duration(a.Count), "memory-aggregation-interval-count", a.Count,
			"times --memory-aggregation-interval="+a.Interval.String()+" must be less than 100 years"),
		flags.Check(a.MemoryHalfLife > 0, "memory-histogram-decay-half-life", a.MemoryHalfLife, "must be longer than 0"),
		flags.Check(a.CPUHalfLife > 0, "cpu-histogram-decay-half-life", a.CPUHalfLife, "must be longer than 0"),
		flags.Check(a.OOMRatio >= 1, "oom-bump-up-ratio", a.OOMRatio, "must be at least 1"),
		flags.Check(a.OOMMinBump >= 0, "oom-min-bump-up-bytes", a.OOMMinBump, "must not be negative"),
	)
}

// longest is an expiry age that surely is a mistake, and near the longest
// time.Duration.
const longest = 100 * 365 * 24 * time.Hour

// Store returns the settings of the usage store.
func (a *Aggregation) Store() usage.StoreConfig {
	return usage.StoreConfig{
		Shape: usage.NewProfileShape(a.CPUHalfLife, a.MemoryHalfLife),
		Rules: usage.Rules{
			OOMRatio:   a.OOMRatio,
			OOMMinBump: resources.FromFloat(a.OOMMinBump),
			Interval:   a.Interval,
			Count:      a.Count,
		},
	}
}

// ahead is how far the clocks of nodes, and of a recommender before us, may be
// ahead of ours.
const ahead = time.Hour

// Ahead returns how far the times of a checkpoint can be ahead. The decay refers
// to a time up to half a half-life after a sample, and a memory peak counts as of
// the end of its window, which is anywhere if VPAs may set its length.
func (a *Aggregation) Ahead(perVPA bool) checkpoint.Ahead {
	most := checkpoint.Ahead{Sample: ahead, CPU: ahead + a.CPUHalfLife}
	if !perVPA {
		most.Window = ahead + a.Interval
		most.Memory = most.Window + a.MemoryHalfLife
	}
	return most
}
