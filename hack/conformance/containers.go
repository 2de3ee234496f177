package main

import (
	"fmt"
	"time"

	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// aggregation holds settings that differ from the flag defaults.
type aggregation struct {
	MemoryAggregationIntervalSeconds          *float64
	MemoryAggregationIntervalCount            *int64
	MemoryHalfLifeSeconds, CPUHalfLifeSeconds *float64
	OOMBumpUpRatio, OOMMinBumpUpBytes         *float64
}

func (a aggregation) config() usage.StoreConfig {
	const day = 24 * time.Hour
	c := usage.DefaultConfig()
	c.Shape = usage.NewProfileShape(vectors.SecondsOr(a.CPUHalfLifeSeconds, day), vectors.SecondsOr(a.MemoryHalfLifeSeconds, day))
	c.Rules.Interval = vectors.SecondsOr(a.MemoryAggregationIntervalSeconds, c.Rules.Interval)
	c.Rules.Count = vectors.ValueOr(a.MemoryAggregationIntervalCount, c.Rules.Count)
	c.Rules.OOMRatio = vectors.ValueOr(a.OOMBumpUpRatio, c.Rules.OOMRatio)
	c.Rules.OOMMinBump = resources.FromFloat(vectors.ValueOr(a.OOMMinBumpUpBytes, float64(c.Rules.OOMMinBump)))
	return c
}

type event struct {
	Type   string
	Time   time.Time
	Amount resources.Amount
}

func (e event) feed(store *usage.Store, c usage.ContainerKey) (usage.Reason, error) {
	switch e.Type {
	case "cpu":
		return store.Observe(usage.Sample{Container: c, Kind: resources.CPU, At: e.Time, Amount: e.Amount}), nil
	case "usage":
		return store.Observe(usage.Sample{Container: c, Kind: resources.Memory, At: e.Time, Amount: e.Amount}), nil
	case "oom":
		return store.ObserveOOM(usage.OOM{Container: c, At: e.Time, Memory: e.Amount}), nil
	}
	return "", fmt.Errorf("input: event type %q is unknown", e.Type)
}

type containerInput struct {
	Aggregation aggregation
	Events      []event
	Percentiles []float64
}

type containerStep struct {
	Accepted    bool             `json:"accepted"`
	CurrentPeak resources.Amount `json:"currentPeak"`
	WindowEnd   time.Time        `json:"windowEnd"`
}

type containerOutput struct {
	Steps             []containerStep `json:"steps"`
	Memory            histogramOutput `json:"memory"`
	CPU               histogramOutput `json:"cpu"`
	TotalSamplesCount int64           `json:"totalSamplesCount"`
}

func container(in containerInput) (out containerOutput, err error) {
	config := in.Aggregation.config()
	store := usage.NewStore(config)
	key := usage.ContainerKey{Namespace: "ns", Pod: "pod", Container: "app"}
	series, _ := store.Track(key, usage.SeriesKey{Namespace: "ns", Container: "app"}, time.Time{})
	for _, e := range in.Events {
		reason, err := e.feed(store, key)
		if err != nil {
			return out, err
		}
		peak, end, _ := store.Peak(key)
		out.Steps = append(out.Steps, containerStep{reason == usage.Accepted, peak, end})
	}
	p := usage.NewProfile(config.Shape)
	store.Profile(&p, series)
	out.Memory, out.CPU = dump(&p.Memory, in.Percentiles), dump(&p.CPU, in.Percentiles)
	out.TotalSamplesCount = p.Samples()
	return out, nil
}
