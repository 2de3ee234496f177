package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const startTime = time.Minute

// Main is the node's process and returns the exit code. args[0] is its name. When it ends, the
// kernel kills its child processes.
func Main(args []string) int {
	var c config
	fs := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	c.addFlags(fs)
	if err := fs.Parse(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if os.Getpid() != 1 {
		// The mounts below would change the machine.
		fmt.Fprintln(os.Stderr, args[0]+": must be the first process of a namespace; use loadline-cluster up --real-node")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// run keeps the node alive until ctx or one of its two servers ends.
func (c config) run(ctx context.Context) error {
	state, err := c.folder.State()
	if err != nil {
		return err
	}
	c.podNetwork = state.Options.PodNetwork
	programs := map[string]string{}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		if programs[name], err = c.runtime.Program(name); err != nil {
			return err
		}
	}
	if err := c.write(programs["runc"]); err != nil {
		return err
	}
	if err := isolate(append([]string{string(c.folder), filepath.Dir(c.kubelet)}, c.runtime...)); err != nil {
		return err
	}
	if err := share(c.path()); err != nil {
		return err
	}
	r := newReaper()
	runtimeEnded, err := c.start(r, "containerd", filepath.Dir(programs["containerd-shim-runc-v2"]), programs["containerd"], "--config="+c.path("containerd.toml"))
	if err != nil {
		return err
	}
	if err := c.awaitSocket(ctx, runtimeEnded); err != nil {
		return err
	}
	if err := r.run(importCommand(programs["ctr"], socket, c.path("image.tar"))); err != nil {
		return fmt.Errorf("load the image: %w", err)
	}
	kubeletEnded, err := c.start(r, "kubelet", "", c.kubelet, c.kubeletFlags()...)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case status := <-runtimeEnded:
		return c.failure("containerd", status)
	case status := <-kubeletEnded:
		return c.failure("kubelet", status)
	}
}

// start starts a server with its own log file and an additional folder in its PATH.
func (c config) start(r *reaper, name, tools, program string, args ...string) (<-chan syscall.WaitStatus, error) {
	log, err := os.Create(c.folder.Log(name))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, c.path()
	cmd.Env = []string{"HOME=" + c.path(), "PATH=" + tools + ":" + os.Getenv("PATH"), "TZ=UTC"}
	return r.start(cmd)
}

func (c config) awaitSocket(ctx context.Context, ended <-chan syscall.WaitStatus) error {
	deadline := time.After(startTime)
	for {
		_, err := os.Stat(socket)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case status := <-ended:
			return c.failure("containerd", status)
		case <-deadline:
			return fmt.Errorf("containerd does not listen after %s; its log is %s", startTime, c.folder.Log("containerd"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c config) failure(name string, status syscall.WaitStatus) error {
	const lines = 10
	return fmt.Errorf("%s died: %s; the end of %s:\n%s", name, describe(status), c.folder.Log(name), c.folder.Tail(name, lines))
}
