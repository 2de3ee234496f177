// Command release builds everything that is published of a version. Two runs on the same commit
// with the same Go give the same bytes.
//
//	release -version v0.1.0
//
// It is started in the root folder of the project. Below -out it writes
//
//	PROGRAM-VERSION-OS-ARCH.tar.gz       a program, with LICENSE and README.md
//	PROGRAM-VERSION-OS-ARCH.spdx.json    what the program is made of
//	images/                              what `make images` writes, tagged with the version
//	loadline-VERSION.tgz                 the chart; Helm wants its version without the v
//	loadline-VERSION.yaml                deploy/loadline.yaml, with the images of the version
//	loadline-deploy-VERSION.tar.gz       the folder deploy, with the images of the version
//	SHA256SUMS                           the sums of all files above
//
// and removes what was there before. The three daemons are called loadline-recommender and so on there,
// and the plugin kubectl-loadline. docs/release.md is the page about it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/semver"

	"loadline.dev/loadline/hack/images/build"
)

const plugin = "kubectl-loadline"

// settings are what a release is built with.
type settings struct {
	version         string
	out             string
	platforms       string // of the daemons
	pluginPlatforms string
	allowDirty      bool
}

func main() {
	var s settings
	flag.StringVar(&s.version, "version", "", "version of the release, such as v0.1.0")
	flag.StringVar(&s.out, "out", "dist/release", "folder for the release; what is there is removed")
	flag.StringVar(&s.platforms, "platforms", "linux/amd64,linux/arm64", "platforms of the daemons and images, separated by commas")
	flag.StringVar(&s.pluginPlatforms, "plugin-platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64", "platforms of the plugin, separated by commas")
	flag.BoolVar(&s.allowDirty, "allow-dirty", false, "build from files that are not committed, too; programs then say so")
	flag.Parse()
	if err := run(s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(s settings, log io.Writer) error {
	of, err := build.Commit()
	if err != nil {
		return err
	}
	said, err := checked(s, of)
	if err != nil {
		return err
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only, see -h", flag.Arg(0))
	}
	platforms, err := build.Platforms(s.platforms)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}
	pluginPlatforms, err := build.Platforms(s.pluginPlatforms)
	if err != nil {
		return fmt.Errorf("-plugin-platforms: %w", err)
	}
	work, err := os.MkdirTemp("", "loadline-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.RemoveAll(s.out); err != nil {
		return err
	}
	r := release{
		Builder: build.Builder{Source: of, Version: said, Work: work, Log: log},
		version: s.version, out: s.out,
	}
	if err := r.Images(filepath.Join(s.out, "images"), s.version, platforms); err != nil {
		return err
	}
	for _, program := range build.Daemons {
		if err := r.program(program, "loadline-"+program, platforms); err != nil {
			return err
		}
	}
	if err := r.program(plugin, plugin, pluginPlatforms); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	if err := r.manifests(); err != nil {
		return err
	}
	return build.WriteSums(s.out)
}

// checked returns which version programs say, or why nothing may be released.
func checked(s settings, of build.Source) (said string, err error) {
	// Tags of images have no place for what may follow a plus.
	if semver.Canonical(s.version) != s.version || s.version == "" {
		return "", fmt.Errorf("VERSION=%q is no semantic version such as v0.1.0 or v0.2.0-rc.1", s.version)
	}
	if of.Changes == "" {
		return s.version, nil
	}
	if !s.allowDirty {
		return "", fmt.Errorf("the working tree has changes that are not committed; commit them, or build with ALLOW_DIRTY=1 what is not for others:\n%s", of.Changes)
	}
	return s.version + "+dirty", nil
}

// release is a version that is being built.
type release struct {
	build.Builder
	version string
	out     string
}

// program writes the archives of a program and what it is made of, under the given name.
func (r *release) program(program, name string, platforms []*v1.Platform) error {
	for _, platform := range platforms {
		binary, err := r.Binary(program, platform)
		if err != nil {
			return err
		}
		full := name + "-" + r.version + "-" + build.Suffix(platform)
		inside := program
		if platform.OS == "windows" {
			inside += ".exe"
		}
		files, err := read(full, "LICENSE", "README.md")
		if err != nil {
			return err
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		files = append(files, build.File{Path: path.Join(full, inside), Mode: 0o755, Content: content})
		if err := r.pack(full+".tar.gz", files); err != nil {
			return err
		}
		if err := r.WriteSBOM(filepath.Join(r.out, full+".spdx.json"), name, binary); err != nil {
			return err
		}
	}
	return nil
}

const chartFolder = "charts/loadline"

// chart packs the chart as Helm does, with the version.
func (r *release) chart() error {
	files, err := committed(".", chartFolder)
	if err != nil {
		return err
	}
	bare := strings.TrimPrefix(r.version, "v")
	for i, f := range files {
		files[i].Path = "loadline" + strings.TrimPrefix(f.Path, chartFolder)
		if f.Path == chartFolder+"/Chart.yaml" {
			files[i].Content = versioned(f.Content, bare, r.version)
		}
	}
	license, err := read("loadline", "LICENSE")
	if err != nil {
		return err
	}
	return r.pack("loadline-"+bare+".tgz", append(files, license...))
}

// Of Chart.yaml.
var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// versioned returns Chart.yaml with other versions.
func versioned(chart []byte, version, app string) []byte {
	chart = chartVersion.ReplaceAllLiteral(chart, []byte("version: "+version))
	return appVersion.ReplaceAllLiteral(chart, []byte("appVersion: "+app))
}

const staticManifest = "deploy/loadline.yaml"

// manifests writes the one file and packs the folder from which it is generated.
func (r *release) manifests() error {
	full := "loadline-deploy-" + r.version
	files, err := committed(full, "deploy")
	if err != nil {
		return err
	}
	for i, f := range files {
		files[i].Content = r.tagged(f.Content)
		if f.Path == path.Join(full, staticManifest) {
			name := "loadline-" + r.version + ".yaml"
			if err := r.write(name, bytes.ReplaceAll(files[i].Content, []byte(staticManifest), []byte(name))); err != nil {
				return err
			}
		}
	}
	more, err := read(full, "LICENSE", "README.md")
	if err != nil {
		return err
	}
	return r.pack(full+".tar.gz", append(files, more...))
}

// tagged returns a manifest with the images of the version.
func (r *release) tagged(manifest []byte) []byte {
	for _, program := range build.Daemons {
		image := "loadline-" + program + ":"
		manifest = bytes.ReplaceAll(manifest, []byte(image+"latest"), []byte(image+r.version))
	}
	return manifest
}

// pack writes an archive and says how large it is.
func (r *release) pack(name string, files []build.File) error {
	packed, err := build.Archive(files, r.Source.Time)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.write(name, packed)
}

// write writes a file of the release and says how large it is.
func (r *release) write(name string, content []byte) error {
	fmt.Fprintf(r.Log, "release: %s: %d bytes\n", name, len(content))
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// committed returns the files below a folder that git knows, for a folder of an archive.
func committed(into, folder string) ([]build.File, error) {
	names, err := exec.Command("git", "ls-files", "-z", "--", folder).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return read(into, strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00")...)
}

// read returns files for a folder of an archive.
func read(into string, names ...string) (files []build.File, err error) {
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, build.File{Path: path.Join(into, name), Mode: 0o644, Content: content})
	}
	return files, nil
}
