// Package build makes what is published of a commit: binaries of the programs, archives, container
// images, lists of what is linked in, and sums. The same commit with the same Go gives the same bytes,
// wherever and whenever it is built.
//
// Everything is built in the working folder, which is the root folder of the project.
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

// Daemons are the programs that get an image.
var Daemons = []string{"recommender", "updater", "admission-controller"}

// Source is the commit from which something is built.
type Source struct {
	Revision string    // of the commit, and -dirty where files were changed since
	Changes  string    // of files since the commit, as git status --porcelain says them
	Time     time.Time // of everything that is built
}

// Commit returns the commit of the working tree. SOURCE_DATE_EPOCH replaces its time, as for other
// builds that can be repeated.
func Commit() (Source, error) {
	text, err := exec.Command("git", "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		return Source{}, fmt.Errorf("git log: %w: what is built carries the commit from which it is built", err)
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		seconds = given
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w: a number of seconds since 1970 is wanted", err)
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

// Platforms reads platforms that are separated by commas.
func Platforms(text string) (all []*v1.Platform, err error) {
	for one := range strings.SplitSeq(text, ",") {
		platform, err := v1.ParsePlatform(one)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("%q is no platform such as linux/amd64", one)
		}
		all = append(all, platform)
	}
	return all, nil
}

// Builder builds the programs of a commit.
type Builder struct {
	Source  Source
	Version string    // of the release, which programs say; if empty, they say what Go knows of the commit
	Work    string    // an empty folder that keeps binaries
	Log     io.Writer // gets a line for each image
}

// releaseVariable is where programs keep the version of their release.
const releaseVariable = "loadline.dev/loadline/pkg/serving.release"

// Binary builds a program for a platform as `make build` does, unless that is done already.
func (b *Builder) Binary(program string, platform *v1.Platform) (path string, err error) {
	path = filepath.Join(b.Work, program+"-"+Suffix(platform))
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

// Suffix ends the names of files that are for a platform.
func Suffix(platform *v1.Platform) string { return platform.OS + "-" + platform.Architecture }
