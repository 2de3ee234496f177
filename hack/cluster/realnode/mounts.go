package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// coveredFolders are folders that kubelet and containerd write to regardless of their
// configuration. The node has empty ones in their place.
var coveredFolders = []string{"/run", "/var/lib", "/var/log"}

// isolate must run in a new mount namespace. The folders in keep stay reachable.
func isolate(keep []string) error {
	// From now on mounts do not propagate to the machine.
	if err := mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	// Open folders below the covered ones, to mount them again.
	type kept struct {
		path string
		file *os.File
	}
	var hidden []kept
	for _, path := range keep {
		if !slices.ContainsFunc(coveredFolders, func(folder string) bool { return strings.HasPrefix(path, folder+"/") }) {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
		defer func() { _ = file.Close() }()
		hidden = append(hidden, kept{path, file})
	}
	for _, folder := range coveredFolders {
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
	// Mount /proc for this process namespace, with read-only kernel parameters.
	if err := mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := mount("/proc/sys", "/proc/sys", "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount("none", "/proc/sys", "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	return overlaySysctls()
}

// expectedSysctls are kernel parameters that a kubelet sets, or else exits.
var expectedSysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// overlaySysctls mounts files over kernel parameters, so that the machine is unchanged.
func overlaySysctls() error {
	for name, value := range expectedSysctls {
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

// share propagates mounts below a folder to containers that request it.
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
