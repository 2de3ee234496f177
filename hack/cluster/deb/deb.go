package deb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Packages for a real node.
var (
	// Runtime is the container runtime.
	Runtime = []string{"containerd", "runc"}
	// Network contains the plugins that connect pods, and nft with its libraries for packet filter
	// rules.
	Network = []string{"containernetworking-plugins", "nftables", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libgmp10", "libedit2", "libxtables12", "libbsd0", "libmd0"}
)

const downloadTime = 3 * time.Minute

// Unpacked lists the folders of unpacked packages.
type Unpacked []string

// Fetch downloads packages of the distribution and unpacks them in the user's cache directory. The
// names of the folders contain the version, so that existing packages are reused.
func Fetch(ctx context.Context, packages ...string) (Unpacked, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache directory: %w", err)
	}
	parent := filepath.Join(cache, "loadline")
	newest, err := newestFiles(ctx, packages)
	if err != nil {
		// Without the package lists, use packages that were unpacked before.
		if known := unpacked(parent, packages); known != nil {
			return known, nil
		}
		return nil, fmt.Errorf("fetch packages %v of the distribution: %w", packages, err)
	}
	var all Unpacked
	for i, name := range packages {
		folder, err := fetch(ctx, parent, name, newest[i])
		if err != nil {
			return nil, fmt.Errorf("fetch package %s of the distribution: %w", name, err)
		}
		all = append(all, folder)
	}
	return all, nil
}

// unpacked returns nil if any package is missing.
func unpacked(parent string, packages []string) Unpacked {
	var all Unpacked
	for _, name := range packages {
		known, err := filepath.Glob(filepath.Join(parent, name+"_*"))
		if err != nil || len(known) == 0 {
			return nil
		}
		all = append(all, known[len(known)-1])
	}
	return all
}

// Program returns the path of a program in the packages.
func (r Unpacked) Program(name string) (string, error) {
	for _, folder := range r {
		for _, place := range []string{"usr/bin", "usr/sbin", "usr/lib/cni"} {
			path := filepath.Join(folder, place, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("program %s is in none of %s", name, strings.Join(r, ", "))
}

// Libraries returns the folders with shared libraries.
func (r Unpacked) Libraries() (folders []string) {
	for _, folder := range r {
		for _, place := range []string{"usr/lib", "lib"} {
			found, _ := filepath.Glob(filepath.Join(folder, place, "*-linux-gnu*")) // the pattern is well-formed
			folders = append(folders, found...)
		}
	}
	return folders
}

func fetch(ctx context.Context, parent, name, file string) (string, error) {
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

// newestFiles returns the file names of the newest versions, in the order of packages. It updates
// the package lists if they are missing.
func newestFiles(ctx context.Context, packages []string) ([]string, error) {
	ask := func() (string, error) {
		return output(ctx, "", "apt-get", append([]string{"download", "--print-uris"}, packages...)...)
	}
	lines, err := ask()
	if err != nil {
		if _, failed := output(ctx, "", "apt-get", "update"); failed != nil {
			return nil, errors.Join(err, failed)
		}
		lines, err = ask()
	}
	if err != nil {
		return nil, err
	}
	return filesOf(lines, packages)
}

// filesOf parses the file names in the output of apt-get, which has a line for each package:
//
//	'http://…/runc_1.1.5%2bds1-1_amd64.deb' runc_1.1.5+ds1-1_amd64.deb 2709960 SHA256:…
func filesOf(lines string, packages []string) ([]string, error) {
	found := make([]string, len(packages))
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		for i, name := range packages {
			if len(fields) > 1 && strings.HasPrefix(fields[1], name+"_") && strings.HasSuffix(fields[1], ".deb") {
				found[i] = filepath.Base(fields[1])
			}
		}
	}
	if slices.Contains(found, "") {
		return nil, fmt.Errorf("apt-get prints %q: want the URI and the name of each of the packages %v", lines, packages)
	}
	return found, nil
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
