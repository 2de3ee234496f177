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

// permitted is what a SizingPolicy lets a VPA do with a new pod.
type permitted struct {
	vpa      *vpav1.VerticalPodAutoscaler // as it is to act
	sharing  *policy.Sharing              // how the pod shares its node; nil: it does not
	outer    *policy.Rules                // whose maxAllowed bounds the VPA; nil: none
	warnings []string
	why      reason.Reason // why the pod stays as it is written; then the other fields are nil. Empty: it does not
}

// underPolicy returns what the SizingPolicy that is responsible, if one is, lets a VPA do with a
// new pod. It reads caches only.
func (h podHandler) underPolicy(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod) permitted {
	d := h.policies.ForPod(vpa, pod)
	if d.Policy == nil && d.Reason == "" {
		return permitted{vpa: vpa}
	}
	made, now := convert.MadeForPolicy(vpa), time.Now()
	by := sizing.Author(vpa, made).Author
	if why := d.NewPods(by, true); why != "" { // whatever its record has
		return permitted{why: why}
	}
	var remembered rollout.State
	err := sizing.ErrUnknown
	if workload, known := h.policies.Target(vpa); known {
		remembered, err = h.records.State(workload)
	}
	if (made || !h.records.Synced()) && err != nil { // nobody knows, or not yet, what did harm before
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

// withHistory returns a VPA with the recommendations only that rest on a span of usage; nil: there
// are recommendations, and none does.
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

// sizingNewPods returns a made VPA in a mode in which it sizes new pods: its own is Off. It
// boosts them only if the resourcePolicy says so.
func sizingNewPods(vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	acting := *vpa
	acting.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInitial)}
	acting.Spec.StartupBoost = nil
	return &acting
}

// without returns a VPA that recommends nothing of what HorizontalPodAutoscalers look at: as the
// updater leaves that alone, new pods must not have something else.
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

// keeping returns a VPA that recommends no less than what containers keep after less did harm,
// with a warning for each of these sizes. A policy with another hash begins anew.
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

// keptOrWritten completes the sizes that did well with those that a pod is written with.
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
