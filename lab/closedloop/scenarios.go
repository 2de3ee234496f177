package main

import (
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

func scenarios() []*Scenario {
	return []*Scenario{
		startBurst(), dailyBurst(), hourlyBurst(), rollouts(), scaleUp(), shortJobs(), shortestJobs(), hotCPU(),
		hotMemory(), leak(), cache(), weekly(),
	}
}

func usageAfterStart(usual, high float64, length time.Duration) func(now, age time.Duration) float64 {
	return func(_, age time.Duration) float64 {
		if age < length {
			return high
		}
		return usual
	}
}

func startBurst() *Scenario {
	return &Scenario{
		Name: "start-burst", Title: "A start burst",
		Description: "One pod that uses 0.1 cores. It is deployed anew once a day at ten, and its first two minutes need 2 cores.",
		Rationale:   "what it uses while it serves, and a fifth; the start is for a startup boost, or for what the node has to spare",
		Verdict:     "Both recipes do the same: two minutes a day are too few for `vpa`, and `loadline` leaves out the first three minutes of a container. With a startup boost the start is served as well.",
		Kind:        resources.CPU, Declared: 500, Expert: 125, Length: 8 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			l.addPod(0, 10*time.Hour, usageAfterStart(100, 2000, 2*time.Minute))
			for d := range 8 {
				from := time.Duration(d)*day + 10*time.Hour
				l.addPod(from, from+day, usageAfterStart(100, 2000, 2*time.Minute))
			}
		},
	}
}

func dailyBurst() *Scenario {
	return &Scenario{
		Name: "daily-burst", Title: "One burst in a day",
		Description: "One pod that uses 0.04 cores and, for three minutes in the afternoon of each day, 5 cores.",
		Rationale:   "what it uses all day, and a third; three minutes a day are no reason to keep five cores free",
		Verdict:     "Neither recipe serves it. If the three minutes matter, set `sustained-minutes=0`; else the container takes what the node has to spare, as long as no CPU limit forbids it.",
		Kind:        resources.CPU, Declared: 500, Expert: 55, Length: 8 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			l.addPod(0, 8*day, func(now, _ time.Duration) float64 {
				if isWithin(now, day, 14*time.Hour, 3*time.Minute) {
					return 5000
				}
				return 40
			})
		},
	}
}

func hourlyBurst() *Scenario {
	return &Scenario{
		Name: "hourly-burst", Title: "A burst each hour",
		Description: "One pod that uses 0.1 cores and, for five minutes of each hour, a whole one.",
		Rationale:   "nearly half of its work is in the bursts, and they come back each hour",
		Verdict:     "`vpa` counts time, and five minutes of an hour are too few for it; `loadline` weighs work, and sees the bursts from the third one on.",
		Kind:        resources.CPU, Declared: 500, Expert: 1050, Length: 10 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			l.addPod(0, 10*day, func(now, _ time.Duration) float64 {
				if isWithin(now, time.Hour, 20*time.Minute, 5*time.Minute) {
					return 1000
				}
				return 100
			})
		},
	}
}

func rollouts() *Scenario {
	return &Scenario{
		Name: "rollouts", Title: "A rollout each hour",
		Description: "Three pods that use 0.1 cores. Each hour all of them are deployed anew, one a minute, and the first 90 seconds of each need 2 cores.",
		Rationale:   "what they use while they serve, and a fifth; that they start often makes a start no load",
		Verdict:     "Both recipes do the same. Without `start-minutes` the starts of all pods together would be more than a quarter of an hour of high use within two days, and `loadline` would take them for work to serve. With a startup boost the starts are served as well.",
		Kind:        resources.CPU, Declared: 500, Expert: 125, Length: 10 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			for hour := range 10 * 24 {
				for replica := range 3 {
					from := time.Duration(hour)*time.Hour + time.Duration(replica)*time.Minute
					l.addPod(from, from+time.Hour, usageAfterStart(100, 2000, 90*time.Second))
				}
			}
		},
	}
}

func scaleUp() *Scenario {
	return &Scenario{
		Name: "scale-up", Title: "From two pods to twenty",
		Description: "Two pods at night, and from nine to eighteen twenty, added within ten minutes. Each uses 0.05 cores, and 2 cores in its first 90 seconds.",
		Rationale:   "what each uses while it serves, and a fifth",
		Verdict:     "Both recipes do the same.",
		Kind:        resources.CPU, Declared: 500, Expert: 65, Length: 6 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			for range 2 {
				l.addPod(0, 6*day, usageAfterStart(50, 2000, 90*time.Second))
			}
			for d := range 6 {
				for replica := range 18 {
					from := time.Duration(d)*day + 9*time.Hour + time.Duration(replica)*30*time.Second
					l.addPod(from, time.Duration(d)*day+18*time.Hour, usageAfterStart(50, 2000, 90*time.Second))
				}
			}
		},
	}
}

func shortJobs() *Scenario {
	return &Scenario{
		Name: "short-jobs", Title: "A job whose pods live for ten minutes",
		Description: "Each hour a new pod works for ten minutes at 0.8 cores, and is gone.",
		Rationale:   "the job needs it for all of its life",
		Verdict:     "Both recipes do the same.",
		Kind:        resources.CPU, Declared: 500, Expert: 880, Length: 4 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			for hour := range 4 * 24 {
				from := time.Duration(hour) * time.Hour
				l.addPod(from, from+10*time.Minute, usageAfterStart(800, 800, 0))
			}
		},
	}
}

