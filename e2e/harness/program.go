package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Main is the main function of a program that needs a local control plane. Ctrl-C ends the context
// of run, and an error ends the process with code 1.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Run starts a control plane in a temporary directory and passes it to use. An error of use
// includes the location of the logs. Target is the make target that sets LOADLINE_CLUSTER. Run sets
// Binary, Root, Dir and Out of o.
func Run(ctx context.Context, target string, o Options, use func(ctx context.Context, cluster *Cluster) error) (err error) {
	if o.Binary = os.Getenv("LOADLINE_CLUSTER"); o.Binary == "" {
		return fmt.Errorf("the variable LOADLINE_CLUSTER must name the program of the local control plane; `make %s` builds it and sets it", target)
	}
	dir, err := os.MkdirTemp("", "loadline-"+target+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.Root, o.Dir, o.Out = "..", filepath.Join(dir, "cluster"), os.Stdout
	cluster, err := Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Down()) }()
	if err := use(ctx, cluster); err != nil {
		return fmt.Errorf("%w\nlogs are in %s", err, cluster.KeepLogs())
	}
	return nil
}

// Test runs tests on the cluster and stops it afterwards, or when ctrl-C ends ctx. It returns the
// exit code, and prints the location of the logs unless the code is 0.
func (c *Cluster) Test(ctx context.Context, run func() int) (code int) {
	interrupted := context.AfterFunc(ctx, func() {
		_ = c.Down() // leave nothing running
		os.Exit(130)
	})
	defer interrupted()
	defer func() {
		if code != 0 {
			fmt.Println("logs of the programs and the control plane are in", c.KeepLogs())
		}
		if err := c.Down(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}()
	return run()
}
