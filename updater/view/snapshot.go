// Package view turns what the caches hold into the plain values that
// disruption.Plan works on.
//
// Reader.Read takes a Snapshot: the VPAs that change running pods, each with the
// pods it controls, what these have, and what policy.Fit would give them. The
// Snapshot also keeps the objects themselves for whoever carries the plan out.
// Reading does the same for one VPA and its pods alone.
//
// CapacityReader says what nodes and quotas have left, Growth whether nodes can be added,
// and StaticCPUNodes on which nodes exclusive CPUs cannot be resized.
//
// It writes nothing, and reads all but two things from caches: the scale of custom workloads, for
// which it asks the target resolver, and the status of a cluster autoscaler (Growth). What becomes of
// a pod is for disruption.Plan to say; of a node that is shared (Divide) it says already which pods
// may shrink now, and which may leave. A pod or VPA that makes the code panic is reported and left
// out; the others are not affected.
package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/records"
)

// Reader takes Snapshots from caches. It remembers what it made of objects that
// did not change, so Read must not be called by two goroutines at once.
type Reader struct {
	VPAs         vpalisters.VerticalPodAutoscalerLister
	VPAIndex     cache.Indexer // of VPAs, with target.Indexers
	Pods         corelisters.PodLister
	LimitRanges  corelisters.LimitRangeLister
	Targets      *target.Resolver
	Serves       func(namespace string) bool      // namespaces to work on
	PerVPAConfig bool                             // feature gate
	Generations  *target.Generations              // whether what is recommended is for the current target
	Policies     *sizing.Policies                 // that hold running pods, or say how they are changed; nil: there are none
	Records      *records.Store                   // what is remembered of workloads under a policy
	Measures     bool                             // CPU throttling and pressure can be asked for
	HPAs         *sizing.HorizontalPodAutoscalers // nil: nothing is known of them
	Nodes        corelisters.NodeLister           // nil: nothing is known of them
	NodesSynced  func() bool
	Quotas       corelisters.ResourceQuotaLister // nil: no quotas
	// SharingMinAge is how long a workload must have existed for its pods to share; 0: sharing.MinAge.
	SharingMinAge time.Duration

	memo *memo

	begun  time.Time                     // when the first pass was
	shrunk map[string]time.Time          // when a pod of a node was last made smaller for its share
	kills  map[killedContainer]time.Time // the last ones that were recorded of containers of pods that share
}

// Step says that a part of the work of a pass has ended; its name is a label of
// the latency metric.
type Step func(name string)

// Snapshot is what one pass works on; the zero value is empty. It is good until the next one is taken.
type Snapshot struct {
	View    disruption.View
	Skipped []disruption.Skip // pods that are left out of the view, and why
	NoVPA   int               // pods that no VPA controls, or none that changes running pods

	rollouts []*Rollout // of the VPAs of the view; empty: no policy has a say about any

	// left are VPAs whose policy is gone, with the pods that shared under it.
	left []disruption.VPA

	memo *memo
	pods corelisters.PodLister
	vpas vpalisters.VerticalPodAutoscalerLister
}

// Reading returns a VPA that is in the view.
func (s *Snapshot) Reading(vpa cache.ObjectName) Reading {
	if s.memo == nil {
		return Reading{}
	}
	if known := s.memo.vpas[vpa]; known != nil {
		return known.reading
	}
	return Reading{}
}

// Mode returns the mode of a VPA in the view: that of the object, but where a SizingPolicy
// lets more, or less, be done with running pods.
func (s *Snapshot) Mode(vpa cache.ObjectName) vpav1.UpdateMode {
	own := convert.Mode(s.Reading(vpa).Object)
	if s.Rollout(vpa) == nil {
		return own
	}
	switch s.memo.vpas[vpa].mode {
	case disruption.InPlace:
		return vpav1.UpdateModeInPlace
	case disruption.InPlaceOrRecreate:
		return vpav1.UpdateModeInPlaceOrRecreate
	}
	return own
}

// Rollout returns how a policy lets the pods of a VPA in the view be changed; nil: the VPA
// alone decides.
func (s *Snapshot) Rollout(vpa cache.ObjectName) *Rollout {
	if s.memo == nil || len(s.memo.ruled) == 0 {
		return nil
	}
	if known := s.memo.vpas[vpa]; known != nil {
		return known.rollout
	}
	return nil
}

// RolloutAt is Rollout for the VPA that is so many places behind the first of the view.
func (s *Snapshot) RolloutAt(place int) *Rollout {
	if place >= len(s.rollouts) {
		return nil
	}
	return s.rollouts[place]
}

// Pod returns the pod of a subject as it is now; nil if it is gone.
func (s *Snapshot) Pod(of disruption.Subject) *corev1.Pod {
	if s.pods == nil {
		return nil
	}
	pod, err := s.pods.Pods(of.Namespace).Get(of.Pod)
	if err != nil || string(pod.UID) != of.UID {
		return nil
	}
	return pod
}