func shortestJobs() *Scenario {
	return &Scenario{
		Name: "shortest-jobs", Title: "A job whose pods live for two minutes",
		Description: "Each ten minutes a new pod works for two minutes at 0.8 cores, and is gone.",
		Rationale:   "the job needs it for all of its life",
		Verdict:     "All the job does is within the start of a container. As nothing else is known of it, `loadline` goes by that.",
		Kind:        resources.CPU, Declared: 500, Expert: 880, Length: 2 * day, Settle: day, Step: 15 * time.Second,
		addPods: func(l *generator) {
			for from := time.Duration(0); from < 2*day; from += 10 * time.Minute {
				l.addPod(from, from+2*time.Minute, usageAfterStart(800, 800, 0))
			}
		},
	}
}

func hotCPU() *Scenario {
	return &Scenario{
		Name: "hot-cpu", Title: "One hot replica of ten: CPU",
		Description: "Ten pods, of which one has the busy shard: it uses 1 core, and the others 0.1 each.",
		Rationale:   "all get the same size; without a CPU limit the hot one takes what the nodes have to spare, and ten cores for the work of two are too many",
		Verdict:     "**Both recipes are bad here**: `loadline` sizes all pods for the hot one, as half of all work is done there, and so does `vpa`, as one of ten is just what it looks at. No one size is right for such a workload: spread the load, or make the hot replica a workload of its own.",
		Kind:        resources.CPU, Declared: 500, Expert: 250, Length: 4 * day, Settle: day, Step: time.Minute,
		addPods: func(l *generator) { l.addTenPods(0, 4*day, 1000, 100) },
	}
}

func hotMemory() *Scenario {
	return &Scenario{
		Name: "hot-memory", Title: "One hot replica of ten: memory",
		Description: "Ten pods with a memory limit, of which one has the large shard: it uses 1,200 MiB, and the others 400. All are deployed anew once a day.",
		Rationale:   "all get the same size, and a limit below the need of the hot one kills it",
		Verdict:     "`vpa` looks at what nine of ten need, so the hot one is killed all day, and the kills of one do not count either. `loadline` takes the highest of all pods. In its first day it asks for far too much: pods that differ look like one that is restless, and to that it gives room while it is new.",
		Kind:        resources.Memory, Declared: 1536 * mib, Expert: 1320 * mib, Limit: 1.2, Length: 6 * day, Settle: day, Step: time.Minute, MemoryByAge: true,
		addPods: func(l *generator) {
			for d := time.Duration(0); d < 6*day; d += day {
				l.addTenPods(d, d+day, 1200*mib, 400*mib)
			}
		},
	}
}

func (l *generator) addTenPods(from, to time.Duration, hot, usual float64) {
	l.addPod(from, to, usageAfterStart(hot, hot, 0))
	for range 9 {
		l.addPod(from, to, usageAfterStart(usual, usual, 0))
	}
}

func leak() *Scenario {
	grows := func(_, age time.Duration) float64 { return 300*mib + 12*mib*age.Hours() }
	return &Scenario{
		Name: "leak", Title: "A leak, and its end",
		Description: "One pod with a memory limit that begins with 300 MiB and leaks 12 MiB an hour. After eight days a new version is deployed that does not leak.",
		Rationale:   "twice what it needs without the leak: it is killed every second day until somebody mends it, and a node is not filled",
		Verdict:     "Neither recipe ends a leak: both follow it. Set `maxAllowed` to what the expert does. After the leak is mended `vpa` has forgotten it in three days; **`loadline` is bad here**: it remembers peaks for two weeks, and keeps what nobody needs for 13 days.",
		Kind:        resources.Memory, Declared: 512 * mib, Expert: 600 * mib, Limit: 1.2, Length: 28 * day, Settle: day, Step: time.Minute, MemoryByAge: true,
		addPods: func(l *generator) {
			l.addPod(0, 8*day, grows)
			l.addPod(8*day, 28*day, usageAfterStart(300*mib, 300*mib, 0))
		},
	}
}

func cache() *Scenario {
	return &Scenario{
		Name: "cache", Title: "A cache that fills",
		Description: "One pod with a memory limit that begins with 300 MiB and fills a cache of 1,200 MiB within a day, most of it in the first hours. It is deployed anew every four days.",
		Rationale:   "a full cache and a tenth: it will be full again after each start",
		Verdict:     "Both recipes do the same. A new pod begins with room for a full cache.",
		Kind:        resources.Memory, Declared: 512 * mib, Expert: 1650 * mib, Limit: 1.2, Length: 16 * day, Settle: day, Step: time.Minute, MemoryByAge: true,
		addPods: func(l *generator) {
			for d := time.Duration(0); d < 16*day; d += 4 * day {
				l.addPod(d, d+4*day, func(_, age time.Duration) float64 {
					return 300*mib + 1200*mib*(1-math.Exp2(-age.Hours()/4))
				})
			}
		},
	}
}

func weekly() *Scenario {
	return &Scenario{
		Name: "weekly", Title: "A weekly job",
		Description: "One pod with a memory limit that uses 400 MiB and, for two hours early on each Sunday, 1,200 MiB.",
		Rationale:   "the job and a tenth: whatever it has on the other days, it needs that on Sunday",
		Verdict:     "`vpa` has forgotten the job after three days. `loadline` gives room for the second-highest peak of 14 days and of the same hours two weeks ago, so it is killed on two Sundays, and from the third one on it is ready; the two kills here are of the second Sunday.",
		Kind:        resources.Memory, Declared: 512 * mib, Expert: 1320 * mib, Limit: 1.2, Length: 42 * day, Settle: 10 * day, Step: time.Minute,
		addPods: func(l *generator) {
			l.addPod(0, 42*day, func(now, _ time.Duration) float64 {
				if isWithin(now, 7*day, 6*day+2*time.Hour, 2*time.Hour) {
					return 1200 * mib
				}
				return 400 * mib
			})
		},
	}
}
