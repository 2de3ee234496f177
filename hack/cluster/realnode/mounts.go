package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// covered are the folders of the machine that kubelet and containerd write to
// whatever they are told. The node has empty ones of its own in their place.
var covered = []string{"/run", "/var/lib", "/var/log"}

// isolate makes the mounts of the node. It must run in a mount namespace of its
// own. The folders in keep stay reachable, wherever they are.
func isolate(keep []string) error {
	// From here on nothing goes out to the machine.
	if err := mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	// Folders below those that are covered are reached through open files.
	type kept struct {
		path string
		file *os.File
	}
	var hidden []kept
	for _, path := range keep {
		if !slices.ContainsFunc(covered, func(folder string) bool { return strings.HasPrefix(path, folder+"/") }) {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
		defer func() { _ = file.Close() }()
		hidden = append(hidden, kept{path, file})
	}
	for _, folder := range covered {
		if err := mount("tmpfs", folder, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	for _, k := range hidden {
		if err := os.MkdirAll(k.path, 0o755); err != nil {
			return fmt.Errorf("keep %s: %w", k.path, err)
		}
		if err := mount(fmt.Sprintf("/proc/self/fd/%d", k.file.Fd()), k.path, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return err
		}
	}
	// The processes of this namespace, and kernel parameters that only can be read.
	if err := mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := mount("/proc/sys", "/proc/sys", "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount("none", "/proc/sys", "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	return pretend()
}

// wanted are kernel parameters that a kubelet sets where they are different. It
// ends when it cannot.
var wanted = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// pretend shows the kubelet parameters as it wants them, by files in their
// places, while the machine keeps its own.
func pretend() error {
	for name, value := range wanted {
		path := filepath.Join("/run", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(path, []byte(value+"\n"), 0o444); err != nil {
			return fmt.Errorf("pretend kernel parameter %s: %w", name, err)
		}
		if err := mount(path, filepath.Join("/proc/sys", name), "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// share lets mounts below a folder be seen by containers that ask for them.
func share(folder string) error {
	if err := mount(folder, folder, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	return mount("none", folder, "", syscall.MS_REC|syscall.MS_SHARED, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}
