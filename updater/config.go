package updater

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/updater/nodeload"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
)

// Config holds the settings of the updater's command line.
type Config struct {
	Kube     flags.Kube
	Logging  flags.Logging
	Election flags.Election
	Serving  flags.Serving
	Gates    flags.Gates

	Interval     time.Duration // between iterations, and the timeout of one
	Disruption   Disruption
	Heartbeat    Heartbeat
	BoostWorkers int // parallel workers that remove startup boosts

	Pace           disruption.RateLimits
	SkipEventDelay time.Duration // time that a skip lasts before its event
	EvictionRoom   string        // one of roomAuto, roomFree, roomSize, roomOff
	StaticCPUNodes string        // selector of nodes with the static CPU manager policy
	DryRun         bool          // print changes, write nothing
	Explain        bool          // serve explanations
	Evidence       rollouts.EvidenceConfig
	NodeLoad       nodeload.Config
	Policies       flags.Policies
	// SharingMinAge is the minimum age of a workload with sharing pods.
	SharingMinAge time.Duration
	// SharingInterval is the time between two sharing rounds.
	SharingInterval time.Duration
}

// Values of --eviction-room.
const (
	roomAuto = "auto" // no node check if nodes seem to be added, else roomFree
	roomFree = "free" // free capacity on a current node
	roomSize = "size" // a node with enough allocatable, for growing clusters
	roomOff  = "off"  // no capacity check, for resizes neither
)

// Disruption configures which pods may be changed, and how fast.
type Disruption struct {
	disruption.Config
	Rate  float64 // evictions/s, and separately resizes/s; <= 0: no limit
	Burst int
}

// Heartbeat configures the check that the admission controller is alive.
type Heartbeat struct {
	Required  bool
	Name      string // of the Lease
	Namespace string // of the Lease; empty: namespace of this pod
	Timeout   time.Duration
}

// Default returns the configuration without any flag.
func Default() *Config {
	return &Config{
		Kube:     flags.DefaultKube(),
		Logging:  flags.DefaultLogging(),
		Election: flags.DefaultElection("vpa-updater"),
		Serving:  flags.Serving{Address: ":8943"},
		Interval: time.Minute,
		Disruption: Disruption{
			Config: disruption.DefaultConfig(),
			Rate:   -1,
			Burst:  1,
		},
		Heartbeat:      Heartbeat{Required: true, Name: "vpa-admission-controller", Timeout: time.Minute},
		BoostWorkers:   1,
		Pace:           disruption.RateLimits{Cluster: 60, Namespace: 20, SlowStart: 10 * time.Minute},
		SkipEventDelay: 10 * time.Minute,
		EvictionRoom:   roomAuto,
		Explain:        true,
		StaticCPUNodes: "cpumanager=true",
		Evidence:       rollouts.DefaultEvidenceConfig(),
		NodeLoad:       nodeload.DefaultConfig(),

		SharingMinAge: sharing.MinAge, SharingInterval: shares.DefaultInterval,
	}
}

// AddFlags binds every flag to fs.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Kube.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Election.AddFlags(fs)
	c.Serving.AddFlags(fs)
	c.Gates.AddFlags(fs)
	fs.DurationVar(&c.Interval, "updater-interval", c.Interval, "Time between two iterations, and the timeout of one. /health-check fails after five intervals without a finished iteration.")
	fs.IntVar(&c.BoostWorkers, "concurrent-cpu-startup-boost-syncs", c.BoostWorkers, "Number of parallel workers that remove startup boosts.")
	c.Disruption.addFlags(fs)
	c.Heartbeat.addFlags(fs)
	c.addOwnFlags(fs)
}

