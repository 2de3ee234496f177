package flags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/printable"
)

// Config is the configuration of a program.
type Config interface {
	AddFlags(fs *pflag.FlagSet) // binds every flag
	Complete() error            // reads files that flags name
	Validate() error            // returns all problems joined
}

// Program is what a main function needs to name.
type Program struct {
	Name    string // of the binary
	Version string // printed by --version
	Config  Config
	Logging *Logging                        // part of Config, applied before Run
	Run     func(ctx context.Context) error // works until ctx ends
}

// Exit codes of a program.
const (
	OK     = 0 // ended as asked
	Failed = 1 // the work failed
	Usage  = 2 // the command line is wrong
)

// Main parses the arguments (without the program name), validates and runs. It
// returns the exit code. SIGINT and SIGTERM end the context of Run; a second
// one ends the process at once.
func (p Program) Main(args []string, out, errOut io.Writer) int {
	fs := New(p.Name)
	p.Config.AddFlags(fs)
	version := fs.Bool("version", false, "Print the version and exit.")
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(out, "Usage: %s [flags]\n\n%s", p.Name, Describe(fs))
		return OK
	} else if err != nil {
		fmt.Fprintf(errOut, "%s: %v (see %s --help)\n", p.Name, err, p.Name)
		return Usage
	}
	if *version {
		fmt.Fprintln(out, p.Name, p.Version)
		return OK
	}
	if err := errors.Join(p.Config.Complete(), p.Config.Validate(), p.Logging.Apply()); err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(errOut, "%s: %s\n", p.Name, strings.TrimSpace(line))
		}
		return Usage
	}
	return p.run(fs, errOut)
}

// run works until Run returns and reports its error in one line.
func (p Program) run(fs *pflag.FlagSet, errOut io.Writer) int {
	defer klog.Flush()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	ctx = withEscapes(ctx)

	log := klog.FromContext(ctx)
	log.V(1).Info("Starting", "program", p.Name, "version", p.Version)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed && !secret(f.Name) {
			log.V(1).Info("Flag", "name", f.Name, "value", f.Value.String())
		}
	})
	for _, word := range fs.Args() {
		log.Info("Argument ignored: it is no flag. A switch is set with --name=false, not with a blank", "argument", word)
	}
	if err := p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		printable.Fprintf(errOut, "%s: %v\n", p.Name, err)
		return Failed
	}
	log.V(1).Info("Stopped", "program", p.Name)
	return OK
}

// secret reports whether the value of a flag must not be logged.
func secret(flag string) bool {
	return strings.Contains(flag, "password") || strings.HasSuffix(flag, "token")
}
