// Command release builds all artifacts of a version. The output is reproducible: the same commit
// and the same Go version give the same bytes.
//
//	release -version v0.1.0
//
// Run it in the root folder of the project. It replaces the content of -out with
//
//	PROGRAM-VERSION-OS-ARCH.tar.gz       a program, with LICENSE and README.md
//	PROGRAM-VERSION-OS-ARCH.spdx.json    the SBOM of the program
//	images/                              the output of `make images`, tagged with the version
//	loadline-VERSION.tgz                 the chart, for Helm the version has no v
//	loadline-VERSION.yaml                deploy/loadline.yaml, with the images of the version
//	loadline-deploy-VERSION.tar.gz       the folder deploy, with the images of the version
//	SHA256SUMS                           the sums of all files above
//
// PROGRAM is loadline-recommender, loadline-updater, loadline-admission-controller, or the plugin
// kubectl-loadline. See docs/release.md.
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

type options struct {
	version         string
	out             string
	platforms       string // of the daemons
	pluginPlatforms string
	allowDirty      bool
}

func main() {
	var s options
	flag.StringVar(&s.version, "version", "", "version of the release, such as v0.1.0")
	flag.StringVar(&s.out, "out", "dist/release", "folder for the release; its content is removed")
	flag.StringVar(&s.platforms, "platforms", "linux/amd64,linux/arm64", "platforms of the daemons and images, separated by commas")
	flag.StringVar(&s.pluginPlatforms, "plugin-platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64", "platforms of the plugin, separated by commas")
	flag.BoolVar(&s.allowDirty, "allow-dirty", false, "allow uncommitted changes; the version is then marked as dirty")
	flag.Parse()
	if err := run(s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(s options, log io.Writer) error {
	source, err := build.Commit()
	if err != nil {
		return err
	}
	programVersion, err := checkVersion(s, source)
	if err != nil {
		return err
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: want flags only, see -h", flag.Arg(0))
	}
	platforms, err := build.ParsePlatforms(s.platforms)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}
	pluginPlatforms, err := build.ParsePlatforms(s.pluginPlatforms)
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
		Builder: build.Builder{Source: source, Version: programVersion, Work: work, Log: log},
		version: s.version, out: s.out,
	}
	if err := r.Images(filepath.Join(s.out, "images"), s.version, platforms); err != nil {
		return err
	}
	for _, program := range build.Daemons {
		if err := r.writeProgram(program, "loadline-"+program, platforms); err != nil {
			return err
		}
	}
	if err := r.writeProgram(plugin, plugin, pluginPlatforms); err != nil {
		return err
	}
	if err := r.writeChart(); err != nil {
		return err
	}
	if err := r.writeManifests(); err != nil {
		return err
	}
	return build.WriteSums(s.out)
}

// checkVersion returns the version for the programs, or an error if a release is not allowed.
func checkVersion(s options, source build.Source) (programVersion string, err error) {
	// Image tags cannot contain the plus of build metadata.
	if semver.Canonical(s.version) != s.version || s.version == "" {
		return "", fmt.Errorf("VERSION=%q is no semantic version such as v0.1.0 or v0.2.0-rc.1", s.version)
	}
	if source.Changes == "" {
		return s.version, nil
	}
	if !s.allowDirty {
		return "", fmt.Errorf("the working tree has uncommitted changes: commit them, or set ALLOW_DIRTY=1 for a private build:\n%s", source.Changes)
	}
	return s.version + "+dirty", nil
}

type release struct {
	build.Builder
	version string
	out     string
}

// writeProgram writes the archives and the SBOMs of a program under the given name.
func (r *release) writeProgram(program, name string, platforms []*v1.Platform) error {
	for _, platform := range platforms {
		binary, err := r.Binary(program, platform)
		if err != nil {
			return err
		}
		full := name + "-" + r.version + "-" + build.PlatformSuffix(platform)
		inside := program
		if platform.OS == "windows" {
			inside += ".exe"
		}
		files, err := readFiles(full, "LICENSE", "README.md")
		if err != nil {
			return err
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		files = append(files, build.File{Path: path.Join(full, inside), Mode: 0o755, Content: content})
		if err := r.writeArchive(full+".tar.gz", files); err != nil {
			return err
		}
		if err := r.WriteSBOM(filepath.Join(r.out, full+".spdx.json"), name, binary); err != nil {
			return err
		}
	}
	return nil
}

const chartFolder = "charts/loadline"

// writeChart packs the chart like Helm, with the version.
func (r *release) writeChart() error {
	files, err := readTracked(".", chartFolder)
	if err != nil {
		return err
	}
	bare := strings.TrimPrefix(r.version, "v")
	for i, f := range files {
		files[i].Path = "loadline" + strings.TrimPrefix(f.Path, chartFolder)
		if f.Path == chartFolder+"/Chart.yaml" {
			files[i].Content = setChartVersions(f.Content, bare, r.version)
		}
	}
	license, err := readFiles("loadline", "LICENSE")
	if err != nil {
		return err
	}
	return r.writeArchive("loadline-"+bare+".tgz", append(files, license...))
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

func setChartVersions(chart []byte, version, app string) []byte {
	chart = chartVersion.ReplaceAllLiteral(chart, []byte("version: "+version))
	return appVersion.ReplaceAllLiteral(chart, []byte("appVersion: "+app))
}

const staticManifest = "deploy/loadline.yaml"

// writeManifests writes the single manifest and packs the folder from which it is generated.
func (r *release) writeManifests() error {
	full := "loadline-deploy-" + r.version
	files, err := readTracked(full, "deploy")
	if err != nil {
		return err
	}
	for i, f := range files {
		files[i].Content = r.setImageTags(f.Content)
		if f.Path == path.Join(full, staticManifest) {
			name := "loadline-" + r.version + ".yaml"
			if err := r.writeFile(name, bytes.ReplaceAll(files[i].Content, []byte(staticManifest), []byte(name))); err != nil {
				return err
			}
		}
	}
	more, err := readFiles(full, "LICENSE", "README.md")
	if err != nil {
		return err
	}
	return r.writeArchive(full+".tar.gz", append(files, more...))
}

func (r *release) setImageTags(manifest []byte) []byte {
	for _, program := range build.Daemons {
		image := "loadline-" + program + ":"
		manifest = bytes.ReplaceAll(manifest, []byte(image+"latest"), []byte(image+r.version))
	}
	return manifest
}

func (r *release) writeArchive(name string, files []build.File) error {
	packed, err := build.Archive(files, r.Source.Time)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.writeFile(name, packed)
}

func (r *release) writeFile(name string, content []byte) error {
	fmt.Fprintf(r.Log, "release: %s: %d bytes\n", name, len(content))
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// readTracked reads the files below a folder that are tracked by git, for an archive with the given
// path prefix.
func readTracked(prefix, folder string) ([]build.File, error) {
	names, err := exec.Command("git", "ls-files", "-z", "--", folder).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return readFiles(prefix, strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00")...)
}

// readFiles reads files for an archive with the given path prefix.
func readFiles(prefix string, names ...string) (files []build.File, err error) {
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, build.File{Path: path.Join(prefix, name), Mode: 0o644, Content: content})
	}
	return files, nil
}
