package play

import (
	"math"
	"time"
)

const (
	// startupCPU is what starting any process costs, in core seconds. Real
	// counters are never 0 either, and metrics-server drops a pod whose is.
	startupCPU = 0.02
	// smallest memory a process can have: one page, in bytes.
	smallestMemory = 4096
	// A container lives at least this long before it is killed for memory, so
	// that a hopeless limit does not make a restart every second.
	shortestLife = 5 * time.Second
	// A restarted container begins with this share of the memory it had.
	restartShare = 0.1
)

// Limits of a container; 0 means none.
type Limits struct {
	CPU    float64 // cores
	Memory float64 // bytes
}

// Meter measures one container, as the kernel does: cpu seconds used since the
// container started, and the memory it has now.
type Meter struct {
	Started    time.Time // of the container, not of the pod
	At         time.Time // of the last step
	CPUSeconds float64
	Memory     float64 // bytes
}

// Life is what the meter must know about the container at the end of a step.
type Life struct {
	PodStarted time.Time // second 0 of the trace
	Started    time.Time // of the container; later than the pod's after a restart
	Restarted  bool
	Limits     Limits
}

// Step moves the meter to now and reports whether memory went over its limit
// in the meantime. Cpu never exceeds its limit. A restart sets the counter back
// while the trace goes on, and memory grows from a tenth to what the trace says
// in the demand's ramp: so a limit that is too low is hit again and again.
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
	m.Memory = math.Max(smallestMemory, last*share)
	if limit := life.Limits.Memory; limit > 0 {
		overLimit = peak*share > limit && age >= shortestLife
		m.Memory = math.Min(m.Memory, limit)
	}
	return overLimit
}