// VPA returns a VPA as it is now, also one that is not in the view; nil if it is gone.
func (s *Snapshot) VPA(name cache.ObjectName) *vpav1.VerticalPodAutoscaler {
	vpa, err := s.vpas.VerticalPodAutoscalers(name.Namespace).Get(name.Name)
	if err != nil {
		return nil
	}
	return vpa
}

func (s *Snapshot) skip(namespace, vpa, pod string, uid types.UID, why reason.Reason) {
	s.Skipped = append(s.Skipped, disruption.Skip{Reason: why, Subject: disruption.Subject{Namespace: namespace, VPA: vpa, Pod: pod, UID: string(uid)}})
}

// Exists reports whether there is a VPA of that name, in whatever mode.
func (s *Snapshot) Exists(vpa cache.ObjectName) bool {
	return s.memo != nil && s.memo.listed[vpa] == s.memo.pass
}

// Read takes a Snapshot at now.
func (r *Reader) Read(ctx context.Context, now time.Time, done Step) (*Snapshot, error) {
	if r.memo == nil {
		r.memo = newMemo()
	}
	r.memo.pass++
	s := &Snapshot{memo: r.memo, pods: r.Pods, vpas: r.VPAs}
	vpas, err := r.VPAs.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	r.index(ctx, vpas, now)
	done("ListVPAs")
	if len(r.memo.acting) == 0 || r.memo.index.Len()+len(r.memo.unreadable) == 0 {
		r.memo.prune()
		return s, nil
	}
	done("ListPods") // which takes no time of its own
	controlled, left, err := r.assign(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	done("FilterPods")
	s.rollouts = r.memo.rollouts[:0]
	r.fill(ctx, s, controlled)
	r.memo.rollouts = s.rollouts
	if len(left) > 0 {
		apart := &Snapshot{memo: s.memo}
		r.fill(ctx, apart, left)
		s.left = apart.View.VPAs
	}
	r.memo.prune()
	return s, nil
}

// Stopped says why nothing must be done any more for a VPA that was read a while ago:
// it was deleted, got another mode or target, or a policy holds its pods since. Empty:
// nothing speaks against it.
func (r *Reader) Stopped(read Reading) reason.Reason {
	if read.Object == nil {
		return ""
	}
	now, err := r.VPAs.VerticalPodAutoscalers(read.Object.Namespace).Get(read.Object.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && convert.Mode(now) != convert.Mode(read.Object):
		return reason.ModeOff
	case err == nil && convert.Unreadable(now) != "":
		return reason.VPAUnreadable
	case err == nil && targetOf(now) != targetOf(read.Object):
		return reason.StatusOutdated
	case err == nil:
		return r.permitted(now).held
	}
	return ""
}

func targetOf(vpa *vpav1.VerticalPodAutoscaler) target.Key {
	if vpa.Spec.TargetRef == nil {
		return target.Key{}
	}
	return target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
}

// recentKill is for how long after an out-of-memory kill a container that is ready again counts as
// killed for HasOOMKilled. The next regular iteration resizes pods that were killed earlier.
const recentKill = 10 * time.Minute

// HasOOMKilled reports whether any pod that one of the VPAs may resize has a container whose last
// termination was an out-of-memory kill, and that is not ready or was killed a short time before now. It
// lists the pods of each namespace once.
func (r *Reader) HasOOMKilled(ctx context.Context, vpas []cache.ObjectName, now time.Time) bool {
	resizing := map[string]map[string]bool{} // names of VPAs by namespace
	for _, name := range vpas {
		vpa, err := r.VPAs.VerticalPodAutoscalers(name.Namespace).Get(name.Name)
		if err != nil || !r.Serves(name.Namespace) {
			continue
		}
		if p := r.permitted(vpa); !p.mode.Resizes() || p.held != "" {
			continue
		}
		if resizing[name.Namespace] == nil {
			resizing[name.Namespace] = map[string]bool{}
		}
		resizing[name.Namespace][name.Name] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(resizing)) {
		// A lister fails only if its index is missing.
		pods, _ := r.Pods.Pods(namespace).List(labels.Everything())
		strongest := map[target.Key]target.Claim{}
		if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
			return oomKilled(pod, now) && r.controlledByAny(ctx, pod, resizing[namespace], strongest)
		}) {
			return true
		}
	}
	return false
}

// controlledByAny reports whether one of the named VPAs controls a pod. strongest keeps the strongest VPA of
// each target between calls.
func (r *Reader) controlledByAny(ctx context.Context, pod *corev1.Pod, names map[string]bool, strongest map[target.Key]target.Claim) bool {
	owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !ok {
		return false
	}
	top, found, err := r.Targets.Topmost(ctx, owner)
	if err != nil || !found {
		return false
	}
	c, known := strongest[top]
	if !known {
		if c, _, err = r.strongest(top, func(*target.Claim) bool { return true }); err != nil {
			return false
		}
		strongest[top] = c
	}
	if !names[c.Name] {
		return false
	}
	selects, err := r.selects(ctx, c, top, pod)
	return err == nil && selects
}

func oomKilled(p *corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		t := s.LastTerminationState.Terminated
		return t != nil && t.Reason == convert.OOMKilled && (!s.Ready || now.Sub(t.FinishedAt.Time) < recentKill)
	})
}
