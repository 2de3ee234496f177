// Package oldview is a frozen copy of the planning of an iteration: package updater/view and the planning half
// of package updater, as of the commit before the updater became stages. TestPlanEqualsOld compares the
// updater with it. It is temporary and goes, with packages olddisruption and oldnodeshare, with the commit
// that runs the stages in loop.go.
//
// Do not change its behavior. Renames of packages that it imports are applied here, too. A helper of another
// package that was used only here and in package view moves to this package when that one drops it.
//
// Planner plans iterations and takes over their outcomes. Everything else is as it was.
package oldview

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
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

func targetOf(vpa *vpav1.VerticalPodAutoscaler) target.Key {
	if vpa.Spec.TargetRef == nil {
		return target.Key{}
	}
	return target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
}
