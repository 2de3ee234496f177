package admission

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// policyResult is the effect of a SizingPolicy on a VPA and a new pod.
type permitted struct {
	vpa      *vpav1.VerticalPodAutoscaler // as applied to the pod
	sharing  *policy.Sharing              // node sharing, nil: none
	outer    *policy.Rules                // its maxAllowed bounds a user VPA, nil: none
	warnings []string
	why      reason.Reason // why the pod is skipped, then all else is nil
}

// applyPolicy returns the effect of the responsible SizingPolicy, if any. It only reads caches.
func (h podHandler) underPolicy(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod) permitted {
	d := h.policies.ForPod(vpa, pod)
	if d.Policy == nil && d.Reason == "" {
		return permitted{vpa: vpa}
	}
	made, now := convert.MadeForPolicy(vpa), time.Now()
	by := sizing.Author(vpa, made).Author
	if why := d.NewPods(by, true); why != "" { // independent of the record
		return permitted{why: why}
	}
	var remembered rollout.State
	err := sizing.ErrUnknown
	if workload, known := h.policies.Target(vpa); known {
		remembered, err = h.records.State(workload)
	}
	if (made || !h.records.Synced()) && err != nil { // past harm is unknown or not loaded yet
		return permitted{why: reason.NoRecord}
	}
	if why := sizing.NewPods(d, by, remembered); why != "" {
		return permitted{why: why}
	}
	if d.Mode > fleet.Recommend {
		if vpa = withHistory(vpa, d.Policy.MinHistory); vpa == nil {
			return permitted{why: reason.ShortHistory}
		}
	}
	shares := h.sharing(&d, vpa, pod, remembered, now)
	var outer *policy.Rules
	if made {
		vpa = sizingNewPods(vpa)
		if !d.Policy.BesideHPAs {
			vpa = without(vpa, h.hpas.LooksAt(target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)))
		}
	} else {
		outer = d.UserMax()
	}
	acting, warnings := keeping(vpa, pod, remembered, d.Policy.RolloutHash, now)
	return permitted{vpa: acting, sharing: shares, outer: outer, warnings: warnings}
}

// withHistory returns a VPA with only the recommendations that rest on enough history, or nil if
// none does.
func withHistory(vpa *vpav1.VerticalPodAutoscaler, least time.Duration) *vpav1.VerticalPodAutoscaler {
	if !convert.AnyHasShortHistory(vpa, least) {
		return vpa
	}
	acting := *vpa
	acting.Status.Recommendation = vpa.Status.Recommendation.DeepCopy()
	all := &acting.Status.Recommendation.ContainerRecommendations
	*all = slices.DeleteFunc(*all, func(c vpav1.RecommendedContainerResources) bool {
		return convert.HasShortHistory(vpa, c.ContainerName, least)
	})
	if len(*all) == 0 {
		return nil
	}
	return &acting
}

// asInitial returns a generated VPA with update mode Initial instead of Off and without a startup
// boost. A boost in its resourcePolicy still applies.
func sizingNewPods(vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	acting := *vpa
	acting.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInitial)}
	acting.Spec.StartupBoost = nil
	return &acting
}

// withoutScaled returns a VPA without recommendations for resources that HorizontalPodAutoscalers
// scale on. The updater skips these resources, so new pods must get the same values.
func without(vpa *vpav1.VerticalPodAutoscaler, looked sizing.LookedAt) *vpav1.VerticalPodAutoscaler {
	if len(looked) == 0 || vpa.Status.Recommendation == nil {
		return vpa
	}
	acting := *vpa
	acting.Status.Recommendation = vpa.Status.Recommendation.DeepCopy()
	for i := range acting.Status.Recommendation.ContainerRecommendations {
		c := &acting.Status.Recommendation.ContainerRecommendations[i]
		for k, left := range looked.Of(c.ContainerName) {
			if name := convert.ResourceName(resources.Kind(k)); left {
				delete(c.Target, name)
				delete(c.LowerBound, name)
				delete(c.UpperBound, name)
			}
		}
	}
	return &acting
}

// withFloors returns a VPA that recommends no less than the resources that were restored by a
// revert, with a warning for each raised value. A changed policy hash drops the floors.
func keeping(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, remembered rollout.State, hash string, now time.Time) (*vpav1.VerticalPodAutoscaler, []string) {
	if len(remembered.Reverted) == 0 || vpa.Status.Recommendation == nil {
		return vpa, nil
	}
	remembered.Kept = keptOrWritten(remembered.Kept, pod)
	var warnings []string
	acting := *vpa
	acting.Status.Recommendation = vpa.Status.Recommendation.DeepCopy()
	for i := range acting.Status.Recommendation.ContainerRecommendations {
		c := &acting.Status.Recommendation.ContainerRecommendations[i]
		floor := remembered.Floor(c.ContainerName, convert.Resources(c.Target), hash, now)
		for k := range resources.Kind(resources.Kinds) {
			least, ok := floor.Get(k)
			if !ok {
				continue
			}
			name, gets := convert.ResourceName(k), convert.Quantity(k, least)
			recommended := c.Target[name]
			c.Target[name] = gets
			warnings = append(warnings, fmt.Sprintf("VerticalPodAutoscaler %s: container %s: %s stays at %s although %s is recommended, because less did harm and was taken back",
				vpa.Name, c.ContainerName, k, gets.String(), recommended.String()))
		}
	}
	return &acting, warnings
}

// completeKept fills gaps in the kept resources with the requests that the pod declares.
func keptOrWritten(kept []policy.Container, pod *corev1.Pod) []policy.Container {
	kept = slices.Clone(kept)
	for _, written := range convert.NewPod(pod).Containers {
		at := slices.IndexFunc(kept, func(c policy.Container) bool { return c.Name == written.Name })
		if at < 0 {
			kept = append(kept, written)
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if own, ok := written.Requests.Get(k); ok && !kept[at].Requests.Has(k) {
				kept[at].Requests = kept[at].Requests.With(k, own)
			}
		}
	}
	return kept
}
