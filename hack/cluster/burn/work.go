package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"
)

const (
	period = 20 * time.Millisecond
	// maxDebt bounds the missed work that a thread makes up for. A larger bound would hide a CPU
	// limit.
	maxDebt = 200 * time.Millisecond
)

type meter struct {
	owed time.Duration // due, unused CPU time
	at   time.Duration // since program start
	used time.Duration // CPU time of the thread
}

// due returns the CPU time to use now. cores is the thread's average since the last call, 0 to 1.
func (m *meter) due(cores float64, elapsed, used time.Duration) time.Duration {
	m.owed += time.Duration(cores*float64(elapsed-m.at)) - (used - m.used)
	m.owed = min(m.owed, maxDebt)
	m.at, m.used = elapsed, used
	return max(0, m.owed)
}

// share returns the cores of one thread. The first threads are fully busy, and the last takes the
// rest.
func share(cores float64, thread int) float64 {
	return math.Min(1, math.Max(0, cores-float64(thread)))
}

func spend(cpu schedule, thread int, began time.Time, done <-chan struct{}) {
	runtime.LockOSThread() // threadTime measures the current thread
	m := meter{used: threadTime()}
	for {
		elapsed := time.Since(began)
		used := threadTime()
		target := used + m.due(share(cpu.at(elapsed), thread), elapsed, used)
		for threadTime() < target {
			// The loop itself is the work.
		}
		select {
		case <-done:
			return
		case <-time.After(period):
		}
	}
}

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		panic(err) // impossible with these arguments
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// chunk is the granularity of memory changes, in bytes.
const chunk = 1 << 20

type mappedMemory [][]byte

// adjust maps or unmaps memory until it holds bytes, rounded up to chunks. It writes to each page,
// because the kernel allocates a page at its first use.
func (h *mappedMemory) adjust(bytes float64) error {
	chunks := int(math.Ceil(bytes / chunk))
	for len(*h) < chunks {
		pages, err := syscall.Mmap(-1, 0, chunk, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return fmt.Errorf("take memory: %w", err)
		}
		for i := 0; i < len(pages); i += os.Getpagesize() {
			pages[i] = 1
		}
		*h = append(*h, pages)
	}
	for len(*h) > chunks {
		last := len(*h) - 1
		if err := syscall.Munmap((*h)[last]); err != nil {
			return fmt.Errorf("give memory back: %w", err)
		}
		*h = (*h)[:last]
	}
	return nil
}

func (p plan) run(stop <-chan os.Signal) error {
	began := time.Now()
	done := make(chan struct{})
	defer close(done)
	for thread := range int(math.Ceil(p.cpu.peak())) {
		go spend(p.cpu, thread, began, done)
	}
	if len(p.memory) == 0 {
		<-stop
		return nil
	}
	var memory mappedMemory
	for tick := time.NewTicker(5 * period); ; {
		if err := memory.adjust(p.memory.at(time.Since(began))); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}
