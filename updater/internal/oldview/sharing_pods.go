package oldview

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	nodeshare "loadline.dev/loadline/updater/internal/oldnodeshare"
)

// sharer is a VPA whose policy wants its pods to share. It is replaced when anything of it
// changes.
type sharer struct {
	nodeshare.VPA

	standing Standing

	// Of the pod that was read last: others that are like it have the same.
	likes       likeness
	annotations map[string]string
	plain       bool // it has neither resources as a whole, nor overhead, nor init containers
	sizes       nodeshare.Sizes
}

// shareAlike reports whether pods of two sharers share alike, but for their ranks.
func shareAlike(a, b *nodeshare.VPA) bool {
	return a.Decision.Policy.Name == b.Decision.Policy.Name && a.Mode == b.Mode && a.Why == b.Why && a.Settings == b.Settings && a.Rule == b.Rule &&
		a.Created.Equal(b.Created) && a.Outdated == b.Outdated && a.Short == b.Short && a.KeepsCPULimit == b.KeepsCPULimit && maps.Equal(a.Looked, b.Looked)
}

// readVPAs finds the VPAs whose policies want sharing.
func (s *sharingRound) readVPAs(ctx context.Context) {
	for name, known := range s.memo.vpas {
		ruled := s.memo.ruled[known.reading.Object]
		if ruled == nil || !ruled.shares {
			known.sharer = nil
			continue
		}
		if err := serving.Guard(func() error { s.readVPA(ruled, known); return nil }); err != nil {
			klog.FromContext(ctx).Error(err, "The pods of a VPA do not share: it cannot be understood", "vpa", name)
			known.sharer = nil
		}
	}
}

// readVPA takes over a VPA whose policy wants sharing.
func (s *sharingRound) readVPA(ruled *ruled, known *knownVPA) {
	now := s.sharerOf(ruled, known)
	standing := standingOf(&now, s.standings)
	if before := known.sharer; before == nil || before.standing != standing || !shareAlike(&before.VPA, &now) {
		known.sharer = &sharer{VPA: now, standing: standing}
	} else {
		before.Decision, before.Stays = now.Decision, now.Stays // what the rank follows from
	}
	s.note(&now, standing)
}

// note notes what a VPA means for its policy.
func (s *sharingRound) note(v *nodeshare.VPA, standing Standing) {
	p := s.found.Policies[v.Decision.Policy.Name]
	if p == nil {
		p = &PolicySharing{Apart: map[reason.Reason]int{}}
		s.found.Policies[v.Decision.Policy.Name] = p
	}
	if v.Why != "" {
		p.Apart[v.Why]++
	}
	if standing == Acts {
		p.Acting++
	}
}

// sharerOf returns a VPA whose policy wants sharing.
func (s *sharingRound) sharerOf(v *ruled, known *knownVPA) nodeshare.VPA {
	d := &v.answer.Decision
	var state rollout.State
	if d.Mode == fleet.Canary && v.answer.Known {
		if remembered, err := s.Records.StateAs(v.record(), v.answer.Workload); err == nil {
			state = remembered
		}
	}
	one := nodeshare.VPAOf(v.by, d, &v.answer.Workload, &state, s.memo.book)
	one.MinAge = s.SharingMinAge
	one.KeepsCPULimit = one.Settings.CPULimit == sharing.RemoveLimit && s.quotaCountsCPULimits(v.by.Namespace)
	one.Looked = s.HPAs.LooksAt(targetOf(v.by))
	one.Outdated = s.Generations.Outdated(v.by) || convert.Unreadable(v.by) != ""
	r := &known.reading
	one.Sizing = nodeshare.Sizing{Recommendation: r.Recommendation, Floors: r.floors, Rules: r.Rules, Ranges: &known.ranges.ranges.Ranges}
	return one
}

// quotaCountsCPULimits reports whether a ResourceQuota of a namespace counts CPU limits, or cannot be read.
func (s *sharingRound) quotaCountsCPULimits(namespace string) bool {
	if s.Quotas == nil {
		return false
	}
	quotas, err := s.Quotas.ResourceQuotas(namespace).List(labels.Everything())
	return err != nil || slices.ContainsFunc(quotas, func(q *corev1.ResourceQuota) bool {
		return quotaOf(q).Limits.Has(resources.CPU)
	})
}

// sharer returns the VPA that controls the pods that were asked about last, if its policy wants
// sharing.
func (o *knownOwner) sharer() *sharer {
	if o == nil || o.claimant.vpa == nil {
		return nil
	}
	return o.claimant.vpa.sharer
}

// rank returns in which order the pods of a workload leave.
func (s *sharingRound) rank(ctx context.Context, v *nodeshare.VPA, owner *knownOwner) sharing.Rank {
	if !v.Settings.Evict {
		return v.Rank(0) // however many there are
	}
	return v.Rank(s.replicas(ctx, owner))
}

// readLike makes the sizes those of a pod, if they are not.
func (v *sharer) readLike(pod *corev1.Pod) {
	// What pods that are alike take differs by this alone.
	plain := pod.Spec.Resources == nil && pod.Spec.Overhead == nil && len(pod.Spec.InitContainers) == 0 && !convert.ResizeInfeasible(pod)
	alike := v.likes.of(pod) && client.SameMap(v.annotations, pod.Annotations)
	if !alike {
		likes := likenessOf(pod)
		alike = likes.containers != nil && likes == v.likes
		v.likes, v.annotations = likes, pod.Annotations
	}
	if !alike || !plain || !v.plain {
		running, starting := convert.Footprints(pod)
		if !alike || !v.sizes.Takes(running, starting) {
			v.sizes = nodeshare.SizesOf(running, starting)
		}
	}
	v.plain = plain
}

// sharedPod is a pod as far as sharing is concerned. It is replaced when the pod or its VPA
// changes.
type sharedPod struct {
	nodeshare.Pod

	version string // of the pod
	by      *sharer
	node    *sharedNode
	until   time.Time // see nodeshare.VPA.Until
	round   int

	// As of the last time its node was computed, of one that acts: what its containers get, nil if
	// it leaves at once, and that it is to leave. The last container is what else runs in the pod.
	shares []sharing.Amounts
	leaves bool
	gpus   bool // of the node
	marked bool // it had a share before
}

// holds reports whether a pod is still what is known of it.
func (p *sharedPod) holds(pod *corev1.Pod, v *sharer, node *sharedNode, now time.Time) bool {
	return p.by == v && p.node == node && p.gpus == node.GPUs && p.version == pod.ResourceVersion && p.version != "" &&
		(p.until.IsZero() || now.Before(p.until))
}

// sharedPod reads a pod.
func (s *sharingRound) sharedPod(pod *corev1.Pod, v *sharer, node *sharedNode) *sharedPod {
	p := &sharedPod{version: pod.ResourceVersion, by: v, node: node, gpus: node.GPUs}
	if v == nil {
		p.Pod = nodeshare.Unwanted(pod)
		return p
	}
	v.readLike(pod)
	p.Pod = v.Read(pod, &v.sizes, &node.Node, s.now)
	p.until = v.Until(pod, &p.Pod)
	_, p.marked = pod.Annotations[convert.SharedAnnotation]
	return p
}