func (d *Disruption) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&d.MinReplicas, "min-replicas", d.MinReplicas, "Minimum number of live pods of an owner for a disruption. spec.updatePolicy.minReplicas of a VPA overrides it.")
	fs.Float64Var(&d.Tolerance, "eviction-tolerance", d.Tolerance, "Fraction of the desired replicas of an owner that may be unavailable at once, rounded down.")
	fs.Float64Var(&d.Rate, "eviction-rate-limit", d.Rate, "Maximum evictions per second and, separately, resizes per second. If 0 or below, there is no limit.")
	fs.IntVar(&d.Burst, "eviction-rate-burst", d.Burst, "Burst of evictions, and of resizes, above the rate limit.")
	fs.Float64Var(&d.Threshold, "pod-update-threshold", d.Threshold, "Minimum relative change for which a pod within its recommended bounds is updated.")
	fs.DurationVar(&d.Lifetime, "in-recommendation-bounds-eviction-lifetime-threshold", d.Lifetime, "Minimum age at which a pod within its recommended bounds is updated.")
	fs.DurationVar(&d.QuickOOMTime, "evict-after-oom-threshold", d.QuickOOMTime, "A container that runs out of memory within this time after its start makes its pod eligible at any age.")
	fs.BoolVar(&d.FreeResizes, "in-place-skip-disruption-budget", d.FreeResizes, "Resizes that restart no container need neither --min-replicas nor --eviction-tolerance.")
}

func (h *Heartbeat) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&h.Required, "use-admission-controller-status", h.Required, "Change pods only while the admission controller renews its status Lease.")
	fs.StringVar(&h.Name, "admission-controller-status-lease-name", h.Name, "Name of the status Lease of the admission controller.")
	fs.StringVar(&h.Namespace, "admission-controller-status-lease-namespace", h.Namespace, "Namespace of the status Lease. If empty, the environment variable NAMESPACE, or else kube-system.")
	fs.DurationVar(&h.Timeout, "admission-controller-status-lease-timeout", h.Timeout, "Age at which the status Lease is stale.")
}

// addOwnFlags adds the flags that the reference VPA does not have.
func (c *Config) addOwnFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Pace.Cluster, "eviction-pace", c.Pace.Cluster, "Maximum evictions of ready pods, and resizes that restart their containers, per minute in the whole cluster. It spreads mass events, a single workload never reaches it. If 0, there is no limit.")
	fs.IntVar(&c.Pace.Namespace, "namespace-eviction-pace", c.Pace.Namespace, "Maximum per minute for each namespace. If 0, there is no limit.")
	fs.DurationVar(&c.Pace.SlowStart, "eviction-slow-start", c.Pace.SlowStart, "Time after the start in which the rate grows from 10 per minute to --eviction-pace. If 0, there is no slow start.")
	fs.DurationVar(&c.Disruption.StabilizationWindow, "stabilization-window", c.Disruption.StabilizationWindow, "Minimum time before an increase is reversed by a decrease. It doubles with each reversal, up to a day. If 0, there is no minimum.")
	fs.DurationVar(&c.SkipEventDelay, "skip-event-after", c.SkipEventDelay, "Time that pods of a VPA are skipped for one reason that requires user action before an event on the VPA reports it. If 0, it is reported at once.")
	fs.StringVar(&c.EvictionRoom, "eviction-room", c.EvictionRoom, "Capacity that an eviction requires. free: free capacity on a node now. size: a node that is large enough, for clusters with a node autoscaler. auto: no check of nodes if a node autoscaler is detected, else free. off: no check, for resizes neither. All values except off check quotas.")
	fs.BoolVar(&c.Disruption.CapToRoom, "cap-to-room", c.Disruption.CapToRoom, "If the recommended resources do not fit into the node or a quota, resize to the part that fits, if that changes at least --pod-update-threshold. Evictions are never reduced.")
	fs.StringVar(&c.StaticCPUNodes, "static-cpu-nodes", c.StaticCPUNodes, "Label selector of nodes with the static CPU manager policy. Their kubelet refuses in-place CPU changes of Guaranteed pods, so the updater does not try them. If empty, such nodes are detected from refused resizes.")
	fs.BoolVar(&c.Explain, "explain", c.Explain, "Serve explanations of pods at /explain/pod, and the skipped pods by reason at /explain/skips, on the metrics address, without authentication. Any pod that can reach it can read the resources of a pod by name.")
	fs.BoolVar(&c.DryRun, "dry-run", c.DryRun, "Print planned changes to standard output and write nothing to the cluster, including Leases.")
	flags.AddSharingMinAge(fs, &c.SharingMinAge)
	fs.DurationVar(&c.SharingInterval, "sharing-interval", c.SharingInterval, "Time between two rounds that divide the headroom of each node among its sharing pods (spec.sharing of a SizingPolicy). Rounds start with an iteration, so a value below --updater-interval has the effect of --updater-interval.")
	c.Evidence.AddFlags(fs)
	c.NodeLoad.AddFlags(fs)
	c.Policies.AddFlags(fs)
}

