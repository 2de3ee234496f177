package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"loadline.dev/loadline/hack/cluster/cgroup"
	"loadline.dev/loadline/hack/cluster/instance"
)

const (
	// politeStop is the time for the supervisor to stop all components.
	politeStop = 20 * time.Second
	// forcedStop is the time for the kernel to clean up after a killed supervisor.
	forcedStop = 5 * time.Second
)

// down stops an instance and removes its folder. If nothing runs, it only cleans up.
func down(c command) (int, error) {
	if _, err := os.Stat(string(c.folder)); errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("nothing to stop: there is no %s\n", c.folder)
		return 0, nil
	}
	if err := c.folder.Claim(); err != nil {
		return 1, err
	}
	began := time.Now()
	lock, err := c.folder.Lock()
	if errors.Is(err, instance.ErrRunning) {
		lock, err = stopSupervisor(c.folder)
	}
	if err != nil {
		return 1, err
	}
	defer func() { _ = lock.Close() }()
	if err := errors.Join(c.folder.KillLeftovers(), cgroup.RemoveStale()); err != nil {
		return 1, err
	}
	if c.keepLogs {
		err = c.folder.Clear(true)
	} else {
		err = c.folder.Remove()
	}
	if err != nil {
		return 1, err
	}
	fmt.Printf("stopped the cluster in %s (%.1fs)\n", c.folder, time.Since(began).Seconds())
	return 0, nil
}

// stopSupervisor kills the supervisor after a timeout, and returns its lock.
func stopSupervisor(f instance.Folder) (*os.File, error) {
	supervisor, err := f.Process("supervisor")
	for deadline := time.Now().Add(forcedStop); err != nil && time.Now().Before(deadline); {
		// A starting supervisor may not have written its pid file yet.
		time.Sleep(50 * time.Millisecond)
		supervisor, err = f.Process("supervisor")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is locked, but its supervisor is unknown: %w", f, err)
	}
	if err := supervisor.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	lock, err := f.Await(politeStop)
	if !errors.Is(err, instance.ErrRunning) {
		return lock, err
	}
	if err := supervisor.Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	if lock, err = f.Await(forcedStop); err != nil {
		return nil, fmt.Errorf("stop supervisor %d of %s: %w", supervisor.PID, f, err)
	}
	return lock, nil
}

func status(c command) (int, error) {
	state, err := c.folder.State()
	if err != nil {
		return 1, fmt.Errorf("no cluster in %s: %w", c.folder, err)
	}
	lock, err := c.folder.Lock()
	if err == nil {
		_ = lock.Close()
		reason := state.Stopped
		if reason == "" {
			reason = "it was killed"
		}
		return 1, fmt.Errorf("the cluster in %s does not run: %s", c.folder, reason)
	}
	if !errors.Is(err, instance.ErrRunning) {
		return 1, err
	}
	names, err := c.folder.Components()
	if err != nil {
		return 1, err
	}
	var total int64
	for _, name := range names {
		process, err := c.folder.Process(name)
		if err != nil {
			return 1, err
		}
		total += process.Memory()
		port := "-"
		if p := state.Ports[name]; p != 0 {
			port = fmt.Sprint(p)
		}
		fmt.Printf("%-24s pid %-8d port %-6s %5d MiB\n", name, process.PID, port, process.Memory()>>20)
	}
	fmt.Printf("%-24s %34d MiB\nkubeconfig: %s\n", "all", total>>20, c.folder.Kubeconfig())
	return 0, nil
}
