package flags

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// Election says whether and how a program takes a Lease before it works, so
// that of several replicas only one does.
type Election struct {
	Enabled       bool
	LeaseDuration time.Duration // wait of a candidate after the last renewal it saw
	RenewDeadline time.Duration // a leader gives up after this long without a renewal
	RetryPeriod   time.Duration // wait between two attempts
	Lock          string        // kind of lock; only "leases" exists
	Name          string        // of the Lease
	Namespace     string        // of the Lease
}

// DefaultElection returns the defaults with the given Lease name: off, 15 s,
// 10 s and 2 s, in kube-system.
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
	fs.BoolVar(&e.Enabled, "leader-elect", e.Enabled, "Take a Lease before working, so that of several replicas only one works.")
	fs.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "How long a candidate waits after the last renewal it saw before it takes the Lease.")
	fs.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "A leader that could not renew for this long gives up. Less than the lease duration.")
	fs.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "Wait between two attempts to take or renew the Lease.")
	fs.StringVar(&e.Lock, "leader-elect-resource-lock", e.Lock, `Kind of the lock. Only "leases" exists.`)
	fs.StringVar(&e.Name, "leader-elect-resource-name", e.Name, "Name of the Lease.")
	fs.StringVar(&e.Namespace, "leader-elect-resource-namespace", e.Namespace, "Namespace of the Lease.")
}

// jitter is client-go's: a retry comes up to this factor later, and still has
// to fit into the renew deadline.
const jitter = 1.2

// Validate returns all problems of the group; a group that is switched off has
// none.
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
