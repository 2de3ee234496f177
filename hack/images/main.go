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
	"flag"
	"fmt"
	"io"
	"os"

	"loadline.dev/loadline/hack/images/build"
)

func main() {
	out := flag.String("out", "dist/images", "folder for the images; what is there is removed")
	tag := flag.String("tag", "latest", "tag of the images")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flag.Parse()
	if err := run(*out, *tag, *platforms, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(out, tag, platforms string, log io.Writer) error {
	of, err := build.Commit()
	if err != nil {
		return err
	}
	all, err := build.Platforms(platforms)
	if err != nil {
		return fmt.Errorf("-platforms: %w", err)
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only, see -h", flag.Arg(0))
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "loadline-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := build.Builder{Source: of, Work: work, Log: log}
	if err := b.Images(out, tag, all); err != nil {
		return err
	}
	return build.WriteSums(out)
}
