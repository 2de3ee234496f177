package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"loadline.dev/loadline/hack/cluster/instance"
)

const cgroups = "/sys/fs/cgroup"

// groupPrefix precedes the process ID and start time of the supervisor.
const groupPrefix = "loadline-node-"

// controllers are required by a kubelet. The names are from version 2.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// Group is the control group for the pods of a real node, with a folder in each hierarchy.
type Group struct {
	root string // parent of the hierarchies
	name string
}

// New removes stale groups and creates the group of this process, a supervisor.
func New() (Group, error) {
	if err := RemoveStale(); err != nil {
		return Group{}, err
	}
	self, err := instance.ProcessOf(os.Getpid())
	if err != nil {
		return Group{}, err
	}
	return create(cgroups, self)
}

func create(root string, supervisor instance.Process) (Group, error) {
	g := Group{root, fmt.Sprintf("%s%d-%d", groupPrefix, supervisor.PID, supervisor.Start)}
	parents, err := hierarchies(root)
	if err != nil {
		return g, err
	}
	for _, parent := range parents {
		if err := os.Mkdir(filepath.Join(parent, g.name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return g, errors.Join(fmt.Errorf("make control group: %w", err), g.Remove())
		}
	}
	return g, nil
}

// Path returns the path for kubelet flags.
func (g Group) Path() string { return "/" + g.name }

// hierarchies returns the root in version 2, and a folder for one or several controllers in version
// 1.
func hierarchies(root string) ([]string, error) {
	if offered, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); err == nil {
		for _, name := range controllers {
			if !strings.Contains(" "+strings.TrimSpace(string(offered))+" ", " "+name+" ") {
				return nil, fmt.Errorf("controller %s is not enabled for groups below %s (they have: %s)", name, root, strings.TrimSpace(string(offered)))
			}
		}
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	var found []string
	have := map[string]bool{}
	for _, entry := range entries {
		folder := filepath.Join(root, entry.Name())
		// Links such as cpuacct point to folders such as cpu,cpuacct.
		_, err := os.Stat(filepath.Join(folder, "cgroup.procs"))
		if err != nil {
			continue
		}
		for name := range strings.SplitSeq(entry.Name(), ",") {
			have[name] = true
		}
		if entry.IsDir() {
			found = append(found, folder)
		}
	}
	for _, name := range controllers {
		if !have[name] {
			return nil, fmt.Errorf("there is no control group hierarchy %s", filepath.Join(root, name))
		}
	}
	return found, nil
}

// Remove removes the group and its descendants after their processes have ended.
func (g Group) Remove() error {
	paths, err := filepath.Glob(filepath.Join(g.root, "*", g.name))
	if err != nil {
		return fmt.Errorf("find control groups: %w", err)
	}
	var problems []error
	for _, path := range append(paths, filepath.Join(g.root, g.name)) {
		problems = append(problems, removeTree(path))
	}
	return errors.Join(problems...)
}

// removeTree removes a group and its descendants. Its files disappear with it and cannot be
// removed.
func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove control group: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	// Killed processes leave their group a moment later.
	const patience = 5 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := os.Remove(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove control group: %w", err)
		}
	}
}

// RemoveStale removes the groups of killed supervisors.
func RemoveStale() error {
	return removeStale(cgroups)
}

func removeStale(root string) error {
	var problems []error
	for _, depth := range []string{"", "*"} {
		paths, err := filepath.Glob(filepath.Join(root, depth, groupPrefix+"*"))
		if err != nil {
			return fmt.Errorf("find control groups: %w", err)
		}
		for _, path := range paths {
			var owner instance.Process
			_, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(path), groupPrefix), "%d-%d", &owner.PID, &owner.Start)
			if err != nil || owner.Alive() {
				continue
			}
			problems = append(problems, removeTree(path))
		}
	}
	return errors.Join(problems...)
}
