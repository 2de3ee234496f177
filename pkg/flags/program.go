package flags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/printable"
)

// Config is the configuration of a program.
type Config interface {
	AddFlags(fs *pflag.FlagSet) // binds every flag
	Complete() error            // reads files that flags name
	Validate() error            // returns all problems joined
}

// Program describes a binary for its main function.
type Program struct {
	Name    string
	Version string // printed by --version
	Config  Config
	Logging *Logging                        // part of Config, applied before Run
	Run     func(ctx context.Context) error // returns when ctx ends
}

// Exit codes of a program.
const (
	ExitOK     = 0 // normal end
	ExitFailed = 1 // runtime error
	ExitUsage  = 2 // invalid command line
)

// Main parses the arguments without the program name, validates them and runs the program. It
// returns the exit code. SIGINT and SIGTERM cancel the context of Run. A second signal ends the
// process immediately.
func (p Program) Main(args []string, out, errOut io.Writer) int {
	fs := New(p.Name)
	p.Config.AddFlags(fs)
	version := fs.Bool("version", false, "Print the version and exit.")
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(out, "Usage: %s [flags]\n\n%s", p.Name, Describe(fs))
		return ExitOK
	} else if err != nil {
		fmt.Fprintf(errOut, "%s: %v (see %s --help)\n", p.Name, err, p.Name)
		return ExitUsage
	}
	if *version {
		fmt.Fprintln(out, p.Name, p.Version)
		return ExitOK
	}
	if err := errors.Join(p.Config.Complete(), p.Config.Validate(), p.Logging.Apply()); err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(errOut, "%s: %s\n", p.Name, strings.TrimSpace(line))
		}
		return ExitUsage
	}
	return p.run(fs, errOut)
}

func (p Program) run(fs *pflag.FlagSet, errOut io.Writer) int {
	defer klog.Flush()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	ctx = withEscapes(ctx)

	log := klog.FromContext(ctx)
	log.V(1).Info("Starting", "program", p.Name, "version", p.Version)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed && !isSecret(f.Name) {
			log.V(1).Info("Flag", "name", f.Name, "value", f.Value.String())
		}
	})
	for _, word := range fs.Args() {
		log.Info("Ignoring positional argument, set boolean flags with --name=false instead of a space", "argument", word)
	}
	if err := p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		printable.Fprintf(errOut, "%s: %v\n", p.Name, err)
		return ExitFailed
	}
	log.V(1).Info("Stopped", "program", p.Name)
	return ExitOK
}

func isSecret(flag string) bool {
	return strings.Contains(flag, "password") || strings.HasSuffix(flag, "token")
}

// Serving configures the address of metrics and health checks.
type Serving struct {
	Address   string // host:port, an empty host means all
	Profiling bool   // also serve /debug/pprof/
}

// AddFlags binds the group to fs. The current address is the default.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Address, "address", s.Address, "Address of /metrics and /health-check.")
	fs.BoolVar(&s.Profiling, "profiling", s.Profiling, "Also serve /debug/pprof/ on that address.")
}

// Validate returns all problems of the group.
func (s *Serving) Validate() error {
	_, port, err := net.SplitHostPort(s.Address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return Check(err == nil, "address", s.Address, `must be host:port or :port, for example ":8942"`)
}

// Election configures leader election with a Lease, so that only one of several replicas is active.
type Election struct {
	Enabled       bool
	LeaseDuration time.Duration // wait of a candidate after the last renewal
	RenewDeadline time.Duration // a leader stops after this time without renewal
	RetryPeriod   time.Duration // wait between two attempts
	Lock          string        // kind of lock, only "leases" exists
	Name          string        // of the Lease
	Namespace     string        // of the Lease
}

// DefaultElection returns the defaults for a Lease in kube-system: off, 15 s, 10 s and 2 s.
func DefaultElection(name string) Election {
	return Election{
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
		Lock:          "leases",
		Name:          name,
		Namespace:     "kube-system",
	}
}

// AddFlags binds the group to fs.
func (e *Election) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&e.Enabled, "leader-elect", e.Enabled, "Acquire a Lease before starting, so that only one of several replicas is active.")
	fs.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "How long a candidate waits after the last observed renewal before it acquires the Lease.")
	fs.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "A leader without a renewal for this long stops. Must be shorter than the lease duration.")
	fs.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "Wait between two attempts to take or renew the Lease.")
	fs.StringVar(&e.Lock, "leader-elect-resource-lock", e.Lock, `Kind of the lock. Only "leases" exists.`)
	fs.StringVar(&e.Name, "leader-elect-resource-name", e.Name, "Name of the Lease.")
	fs.StringVar(&e.Namespace, "leader-elect-resource-namespace", e.Namespace, "Namespace of the Lease.")
}

// jitter is the maximum factor of a retry delay in client-go.
const jitter = 1.2

// Validate returns all problems of the group. A disabled group has none.
func (e *Election) Validate() error {
	if !e.Enabled {
		return nil
	}
	return errors.Join(
		Check(e.LeaseDuration > e.RenewDeadline, "leader-elect-lease-duration", e.LeaseDuration,
			"must be longer than --leader-elect-renew-deadline="+e.RenewDeadline.String()),
		Check(float64(e.RenewDeadline) > jitter*float64(e.RetryPeriod), "leader-elect-renew-deadline", e.RenewDeadline,
			"must be longer than 1.2 times --leader-elect-retry-period="+e.RetryPeriod.String()),
		Check(e.LeaseDuration >= time.Second, "leader-elect-lease-duration", e.LeaseDuration, "must be at least 1s"),
		Check(e.RetryPeriod > 0, "leader-elect-retry-period", e.RetryPeriod, "must be longer than 0"),
		Check(e.Lock == "leases", "leader-elect-resource-lock", e.Lock, `must be "leases"`),
		Check(e.Name != "", "leader-elect-resource-name", `""`, "must be the name of a Lease"),
		Check(e.Namespace != "", "leader-elect-resource-namespace", `""`, "must be the name of a namespace"),
	)
}

// Policies configures the evaluation of SizingPolicies. All programs must use the same value.
type Policies struct {
	ForeignAnnotations bool // annotations of other projects exclude workloads
}

// AddFlags binds the group to fs.
func (p *Policies) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&p.ForeignAnnotations, "foreign-annotations", p.ForeignAnnotations, "Under a SizingPolicy "+strings.Join(fleet.ForeignAnnotations(), ` or `)+
		` with the value "true" excludes a workload like `+fleet.SkipAnnotation+". Use the same value for the recommender, updater and admission controller.")
}

const sharingMinAge = "sharing-min-age"

// AddSharingMinAge binds the shared flag of the updater and the admission controller.
func AddSharingMinAge(fs *pflag.FlagSet, age *time.Duration) {
	fs.DurationVar(age, sharingMinAge, *age, "Minimum age of a workload for sharing node headroom (spec.sharing of a SizingPolicy), because younger workloads have too little peak history. Use the same value for the updater and the admission controller.")
}

// CheckSharingMinAge validates the value of the flag.
func CheckSharingMinAge(age time.Duration) error {
	return Check(age > 0, sharingMinAge, age, "must be longer than 0")
}
