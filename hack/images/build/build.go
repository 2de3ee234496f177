// Package build builds the release artifacts of a commit: binaries, archives, container images,
// SBOMs and checksums. The output is reproducible: the same commit and the same Go version give the
// same bytes.
//
// Builds run in the working directory, which must be the root of the project.
package build

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Daemons are the programs with an image.
var Daemons = []string{"recommender", "updater", "admission-controller"}

// Source is the built commit.
type Source struct {
	Revision string    // commit, with suffix -dirty if files changed since
	Changes  string    // changed files, as in git status --porcelain
	Time     time.Time // modification time of all artifacts
}

// Commit returns the commit of the working tree. SOURCE_DATE_EPOCH overrides its time, as in other
// reproducible builds.
func Commit() (Source, error) {
	text, err := exec.Command("git", "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		return Source{}, fmt.Errorf("git log: %w: builds require a git commit", err)
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		seconds = given
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w: want seconds since 1970", err)
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return Source{}, fmt.Errorf("git status: %w", err)
	}
	if len(changes) > 0 {
		revision += "-dirty"
	}
	return Source{Revision: revision, Changes: strings.TrimRight(string(changes), "\n"), Time: time.Unix(at, 0).UTC()}, nil
}

// ParsePlatforms parses platforms separated by commas.
func ParsePlatforms(text string) (all []*v1.Platform, err error) {
	for part := range strings.SplitSeq(text, ",") {
		platform, err := v1.ParsePlatform(part)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("%q is no platform such as linux/amd64", part)
		}
		all = append(all, platform)
	}
	return all, nil
}

// Builder builds the programs of a commit.
type Builder struct {
	Source  Source
	Version string    // release in the programs, empty = version from the Go build info
	Work    string    // an empty folder, caches binaries
	Log     io.Writer // gets a line for each image
}

// releaseVariable is the linker symbol of the release version.
const releaseVariable = "loadline.dev/loadline/pkg/serving.release"

// Binary builds a program for a platform like `make build`, unless it is cached.
func (b *Builder) Binary(program string, platform *v1.Platform) (path string, err error) {
	path = filepath.Join(b.Work, program+"-"+PlatformSuffix(platform))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	flags := "-s -w"
	if b.Version != "" {
		flags += " -X " + releaseVariable + "=" + b.Version
	}
	source := "./" + program
	if slices.Contains(Daemons, program) {
		source = "./cmd/" + program
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags", flags, "-o", path, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s for %s: go build: %w\n%s", program, platform, err, output)
	}
	return path, nil
}

// PlatformSuffix is the end of file names for a platform.
func PlatformSuffix(platform *v1.Platform) string { return platform.OS + "-" + platform.Architecture }
