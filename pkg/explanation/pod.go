package explanation

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Pod explains the state of a pod in the updater. Empty fields do not apply.
type Pod struct {
	Namespace  string         `json:"namespace"`
	Name       string         `json:"name"`
	UID        string         `json:"uid"`
	AsOf       time.Time      `json:"asOf"`              // of the last iteration
	Waiting    string         `json:"waiting,omitempty"` // why later iterations change no pods
	DryRun     bool           `json:"dryRun,omitempty"`  // the updater changes nothing
	Problem    string         `json:"problem,omitempty"` // why the VPA is unknown
	VPA        string         `json:"vpa,omitempty"`     // the controlling VPA
	Mode       string         `json:"mode,omitempty"`    // of the VPA
	Containers []PodContainer `json:"containers"`        // ordinary ones, in the order of the pod
	Rollout    *Rollout       `json:"rollout,omitempty"`
	Changed    time.Time      `json:"changed,omitzero"` // the last change, while it is noted on the pod
	Skip       *Skip          `json:"skip,omitempty"`
	Share      *Share         `json:"share,omitempty"` // set if the policy enables sharing
}

// PodContainer has the resources of a container.
type PodContainer struct {
	Name   string                      `json:"name"`
	Spec   corev1.ResourceRequirements `json:"spec"`
	Actual corev1.ResourceRequirements `json:"actual"` // differs from Spec during a resize
	Target corev1.ResourceRequirements `json:"target"` // Spec after the next change, without shared resources
	// Recommended is within the limits of VPA, policy and namespace.
	Recommended *vpav1.RecommendedContainerResources `json:"recommended,omitempty"`
	Notes       []string                             `json:"notes,omitempty"` // why Target differs from the recommendation
}

// Rollout is the rollout of the workload of a pod under a SizingPolicy.
type Rollout struct {
	Policy string           `json:"policy"`
	Mode   string           `json:"mode"`
	Phase  rollout.Phase    `json:"phase,omitempty"`
	Canary rollout.Obstacle `json:"canary,omitempty"` // why it is not promoted
	Next   time.Time        `json:"next,omitzero"`    // earliest next change, if determined
}

// Skip is the reason why the last iteration skipped a pod.
type Skip struct {
	Reason reason.Reason `json:"reason"`
	Means  string        `json:"means"`
	Advice string        `json:"advice,omitempty"`
}

// NewSkip explains a reason. It returns nil for an empty one.
func NewSkip(r reason.Reason) *Skip {
	if r == "" {
		return nil
	}
	e := r.Explain()
	return &Skip{Reason: r, Means: e.Meaning, Advice: e.Advice}
}

// Share is the share of a pod in the last sharing round.
type Share struct {
	Policy   string        `json:"policy"`
	Active   bool          `json:"active"`             // false: a dry run
	Excluded *Skip         `json:"excluded,omitempty"` // why the pod has no share
	DryRun   *Skip         `json:"dryRun,omitempty"`   // why it is a dry run despite the policy
	Leaves   bool          `json:"leaves,omitempty"`   // the pod leaves the node
	Node     string        `json:"node"`
	Problem  reason.Reason `json:"problem,omitempty"`  // why no pod of the node can be changed
	Cordoned bool          `json:"cordoned,omitempty"` // the node takes no new pods
	Pods     int           `json:"pods"`               // sharing pods on the node
	CPU      *ShareAmounts `json:"cpu,omitempty"`      // nil: not shared
	Memory   *ShareAmounts `json:"memory,omitempty"`
}

// ShareAmounts are amounts in millicores or bytes.
type ShareAmounts struct {
	// Of the pod.
	Base  float64 `json:"base"`
	Peak  float64 `json:"peak"`
	Share float64 `json:"share"` // 0: the pod leaves the node
	// Of all sharing pods of the node.
	Allocatable   float64 `json:"allocatable"`
	Available     float64 `json:"available"`
	Bases         float64 `json:"bases"`
	Headroom      float64 `json:"headroom"`
	Overcommitted bool    `json:"overcommitted,omitempty"` // the bases exceed Available
}

// WithoutShared removes resources that a pod shares, or shared by its mark, from the targets.
func (p *Pod) WithoutShared(mark sharing.Mark) {
	for k := range resources.Kind(resources.Kinds) {
		if !mark.Kinds[k] && (p.Share == nil || !p.Share.Active || p.Share.Amounts(k) == nil) {
			continue
		}
		for i := range p.Containers {
			delete(p.Containers[i].Target.Requests, convert.ResourceName(k))
			delete(p.Containers[i].Target.Limits, convert.ResourceName(k))
		}
	}
}

// Amounts returns the amounts of a kind, or nil if it is not shared.
func (s *Share) Amounts(k resources.Kind) *ShareAmounts {
	if k == resources.CPU {
		return s.CPU
	}
	return s.Memory
}

// Containers returns the resources of the containers of a pod.
func Containers(pod *disruption.Pod) []PodContainer {
	all := make([]PodContainer, len(pod.Containers))
	for i := range pod.Containers {
		c := &pod.Containers[i]
		all[i] = PodContainer{Name: c.Actual.Name, Spec: resourcesOf(c.Spec), Actual: resourcesOf(c.Actual), Target: resourcesOf(c.After())}
		if b := &c.Target.Bounds; !b.Target.Empty() {
			all[i].Recommended = &vpav1.RecommendedContainerResources{ContainerName: c.Actual.Name, Target: convert.FormatLike(b.Target), LowerBound: convert.FormatLike(b.Lower), UpperBound: convert.FormatLike(b.Upper)}
		}
		for _, note := range c.Target.Notes {
			if !note.AboutLimit() {
				all[i].Notes = append(all[i].Notes, note.String())
			}
		}
	}
	return all
}

func resourcesOf(c policy.Container) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: convert.FormatLike(c.Requests), Limits: convert.FormatLike(c.Limits)}
}
