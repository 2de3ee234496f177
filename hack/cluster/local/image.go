package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/realnode"
	"loadline.dev/loadline/hack/cluster/supervise"
)

func load(c command) (int, error) {
	if len(c.args) == 0 {
		return 2, errors.New("want archives of images, such as `make images` writes")
	}
	node, err := c.folder.Process(supervise.RealNode)
	if err != nil {
		return 1, fmt.Errorf("no real node in %s: %w", c.folder, err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	runtime, err := deb.Fetch(ctx, deb.Runtime...)
	if err != nil {
		return 1, err
	}
	for _, archive := range c.args {
		if err := realnode.Load(node, runtime, archive); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// fetch downloads the packages of a real node and prints their folders.
func fetch(command) (int, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	for _, packages := range [][]string{deb.Runtime, deb.Network} {
		unpacked, err := deb.Fetch(ctx, packages...)
		if err != nil {
			return 1, err
		}
		for _, folder := range unpacked {
			fmt.Println(folder)
		}
	}
	return 0, nil
}
