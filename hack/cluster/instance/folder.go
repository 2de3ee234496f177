package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Folder is the folder of one instance.
type Folder string

const (
	stateFile = "cluster.json"
	lockFile  = "lock"
	// LogsDir contains a log file for each component.
	LogsDir = "logs"
	// pidsDir contains process ID and start time of each component.
	pidsDir = "pids"
)

// ErrRunning is returned if a supervisor or another command has locked the folder.
var ErrRunning = errors.New("in use")

// State is the stored state of an instance.
type State struct {
	Options Options        `json:"options"`
	Program string         `json:"program"`           // path of loadline-cluster
	Ports   map[string]int `json:"ports,omitempty"`   // by component, on 127.0.0.1
	Ready   bool           `json:"ready"`             // all components are up
	Stopped string         `json:"stopped,omitempty"` // reason of an unexpected stop
}

// Path returns a path inside the folder.
func (f Folder) Path(elements ...string) string {
	return filepath.Join(append([]string{string(f)}, elements...)...)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (f Folder) Kubeconfig() string { return f.Path("kubeconfig") }

// Log returns the path of a component's log file.
func (f Folder) Log(component string) string { return f.Path(LogsDir, component+".log") }

// Claim creates the folder and checks that it is empty or belongs to an earlier instance. Other
// folders, such as a home directory given by mistake, are unchanged.
func (f Folder) Claim() error {
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return fmt.Errorf("make folder: %w; choose another one with --dir", err)
	}
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return fmt.Errorf("read folder: %w; choose another one with --dir", err)
	}
	claimable := len(entries) == 0
	for _, entry := range entries {
		claimable = claimable || entry.Name() == stateFile || (entry.Name() == lockFile && len(entries) == 1)
	}
	if !claimable {
		return fmt.Errorf("%s contains unrelated files (no %s in it); choose a new or empty folder with --dir", f, stateFile)
	}
	return nil
}

// Lock locks the folder for this process and processes that inherit the file, or returns
// ErrRunning.
func (f Folder) Lock() (*os.File, error) {
	file, err := os.OpenFile(f.Path(lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w; choose another one with --dir", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrRunning
		}
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return file, nil
}

// Await waits for the lock.
func (f Folder) Await(patience time.Duration) (*os.File, error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		lock, err := f.Lock()
		if !errors.Is(err, ErrRunning) || time.Now().After(deadline) {
			return lock, err
		}
	}
}

// State reads the state file.
func (f Folder) State() (State, error) {
	var state State
	data, err := os.ReadFile(f.Path(stateFile))
	if err != nil {
		return state, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return state, fmt.Errorf("read %s: %w", f.Path(stateFile), err)
	}
	return state, nil
}

// Save replaces the state file atomically.
func (f Folder) Save(state State) error {
	data, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	temporary := f.Path(stateFile + ".new")
	if err := os.WriteFile(temporary, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(temporary, f.Path(stateFile)); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// Clear removes everything except the lock, the state and, with keepLogs, the logs.
func (f Folder) Clear(keepLogs bool) error {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return fmt.Errorf("clear folder: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == lockFile, name == stateFile, name == LogsDir && keepLogs:
		default:
			problems = append(problems, os.RemoveAll(f.Path(name)))
		}
	}
	return errors.Join(problems...)
}

// Remove removes the whole folder. Its lock must be held.
func (f Folder) Remove() error {
	if err := f.Clear(false); err != nil {
		return err
	}
	for _, path := range []string{f.Path(stateFile), f.Path(lockFile), string(f)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove folder: %w", err)
		}
	}
	return nil
}

// Tail returns the last lines of a component's log.
func (f Folder) Tail(component string, lines int) string {
	data, err := os.ReadFile(f.Log(component))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
