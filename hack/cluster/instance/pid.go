package instance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process identifies a process by ID and start time, because IDs are reused.
type Process struct {
	PID   int
	Start uint64 // clock ticks since boot
}

// statStart is the position of the start time in /proc/PID/stat, counted from the first field after
// the name in parentheses.
const statStart = 19

// ProcessOf returns a running process by its ID.
func ProcessOf(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// The name may contain spaces and parentheses.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= statStart {
		return Process{}, fmt.Errorf("process %d: want %d fields in its stat file, got %q", pid, statStart+1, data)
	}
	start, err := strconv.ParseUint(fields[statStart], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: start time: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether the process still runs. A zombie does not.
func (p Process) Alive() bool {
	now, err := ProcessOf(p.PID)
	if err != nil || now != p {
		return false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return false
	}
	state := bytes.TrimSpace(data[bytes.LastIndexByte(data, ')')+1:])
	return len(state) > 0 && state[0] != 'Z'
}

// Signal sends a signal if the process still runs.
func (p Process) Signal(signal syscall.Signal) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// Memory returns the resident set size in bytes, 0 if the process has ended.
func (p Process) Memory() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// SavePID writes the pid file of a component.
func (f Folder) SavePID(name string, pid int) error {
	process, err := ProcessOf(pid)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Path(pidsDir), 0o755); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	text := fmt.Sprintf("%d %d\n", process.PID, process.Start)
	if err := os.WriteFile(f.Path(pidsDir, name+".pid"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}

// Process reads the pid file of a component.
func (f Folder) Process(name string) (Process, error) {
	var process Process
	path := f.Path(pidsDir, name+".pid")
	data, err := os.ReadFile(path)
	if err != nil {
		return process, fmt.Errorf("read pid file: %w", err)
	}
	if _, err := fmt.Sscanf(string(data), "%d %d", &process.PID, &process.Start); err != nil || process.PID <= 1 {
		return Process{}, fmt.Errorf("%s: want a process number and its start time, got %q", path, data)
	}
	return process, nil
}

// KillLeftovers kills all processes with a pid file. Normally the kernel kills them with their
// supervisor.
func (f Folder) KillLeftovers() error {
	names, err := f.Components()
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		process, err := f.Process(name)
		if err == nil {
			err = process.Signal(syscall.SIGKILL)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Components returns the sorted names of components with a pid file.
func (f Folder) Components() ([]string, error) {
	paths, err := filepath.Glob(f.Path(pidsDir, "*.pid"))
	if err != nil {
		return nil, fmt.Errorf("list pid files: %w", err)
	}
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".pid"))
	}
	return names, nil
}
