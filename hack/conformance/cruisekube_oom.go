package main

import (
	"time"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/core/sketch"
)

const (
	perMebibyte = 1 << 20
	// usedAtKill is the usage before a kill, which the cases do not specify.
	usedAtKill resources.Amount = 300 * perMebibyte
	oomAge                      = 7 * 24 * time.Hour
)

type sharedOOMInput struct {
	CooldownMinutes                                 int
	ExcludedAnnotation, MemoryApplicationDisabled   bool
	MemoryLimitBytes                                int64
	MinutesSinceLastOOM                             *float64
	OverrideDisabled, PodMissing, StatisticsMissing bool
}

type sharedOOMOutput struct {
	Recorded          bool `json:"recorded"`
	StatisticsUpdated bool `json:"statisticsUpdated"`
	Evicted           bool `json:"evicted"`
	// ResizedInPlace is specific to Loadline: the resize comes first, so that no pod is evicted in
	// these cases.
	ResizedInPlace  bool     `json:"resizedInPlace,omitempty"`
	StoredOOMMemory *float64 `json:"storedOOMMemory,omitempty"` // in MiB, as in the cases
}

// sharedOOM returns the reaction to an out-of-memory kill of an evictable pod, on a node with room
// for more memory.
func sharedOOM(in sharedOOMInput) (out sharedOOMOutput, err error) {
	k := sharing.OOMKill{
		At: now, Recommended: !in.StatisticsMissing, Shared: !in.MemoryApplicationDisabled, Gone: in.PodMissing,
		Excluded: in.ExcludedAnnotation, Off: in.OverrideDisabled, Evict: true,
	}
	if in.MinutesSinceLastOOM != nil {
		k.Recorded = now.Add(-time.Duration(*in.MinutesSinceLastOOM * float64(time.Minute)))
	}
	answer := sharing.RespondToOOM(k)
	out = sharedOOMOutput{
		Recorded: answer.Recorded, StatisticsUpdated: answer.Recorded && answer.Reason != reason.NoRecommendation,
		ResizedInPlace: answer.Reason == "", Evicted: answer.MayEvict && answer.Reason != "",
	}
	if out.StatisticsUpdated {
		out.StoredOOMMemory = new(float64(memoryAtKill(resources.Amount(in.MemoryLimitBytes))) / perMebibyte)
	}
	return out, nil
}

// memoryAtKill returns the memory that the recipe derives from a kill of a container with a limit,
// 0 without a limit.
func memoryAtKill(limit resources.Amount) resources.Amount {
	s := sketch.New(sketch.Needs{Hours: [resources.Kinds]bool{resources.Memory: true}, Kills: true})
	s.Observe(now.Add(-time.Minute), resources.Memory, usedAtKill, limit)
	s.ObserveKill(now, 0, limit)
	return recipe.Chain{recipe.AtKill(oomAge)}.Run(recipe.Subject{Sketch: s}, nil)
}