// Complete reads the files that flags refer to.
func (c *Config) Complete() error { return c.Evidence.Complete() }

// Validate returns all problems joined.
func (c *Config) Validate() error {
	_, badSelector := plan.ParseStaticCPUNodes(c.StaticCPUNodes)
	return errors.Join(
		c.Kube.Validate(),
		c.Election.Validate(),
		c.Serving.Validate(),
		flags.Check(c.Interval > 0, "updater-interval", c.Interval, "must be longer than 0"),
		flags.Check(c.BoostWorkers > 0, "concurrent-cpu-startup-boost-syncs", c.BoostWorkers, "must be at least 1"),
		c.Disruption.validate(),
		flags.Check(c.Pace.Cluster >= 0, "eviction-pace", c.Pace.Cluster, "must not be negative"),
		flags.Check(c.Pace.Namespace >= 0, "namespace-eviction-pace", c.Pace.Namespace, "must not be negative"),
		flags.Check(c.Pace.SlowStart >= 0, "eviction-slow-start", c.Pace.SlowStart, "must not be negative"),
		flags.Check(c.SkipEventDelay >= 0, "skip-event-after", c.SkipEventDelay, "must not be negative"),
		flags.Check(c.Disruption.StabilizationWindow >= 0 && c.Disruption.StabilizationWindow <= 24*time.Hour, "stabilization-window", c.Disruption.StabilizationWindow, "must be from 0 to 24h"),
		flags.Check(slices.Contains([]string{roomAuto, roomFree, roomSize, roomOff}, c.EvictionRoom), "eviction-room", c.EvictionRoom, "must be auto, free, size or off"),
		flags.Check(!c.Disruption.CapToRoom || c.EvictionRoom != roomOff, "cap-to-room", c.Disruption.CapToRoom, "needs --eviction-room=auto, free or size"),
		flags.Check(badSelector == nil, "static-cpu-nodes", c.StaticCPUNodes, fmt.Sprintf("must be a label selector such as cpumanager=true: %v", badSelector)),
		flags.Check(c.Heartbeat.Timeout > 0, "admission-controller-status-lease-timeout", c.Heartbeat.Timeout, "must be longer than 0"),
		flags.Check(c.Heartbeat.Name != "" || !c.Heartbeat.Required, "admission-controller-status-lease-name", `""`, "must be the name of a Lease"),
		flags.CheckSharingMinAge(c.SharingMinAge),
		flags.Check(c.SharingInterval > 0 && c.SharingInterval <= time.Hour, "sharing-interval", c.SharingInterval, "must be longer than 0 and at most 1h"),
		c.Evidence.Validate(),
		c.NodeLoad.Validate(c.Evidence.Address),
	)
}

func (d *Disruption) validate() error {
	return errors.Join(
		flags.Check(d.MinReplicas >= 0, "min-replicas", d.MinReplicas, "must not be negative"),
		flags.Check(d.Tolerance >= 0 && d.Tolerance <= 1, "eviction-tolerance", d.Tolerance, "must be between 0 and 1"),
		flags.Check(!math.IsNaN(d.Rate), "eviction-rate-limit", d.Rate, "must be a number"),
		flags.Check(d.Burst > 0 || d.Rate <= 0, "eviction-rate-burst", d.Burst, "must be at least 1 if --eviction-rate-limit is set, otherwise no pod is ever changed"),
		flags.Check(d.Threshold >= 0, "pod-update-threshold", d.Threshold, "must not be negative"),
		flags.Check(d.Lifetime >= 0, "in-recommendation-bounds-eviction-lifetime-threshold", d.Lifetime, "must not be negative"),
		flags.Check(d.QuickOOMTime >= 0, "evict-after-oom-threshold", d.QuickOOMTime, "must not be negative"),
	)
}

func (c *Config) planning() disruption.Config {
	settings := c.Disruption.Config
	settings.InPlaceMode, settings.Autoscaled, settings.IgnoreCapacity = c.Gates.InPlace, c.EvictionRoom == roomSize, c.EvictionRoom == roomOff
	return settings
}
