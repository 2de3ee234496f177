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
	fs.DurationVar(&c.Interval, "updater-interval", c.Interval, "Time between two passes, and the longest that one may take. /health-check fails after five times this without one.")
	fs.IntVar(&c.BoostWorkers, "concurrent-cpu-startup-boost-syncs", c.BoostWorkers, "Parallel workers that take startup boosts back.")
	c.Disruption.addFlags(fs)
	c.Heartbeat.addFlags(fs)
	c.addOwnFlags(fs)
}

func (d *Disruption) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&d.MinReplicas, "min-replicas", d.MinReplicas, "Live pods that an owner must have before any of them is disrupted. spec.updatePolicy.minReplicas of a VPA goes first.")
	fs.Float64Var(&d.Tolerance, "eviction-tolerance", d.Tolerance, "Part of the wanted replicas of an owner that may be away at once, rounded down.")
	fs.Float64Var(&d.Rate, "eviction-rate-limit", d.Rate, "Evictions a second and, apart, resizes a second. 0 or below: no limit.")
	fs.IntVar(&d.Burst, "eviction-rate-burst", d.Burst, "Evictions, and resizes, that may exceed the rate at once.")
	fs.Float64Var(&d.Threshold, "pod-update-threshold", d.Threshold, "Least relative change for which a pod within its recommended bounds is updated.")
	fs.DurationVar(&d.Lifetime, "in-recommendation-bounds-eviction-lifetime-threshold", d.Lifetime, "Least age at which a pod within its recommended bounds is updated.")
	fs.DurationVar(&d.QuickOOM, "evict-after-oom-threshold", d.QuickOOM, "A container that ran out of memory within this time after its start makes its pod eligible whatever its age.")
	fs.BoolVar(&d.FreeResizes, "in-place-skip-disruption-budget", d.FreeResizes, "Resizes that restart no container need neither --min-replicas nor --eviction-tolerance.")
}

func (h *Heartbeat) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&h.Required, "use-admission-controller-status", h.Required, "Change pods only while the admission controller shows that it works.")
	fs.StringVar(&h.Name, "admission-controller-status-lease-name", h.Name, "Name of the Lease with which it does.")
	fs.StringVar(&h.Namespace, "admission-controller-status-lease-namespace", h.Namespace, "Namespace of that Lease. Empty: variable NAMESPACE, or else kube-system.")
	fs.DurationVar(&h.Timeout, "admission-controller-status-lease-timeout", h.Timeout, "Age from which that Lease counts as stale.")
}

// addOwnFlags adds the flags that the reference VPA does not have.
func (c *Config) addOwnFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Pace.Cluster, "eviction-pace", c.Pace.Cluster, "Evictions of ready pods, and resizes that restart their containers, a minute in the whole cluster, at most. It spreads mass events; a workload alone never gets there. 0: no limit.")
	fs.IntVar(&c.Pace.Namespace, "namespace-eviction-pace", c.Pace.Namespace, "The same for each namespace. 0: no limit.")
	fs.DurationVar(&c.Pace.SlowStart, "eviction-slow-start", c.Pace.SlowStart, "How long after the start until --eviction-pace is reached; it begins with 10 a minute. 0: at once.")
	fs.DurationVar(&c.Disruption.StabilizationWindow, "stabilization-window", c.Disruption.StabilizationWindow, "Shortest time after which a change is undone by one that makes pods smaller again; doubled each time that they go back and forth, up to a day. 0: at once.")
	fs.DurationVar(&c.SkipEventDelay, "left-alone-event-after", c.SkipEventDelay, "How long pods of a VPA must be left alone for one reason that asks somebody to do something before an event on the VPA says so. 0: at once.")
	fs.StringVar(&c.EvictionRoom, "eviction-room", c.EvictionRoom, "Which room an eviction needs: auto, any where something shows that nodes are added for pods that find none, else free; free, what a node has left now; size, a node that is large enough, for clusters that add nodes; off, which is not to ask, neither for resizes. Quotas count in any case but off.")
	fs.BoolVar(&c.Disruption.CapToRoom, "cap-to-room", c.Disruption.CapToRoom, "Where the recommended size does not fit into the node or a quota, resize to what fits, if that is a change of --pod-update-threshold or more. Evictions are never cut.")
	fs.StringVar(&c.StaticCPUNodes, "static-cpu-nodes", c.StaticCPUNodes, "Label selector of the nodes whose kubelet has the static CPU manager policy. It refuses pods of class Guaranteed other CPU in place, so they are not asked for it. Empty: known only of nodes that have refused.")
	fs.BoolVar(&c.Explain, "explain", c.Explain, "Serve explanations of pods at /explain/pod, and the skipped pods by reason at /explain/skips, on the address of the metrics, without authentication: any pod that reaches it can read the sizes of a pod by name.")
	fs.BoolVar(&c.DryRun, "dry-run", c.DryRun, "Print what would be done to standard output and write nothing to the cluster, no Lease either.")
	flags.AddSharingMinAge(fs, &c.SharingMinAge)
	fs.DurationVar(&c.SharingInterval, "sharing-interval", c.SharingInterval, "Time between two rounds that divide the headroom of each node among the pods that share it (spec.sharing of a SizingPolicy). Rounds begin with an iteration, so a value below --updater-interval has its effect.")
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
		flags.Check(c.SkipEventDelay >= 0, "left-alone-event-after", c.SkipEventDelay, "must not be negative"),
		flags.Check(c.Disruption.StabilizationWindow >= 0 && c.Disruption.StabilizationWindow <= 24*time.Hour, "stabilization-window", c.Disruption.StabilizationWindow, "must be from 0 to 24h"),
		flags.Check(slices.Contains([]string{roomAuto, roomFree, roomSize, roomOff}, c.EvictionRoom), "eviction-room", c.EvictionRoom, "must be auto, free, size or off"),
		flags.Check(!c.Disruption.CapToRoom || c.EvictionRoom != roomOff, "cap-to-room", c.Disruption.CapToRoom, "needs --eviction-room=auto, free or size, or nobody knows what fits"),
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
		flags.Check(d.Burst > 0 || d.Rate <= 0, "eviction-rate-burst", d.Burst, "must be at least 1 while --eviction-rate-limit limits the rate, or no pod is ever changed"),
		flags.Check(d.Threshold >= 0, "pod-update-threshold", d.Threshold, "must not be negative"),
		flags.Check(d.Lifetime >= 0, "in-recommendation-bounds-eviction-lifetime-threshold", d.Lifetime, "must not be negative"),
		flags.Check(d.QuickOOM >= 0, "evict-after-oom-threshold", d.QuickOOM, "must not be negative"),
	)
}

func (c *Config) planning() disruption.Config {
	settings := c.Disruption.Config
	settings.InPlaceMode, settings.Autoscaled, settings.IgnoreCapacity = c.Gates.InPlace, c.EvictionRoom == roomSize, c.EvictionRoom == roomOff
	return settings
}
