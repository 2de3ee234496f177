package realnode

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts and waits for processes. Orphans of containerd become children of this process, the
// first of its namespace.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

// newReaper starts the only reaper of a process. Nothing else may wait for children.
func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan syscall.WaitStatus{}}
	ends := make(chan os.Signal, 16)
	signal.Notify(ends, syscall.SIGCHLD)
	go func() {
		for range ends {
			r.collect()
		}
	}()
	return r
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
		if waiting, ours := r.waiting[pid]; ours {
			waiting <- status
			delete(r.waiting, pid)
		}
	}
}

func (r *reaper) start(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	r.mu.Lock() // do not collect a short-lived process before it is added
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.waiting[cmd.Process.Pid] = ended
	return ended, nil
}

func (r *reaper) run(cmd *exec.Cmd) error {
	ended, err := r.start(cmd)
	if err != nil {
		return err
	}
	if status := <-ended; status.ExitStatus() != 0 {
		return fmt.Errorf("%s: %s", cmd, describe(status))
	}
	return nil
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "killed by signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
