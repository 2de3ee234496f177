package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// packages are those of the distribution that a node is made of. They are only
// unpacked: nothing is installed.
var packages = []string{"containerd", "runc"}

// downloadTime is how long one call of apt-get or dpkg may take.
const downloadTime = 3 * time.Minute

// Runtime holds the folders of the unpacked packages.
type Runtime []string

// Fetch returns the packages of the distribution, unpacked in the user's cache
// directory in folders named after their versions. What is there is not fetched
// again.
func Fetch(ctx context.Context) (Runtime, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache directory: %w", err)
	}
	var runtime Runtime
	for _, name := range packages {
		folder, err := fetch(ctx, filepath.Join(cache, "loadline"), name)
		if err != nil {
			return nil, fmt.Errorf("package %s of the distribution cannot be had: %w", name, err)
		}
		runtime = append(runtime, folder)
	}
	return runtime, nil
}

// Program returns the path of a program of the packages.
func (r Runtime) Program(name string) (string, error) {
	for _, folder := range r {
		for _, place := range []string{"usr/bin", "usr/sbin"} {
			path := filepath.Join(folder, place, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("program %s is in none of %s", name, strings.Join(r, ", "))
}

func fetch(ctx context.Context, parent, name string) (string, error) {
	file, err := packageFile(ctx, name)
	if err != nil {
		// Without the package lists, what was unpacked before will do.
		if known, _ := filepath.Glob(filepath.Join(parent, name+"_*")); len(known) > 0 {
			return known[len(known)-1], nil
		}
		return "", err
	}
	folder := filepath.Join(parent, strings.TrimSuffix(file, ".deb"))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(parent, "unpacking-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if _, err := output(ctx, work, "apt-get", "download", name); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(work, name+"_*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("apt-get download left %v: want one package", files)
	}
	if _, err := output(ctx, work, "dpkg", "-x", files[0], "root"); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(work, "root"), folder); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return folder, nil
}

// packageFile returns the name of the newest package, NAME_VERSION_ARCH.deb. A
// machine that never fetched the package lists fetches them.
func packageFile(ctx context.Context, name string) (string, error) {
	ask := func() (string, error) { return output(ctx, "", "apt-get", "download", "--print-uris", name) }
	line, err := ask()
	if err != nil {
		if _, failed := output(ctx, "", "apt-get", "update"); failed != nil {
			return "", errors.Join(err, failed)
		}
		line, err = ask()
	}
	if err != nil {
		return "", err
	}
	return fileOf(line)
}

// fileOf reads the name out of what apt-get prints:
//
//	'http://…/runc_1.1.5%2bds1-1_amd64.deb' runc_1.1.5+ds1-1_amd64.deb 2709960 SHA256:…
func fileOf(line string) (string, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasSuffix(fields[1], ".deb") {
		return "", fmt.Errorf("apt-get prints %q: want the URI and the name of a package", line)
	}
	return filepath.Base(fields[1]), nil
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
