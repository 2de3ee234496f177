package play

import (
	"math"
	"time"
)

const (
	// startupCPU is the usage of a process start in core-seconds. metrics-server drops a pod with a
	// counter of 0.
	startupCPU = 0.02
	// minMemory is one page, the memory of the smallest process, in bytes.
	minMemory = 4096
	// minLifetime prevents a restart every second because of a very low limit.
	minLifetime = 5 * time.Second
	// restartShare is the part of its former memory with which a restarted container begins.
	restartShare = 0.1
)

// Limits of a container. 0 means none.
type Limits struct {
	CPU    float64 // cores
	Memory float64 // bytes
}

// Meter measures the CPU seconds since container start, and the current memory.
type Meter struct {
	Started    time.Time // container start, not pod start
	At         time.Time // time of the last step
	CPUSeconds float64
	Memory     float64 // bytes
}

// Life is the state of a container at the end of a step.
type Life struct {
	PodStarted time.Time // second 0 of the trace
	Started    time.Time // container start; later than PodStarted after a restart
	Restarted  bool
	Limits     Limits
}

// Step advances the meter to now and reports whether memory exceeded its limit meanwhile. CPU is
// capped at its limit. A restart resets the counter, but the trace continues. Memory then grows
// from a tenth to the amount of the trace during the demand's ramp, so a limit that is too low is
// hit again and again.
func (m *Meter) Step(now time.Time, demand Demand, life Life) (overLimit bool) {
	if !life.Started.Equal(m.Started) || m.At.Before(life.Started) {
		*m = Meter{Started: life.Started, At: life.Started, CPUSeconds: startupCPU}
	}
	if now.Before(m.At) {
		now = m.At
	}
	ceiling := life.Limits.CPU
	if ceiling == 0 {
		ceiling = math.Inf(1)
	}
	var peak, last float64
	see := func(cpu, memory, seconds float64) {
		m.CPUSeconds += math.Min(cpu, ceiling) * seconds
		peak, last = math.Max(peak, memory), memory
	}
	if demand.Trace == nil {
		see(demand.CPU, demand.Memory, now.Sub(m.At).Seconds())
	} else {
		from := demand.Offset + math.Max(0, m.At.Sub(life.PodStarted).Seconds())*demand.Speed
		to := demand.Offset + math.Max(0, now.Sub(life.PodStarted).Seconds())*demand.Speed
		demand.Trace.Visit(from, to, func(cpu, memory, seconds float64) { see(cpu, memory, seconds/demand.Speed) })
	}
	m.At = now

	age := now.Sub(life.Started)
	share := 1.0
	if life.Restarted && age < demand.Ramp {
		share = restartShare + (1-restartShare)*age.Seconds()/demand.Ramp.Seconds()
	}
	m.Memory = math.Max(minMemory, last*share)
	if limit := life.Limits.Memory; limit > 0 {
		overLimit = peak*share > limit && age >= minLifetime
		m.Memory = math.Min(m.Memory, limit)
	}
	return overLimit
}
