// Command images builds the container images of the three programs without a container engine. Each
// image contains only a static binary, the certificates of public authorities and a passwd file.
// The output is reproducible: the same commit and the same Go version give the same bytes.
//
//	images -out dist/images -tag v1.0.0
//
// Run it in the root folder of the project. It replaces the content of -out with
//
//	loadline-PROGRAM/                     an OCI image layout with all platforms
//	loadline-PROGRAM-OS-ARCH.tar          an archive for `docker load` and `ctr images import`
//	loadline-PROGRAM-OS-ARCH.spdx.json    the SBOM of the binary
//	SHA256SUMS                            the sums of all files above
//
// With -push it also copies the images to a registry, and writes a kustomization that uses them:
//
//	images -out dist/images -tag v1.0.0 -push registry.example/team -kustomization dist/deploy
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"loadline.dev/loadline/hack/images/build"
)

func main() {
	out := flag.String("out", "dist/images", "folder for the images; its content is removed")
	tag := flag.String("tag", "latest", "tag of the images")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	registry := flag.String("push", "", "registry path to copy the images to, such as registry.example/team; empty means none")
	folder := flag.String("kustomization", "dist/deploy", "with -push: folder for a kustomization of deploy with these images")
	flag.Parse()
	if err := run(*out, *tag, *platforms, *registry, *folder, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(out, tag, platforms, registry, folder string, log io.Writer) error {
	source, err := build.Commit()
	if err != nil {
		return err
	}
	all, err := build.ParsePlatforms(platforms)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: want flags only, see -h", flag.Arg(0))
	}
	var to map[string]name.Tag
	if registry != "" {
		if to, err = build.Destinations(strings.TrimSuffix(registry, "/"), tag); err != nil {
			return fmt.Errorf("-push: %w", err)
		}
		if err := checkImageOverrides(filepath.Join("deploy", "kustomization.yaml")); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if to != nil { // a failed run must not leave the images of an earlier one
		if err := os.RemoveAll(filepath.Join(folder, "kustomization.yaml")); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "loadline-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := build.Builder{Source: source, Work: work, Log: log}
	if err := b.Images(out, tag, all); err != nil {
		return err
	}
	if err := build.WriteSums(out); err != nil || to == nil {
		return err
	}
	return push(out, folder, to, log)
}

// checkImageOverrides returns an error if a kustomization renames images. The generated
// kustomization around it would no longer match them, and silently apply other images.
func checkImageOverrides(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "images:") {
			return fmt.Errorf("-push: %s has images: take them out, because they would hide the pushed images", file)
		}
	}
	return nil
}

func push(out, folder string, to map[string]name.Tag, log io.Writer) error {
	pushed, err := build.Push(context.Background(), out, to)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	within, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	manifests, err := filepath.Rel(within, filepath.Join(root, "deploy"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	file := filepath.Join(folder, "kustomization.yaml")
	if err := os.WriteFile(file, []byte(build.Kustomization(filepath.ToSlash(manifests), to, pushed)), 0o644); err != nil {
		return err
	}
	for _, program := range build.Daemons {
		fmt.Fprintf(log, "images: copied %s, %s\n", to[program], pushed[program])
	}
	fmt.Fprintf(log, "images: kubectl apply -k %s\n", folder)
	return nil
}
