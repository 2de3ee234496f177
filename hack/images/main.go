// Command images builds the container images of the three programs without a container engine:
// each holds one static binary, the certificates of public authorities and a passwd file, and
// nothing else. Two runs on the same commit with the same Go give the same bytes.
//
//	images -out dist/images -tag v1.0.0
//
// It is started in the root folder of the project. Below -out it writes
//
//	loadline-PROGRAM/                     an OCI image layout with all platforms
//	loadline-PROGRAM-OS-ARCH.tar          an archive for `docker load` and `ctr images import`
//	loadline-PROGRAM-OS-ARCH.spdx.json    what the binary is made of
//	SHA256SUMS                            the sums of all files above
//
// and removes what was there before.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// mostBytes is how large an image may be, unpacked.
const mostBytes = 40_000_000

// programs are those that get an image.
var programs = []string{"recommender", "updater", "admission-controller"}

func main() {
	out := flag.String("out", "dist/images", "folder for the images; what is there is removed")
	tag := flag.String("tag", "latest", "tag of the images")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flag.Parse()
	if err := run(*out, *tag, strings.Split(*platforms, ","), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(out, tag string, platforms []string, log io.Writer) error {
	of, err := commit()
	if err != nil {
		return err
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only, see -h", flag.Arg(0))
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "loadline-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, program := range programs {
		b := builder{program: program, tag: tag, out: out, work: work, of: of, log: log}
		if err := b.build(platforms); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	return sums(out)
}

// source is the commit from which images are built.
type source struct {
	Revision string
	Time     time.Time
}

// commit returns the commit of the working tree; its time is that of everything in the images.
// SOURCE_DATE_EPOCH replaces it, as for other builds that can be repeated.
func commit() (source, error) {
	text, err := exec.Command("git", "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		return source{}, fmt.Errorf("git log: %w: the images carry the commit from which they are built", err)
	}
	revision, seconds, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		seconds = given
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w: a number of seconds since 1970 is wanted", err)
	}
	return source{Revision: revision, Time: time.Unix(at, 0).UTC()}, nil
}

// builder builds the images of one program.
type builder struct {
	program, tag string
	out, work    string
	of           source
	log          io.Writer
}

func (b *builder) name() string { return "loadline-" + b.program }

// build writes the images for all platforms.
func (b *builder) build(platforms []string) error {
	ref, err := name.NewTag(b.name() + ":" + b.tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range platforms {
		platform, err := v1.ParsePlatform(one)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return fmt.Errorf("-platforms: %q is no platform such as linux/amd64", one)
		}
		image, err := b.image(ref, platform)
		if err != nil {
			return fmt.Errorf("%s: %w", one, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": b.tag}},
	})
	_, err = layout.Write(filepath.Join(b.out, b.name()), named)
	return err
}

// image builds the image for one platform, and writes its archive and its list of parts.
func (b *builder) image(ref name.Tag, platform *v1.Platform) (v1.Image, error) {
	binary := filepath.Join(b.work, b.program+"-"+platform.OS+"-"+platform.Architecture)
	if err := compile(b.program, binary, platform); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	image, err := newImage(b.program, content, platform, b.of)
	if err != nil {
		return nil, err
	}
	prefix := filepath.Join(b.out, b.name()+"-"+platform.OS+"-"+platform.Architecture)
	if err := writeSBOM(prefix+".spdx.json", b.name(), binary, content, b.of); err != nil {
		return nil, err
	}
	if err := tarball.WriteToFile(prefix+".tar", ref, image); err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	unpacked, err := size(image)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.log, "images: %s %s: %d bytes, %s\n", ref, platform, unpacked, digest)
	if unpacked > mostBytes {
		return nil, fmt.Errorf("the image has %d bytes, and may have %d", unpacked, mostBytes)
	}
	return image, nil
}

// size returns how many bytes an image has unpacked.
func size(image v1.Image) (bytes int64, err error) {
	layers, err := image.Layers()
	if err != nil {
		return 0, err
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(io.Discard, content)
		if err := content.Close(); err != nil {
			return 0, err
		}
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// compile builds a program as `make build` does, for a platform.
func compile(program, binary string, platform *v1.Platform) error {
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w", "-o", binary, "./"+program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	return nil
}

// sums writes the sums of all files below a folder.
func sums(folder string) error {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(files)
	var text strings.Builder
	for _, path := range files {
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, filepath.ToSlash(relative))
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(text.String()), 0o644)
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
