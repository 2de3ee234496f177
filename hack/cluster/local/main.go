package local

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/supervise"
)

const usage = `loadline-cluster: a Kubernetes control plane with simulated nodes, on this machine

  loadline-cluster up --dir DIR [flags]         start one, or report a running one
  loadline-cluster down --dir DIR [--keep-logs] stop it and remove DIR
  loadline-cluster run --dir DIR [flags] -- CMD start one, run CMD with its KUBECONFIG, stop it
  loadline-cluster status --dir DIR             ports, processes and their memory
  loadline-cluster kubectl [--dir DIR] ...      kubectl for it
  loadline-cluster load --dir DIR FILE...       import image archives into its real node
  loadline-cluster fetch                        download the packages of a real node, for a start without network

Flags of up and run:
`

// Main runs all commands that are not components and returns the exit code. args has no program
// name.
func Main(args []string) int {
	if len(args) == 0 {
		args = []string{"help"}
	}
	code, err := dispatch(args[0], args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "loadline-cluster %s: %v\n", args[0], err)
	}
	return code
}

type command struct {
	folder   instance.Folder
	options  instance.Options
	keepLogs bool
	args     []string
}

func dispatch(name string, args []string) (int, error) {
	run := map[string]func(command) (int, error){
		"up": up, "down": down, "run": runWith, "status": status, "load": load, "fetch": fetch,
		"supervise": func(c command) (int, error) { return supervise.Main(c.folder), nil },
	}[name]
	c, fs := command{}, pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(os.Stderr)
	dir := fs.String("dir", "", "folder of the instance")
	if name == "up" || name == "run" || name == "help" {
		c.options.AddFlags(fs)
	}
	if name == "down" || name == "run" {
		fs.BoolVar(&c.keepLogs, "keep-logs", false, "leave the component logs in the folder")
	}
	fs.Usage = func() { fmt.Fprint(os.Stderr, usage+fs.FlagUsages()) }
	if name == "help" || name == "--help" || name == "-h" {
		c.options.AddFlags(fs)
		fs.Usage()
		return 0, nil
	}
	if run == nil {
		return 2, errors.New("unknown command; want up, down, run, status, load, fetch, kubectl or a component's name")
	}
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, err
	}
	c.args = fs.Args()
	if len(c.args) > 0 && name != "run" && name != "load" {
		return 2, fmt.Errorf("want no arguments besides flags, got %q", strings.Join(c.args, " "))
	}
	if *dir == "" && name != "fetch" {
		return 2, errors.New("--dir: want the folder of the instance")
	}
	var err error
	if c.folder, err = instance.Absolute(*dir); err != nil {
		return 2, err
	}
	return run(c)
}
