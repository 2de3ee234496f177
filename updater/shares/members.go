package shares

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/nodeshare"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/snapshot"
)

// workload is a VPA with sharing.
type workload struct {
	nodeshare.VPA

	standing Standing
	sizes    nodeshare.Sizes // of the last pod
}

// readVPAs reads the VPAs whose policies enable sharing.
func (r *round) readVPAs(ctx context.Context) {
	for i := range r.VPAs {
		if !r.Policies[i].Shares || !r.Pods.Claims(i) {
			continue
		}
		err := serving.Guard(func() error { r.workloads[i] = r.workload(&r.VPAs[i], &r.Policies[i]); return nil })
		if err != nil {
			klog.FromContext(ctx).Error(err, "Excluding pods of a VPA from sharing: it cannot be converted", "vpa", r.VPAs[i].Key())
		}
	}
}

// workload converts a VPA and counts it for its policy.
func (r *round) workload(vpa *snapshot.VPA, e *policies.Effective) *workload {
	var state rollout.State
	if e.Decision.Mode == fleet.Canary && e.Known {
		if stored, err := r.Records.State(e.Workload); err == nil {
			state = stored
		}
	}
	w := &workload{VPA: nodeshare.VPAOf(vpa.Object, &e.Decision, &e.Workload, &state, r.book)}
	w.MinAge = r.MinAge
	w.KeepsCPULimit = w.Settings.CPULimit == sharing.RemoveLimit && r.quotaCountsCPULimits(vpa.Object.Namespace)
	w.Looked = r.HPAs.LooksAt(vpa.Target)
	w.Outdated = vpa.Outdated || vpa.Unreadable != ""
	w.Sizing = nodeshare.Sizing{Recommendation: vpa.Recommendation, Floors: vpa.Floors, Rules: vpa.Rules, Ranges: &vpa.Ranges.Ranges}
	w.standing = standingOf(&w.VPA, r.standings)
	p := r.found.Policies[w.Decision.Policy.Name]
	if p == nil {
		p = &Policy{Apart: map[reason.Reason]int{}}
		r.found.Policies[w.Decision.Policy.Name] = p
	}
	if w.Why != "" {
		p.Apart[w.Why]++
	}
	if w.standing == Active {
		p.Active++
	}
	return w
}

// quotaCountsCPULimits reports whether a ResourceQuota of a namespace counts CPU limits, or cannot be read.
func (s *Sharing) quotaCountsCPULimits(namespace string) bool {
	if s.Quotas == nil {
		return false
	}
	quotas, err := s.Quotas.ResourceQuotas(namespace).List(labels.Everything())
	return err != nil || slices.ContainsFunc(quotas, func(q *corev1.ResourceQuota) bool {
		return convert.Quota(q).Limits.Has(resources.CPU)
	})
}

// member is a pod on a node.
type member struct {
	nodeshare.Pod

	by   *workload // nil: its VPA does not share
	node *node

	// shares are the shares of the containers, also in a dry run. Nil: the pod leaves at once. The last element stands
	// for the rest of the pod. leaves reports that the pod leaves its node.
	shares []sharing.Amounts
	leaves bool
	marked bool // it had a share before
}

// member reads a pod.
func (r *round) member(ctx context.Context, pod *corev1.Pod, on *node) *member {
	p := &member{node: on}
	owner, vpa := r.Pods.Controlling(ctx, pod)
	if vpa < 0 || r.workloads[vpa] == nil {
		p.Pod = nodeshare.Unwanted(pod)
		return p
	}
	p.by = r.workloads[vpa]
	observed, _ := r.observed.Get(pod.UID, pod.ResourceVersion, func(*nodeshare.Observed) (*nodeshare.Observed, error) {
		return nodeshare.Observe(pod, p.by.sizes.Of), nil
	})
	p.Pod = p.by.Read(pod, observed, &p.by.sizes, &on.Node, r.at)
	_, p.marked = pod.Annotations[convert.SharedAnnotation]
	replicas := 0
	if p.by.Settings.Evict { // otherwise the rank does not depend on them
		replicas = r.Pods.Replicas(ctx, owner)
	}
	p.Sharing.Rank = p.by.Rank(replicas)
	return p
}
