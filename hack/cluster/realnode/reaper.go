package realnode

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts processes and collects the ends of all, also of those that
// containerd left behind: they become children of the first process of the
// namespace, which is this one.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

// newReaper returns a reaper at work. There can be only one in a process, and
// nothing else may wait for children.
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

// start starts a command. Its end comes through the channel.
func (r *reaper) start(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	r.mu.Lock() // or a short-lived process might be collected before it is known
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.waiting[cmd.Process.Pid] = ended
	return ended, nil
}

// run starts a command and waits for its success.
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
