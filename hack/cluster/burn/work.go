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
	// period is how often a thread looks at the schedule.
	period = 20 * time.Millisecond
	// mostDebt is how much work that a busy machine or a cpu limit kept a thread
	// from doing is made up for later. More would hide that there is a limit.
	mostDebt = 200 * time.Millisecond
)

// meter decides how long one thread works in the next period.
type meter struct {
	owed time.Duration // cpu time that is due and not yet spent
	at   time.Duration // since the start of the program
	used time.Duration // cpu time of the thread
}

// due returns the cpu time to spend now. cores is the thread's share, 0 to 1,
// since the last call; elapsed and used are the clocks of the program and the thread.
func (m *meter) due(cores float64, elapsed, used time.Duration) time.Duration {
	m.owed += time.Duration(cores*float64(elapsed-m.at)) - (used - m.used)
	m.owed = min(m.owed, mostDebt)
	m.at, m.used = elapsed, used
	return max(0, m.owed)
}

// share is the part of all cores that one thread uses: the first ones are fully
// busy, the last takes the rest.
func share(cores float64, thread int) float64 {
	return math.Min(1, math.Max(0, cores-float64(thread)))
}

// spend burns cpu as one of the plan's threads, until done is closed.
func spend(cpu schedule, thread int, began time.Time, done <-chan struct{}) {
	runtime.LockOSThread() // the cpu clock is the thread's
	m := meter{used: threadTime()}
	for {
		elapsed := time.Since(began)
		used := threadTime()
		target := used + m.due(share(cpu.at(elapsed), thread), elapsed, used)
		for threadTime() < target {
			// The question itself is the work.
		}
		select {
		case <-done:
			return
		case <-time.After(period):
		}
	}
}

// threadTime is the cpu time of the calling thread so far.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		panic(err) // the kernel knows the question and the address is good
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// chunk is what memory grows and shrinks by, in bytes.
const chunk = 1 << 20

// held is the memory the program has taken.
type held [][]byte

// adjust takes or gives back memory until it holds bytes, rounded up to whole
// chunks. What is taken is written to: the kernel gives a page when it is used.
func (h *held) adjust(bytes float64) error {
	want := int(math.Ceil(bytes / chunk))
	for len(*h) < want {
		pages, err := syscall.Mmap(-1, 0, chunk, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return fmt.Errorf("take memory: %w", err)
		}
		for i := 0; i < len(pages); i += os.Getpagesize() {
			pages[i] = 1
		}
		*h = append(*h, pages)
	}
	for len(*h) > want {
		last := len(*h) - 1
		if err := syscall.Munmap((*h)[last]); err != nil {
			return fmt.Errorf("give memory back: %w", err)
		}
		*h = (*h)[:last]
	}
	return nil
}

// run follows the plan until a value arrives at stop.
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
	var memory held
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
