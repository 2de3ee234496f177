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
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

type policyResult struct {
	vpa        *vpav1.VerticalPodAutoscaler // as applied to the pod
	sharing    *policy.Sharing              // node sharing, nil: none
	outer      *policy.Rules                // its maxAllowed bounds a user VPA, nil: none
	warnings   []string
	skipReason reason.Reason // why the pod is skipped, then all else is nil
}

// applyPolicy returns the effect of the responsible SizingPolicy, if any. It only reads caches.
func (h podHandler) applyPolicy(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod) policyResult {
	d := h.policies.ForPod(vpa, pod)
	if d.Policy == nil && d.Reason == "" {
		return policyResult{vpa: vpa}
	}
	generated, now := convert.IsGenerated(vpa), time.Now()
	origin := sizing.FleetVPA(vpa, generated).Origin
	if why := d.NewPodSkipReason(origin, true); why != "" { // true: skipped in every phase, so the record is not needed
		return policyResult{skipReason: why}
	}
	var remembered rollout.State
	err := sizing.ErrUnknown
	if workload, known := h.policies.Target(vpa); known {
		remembered, err = h.records.State(workload)
	}
	// Without its record, a generated VPA sizes no pod. A user VPA waits for the first load only.
	if (generated || !h.records.Settled()) && err != nil {
		return policyResult{skipReason: reason.NoRecord}
	}
	if why := sizing.NewPodSkipReason(d, origin, remembered); why != "" {
		return policyResult{skipReason: why}
	}
	if d.Mode > fleet.Recommend {
		if vpa = withHistory(vpa, d.Policy.MinHistory); vpa == nil {
			return policyResult{skipReason: reason.ShortHistory}
		}
	}
	shares := h.sharingOf(&d, vpa, pod, remembered, now)
	var outer *policy.Rules
	if generated {
		vpa = asInitial(vpa) // its mode is Off, with which mutate sizes no pod
		if !d.Policy.IgnoresHPAs {
			vpa = withoutScaled(vpa, h.hpas.Resources(target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)))
		}
	} else {
		outer = d.UserMax()
	}
	acting, warnings := withFloors(vpa, pod, remembered, d.Policy.RolloutHash, now)
	return policyResult{vpa: acting, sharing: shares, outer: outer, warnings: warnings}
}

// withHistory returns a VPA with only the recommendations on enough history, nil if there is none.
func withHistory(vpa *vpav1.VerticalPodAutoscaler, minHistory time.Duration) *vpav1.VerticalPodAutoscaler {
	if !convert.AnyHasShortHistory(vpa, minHistory) {
		return vpa
	}
	acting := *vpa
	acting.Status.Recommendation = vpa.Status.Recommendation.DeepCopy()
	all := &acting.Status.Recommendation.ContainerRecommendations
	*all = slices.DeleteFunc(*all, func(c vpav1.RecommendedContainerResources) bool {
		return convert.HasShortHistory(vpa, c.ContainerName, minHistory)
	})
	if len(*all) == 0 {
		return nil
	}
	return &acting
}

// asInitial sets mode Initial and drops the startup boost. Boosts in resourcePolicy still apply.
func asInitial(vpa *vpav1.VerticalPodAutoscaler) *vpav1.VerticalPodAutoscaler {
	acting := *vpa
	acting.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInitial)}
	acting.Spec.StartupBoost = nil
	return &acting
}

// withoutScaled drops recommendations for resources that HPAs scale on, as the updater does.
func withoutScaled(vpa *vpav1.VerticalPodAutoscaler, scaled sizing.HPAResources) *vpav1.VerticalPodAutoscaler {
	if len(scaled) == 0 || vpa.Status.Recommendation == nil {
		return vpa
	}
	acting := *vpa
	acting.Status.Recommendation = vpa.Status.Recommendation.DeepCopy()
	for i := range acting.Status.Recommendation.ContainerRecommendations {
		c := &acting.Status.Recommendation.ContainerRecommendations[i]
		for k, left := range scaled.For(c.ContainerName) {
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
func withFloors(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, remembered rollout.State, hash string, now time.Time) (*vpav1.VerticalPodAutoscaler, []string) {
	if len(remembered.RevertedResources) == 0 || vpa.Status.Recommendation == nil {
		return vpa, nil
	}
	remembered.ProvenResources = completeKept(remembered.ProvenResources, pod)
	var warnings []string
	acting := *vpa
	acting.Status.Recommendation = vpa.Status.Recommendation.DeepCopy()
	for i := range acting.Status.Recommendation.ContainerRecommendations {
		c := &acting.Status.Recommendation.ContainerRecommendations[i]
		floor := remembered.Floor(c.ContainerName, convert.Resources(c.Target), hash, now)
		for k := range resources.Kind(resources.Kinds) {
			minimum, ok := floor.Get(k)
			if !ok {
				continue
			}
			name, raised := convert.ResourceName(k), convert.Quantity(k, minimum)
			recommended := c.Target[name]
			c.Target[name] = raised
			warnings = append(warnings, fmt.Sprintf("VerticalPodAutoscaler %s: container %s: %s stays at %s although %s is recommended, because a lower value was reverted after harm",
				vpa.Name, c.ContainerName, k, raised.String(), recommended.String()))
		}
	}
	return &acting, warnings
}

// completeKept fills gaps in the kept resources with the requests that the pod declares.
func completeKept(kept []policy.Container, pod *corev1.Pod) []policy.Container {
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

// sharingOf is nil for ordinary sizing. Like the updater, it requires a policy status with sharing.
func (h podHandler) sharingOf(d *fleet.Decision, vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, remembered rollout.State, now time.Time) *policy.Sharing {
	if d.Policy == nil || !h.policies.Snapshot().IsSharing(d.Policy.Name) {
		return nil
	}
	everywhere := remembered.Phase == rollout.PhaseFullRollout && remembered.Hash == d.Policy.RolloutHash
	if mode, _ := d.SharingMode(everywhere); mode != fleet.SharingOn {
		return nil
	}
	if h.recipes.Fork().Choose(d.RecipeText(vpa.Annotations[recipe.Annotation]), d.Policy.Recipe).Sharing == nil {
		return nil
	}
	if sharing.IneligibleReason(h.sharingFacts(d, vpa, pod, now)) != "" {
		return nil
	}
	return &policy.Sharing{
		Kinds: d.Policy.Sharing.Kinds, CPULimit: d.Policy.Sharing.CPULimit, New: true, Daemon: vpa.Spec.TargetRef.Kind == "DaemonSet",
	}
}

// sharingFacts returns the inputs of sharing.IneligibleReason for a new pod. The node is not known yet, so
// a GPU request stands for a GPU node. A workload of unknown age gets the age of its VPA.
func (h podHandler) sharingFacts(d *fleet.Decision, vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, now time.Time) sharing.PodFacts {
	workload, _ := h.policies.Target(vpa)
	created := workload.Created
	if created.IsZero() {
		created = vpa.CreationTimestamp.Time
	}
	ref := vpa.Spec.TargetRef
	f := sharing.PodFacts{
		Excluded: ref.Kind == "CronJob" || ref.Kind == "Job", PodLevelResources: convert.HasPodLevelResources(pod), Guaranteed: convert.Class(pod) == policy.Guaranteed,
		GPUNode: requestsGPUs(pod), Shared: d.Policy.Sharing.Kinds, Age: now.Sub(created), MinAge: h.sharingMinAge,
	}
	scaledResources, recommended := h.hpas.Resources(target.RefKey(vpa.Namespace, ref)), convert.Recommendation(vpa.Status.Recommendation)
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		_, known := recommended[name]
		f.Recommended = f.Recommended || known
		for k, scaled := range scaledResources.For(name) {
			f.HPA[k] = f.HPA[k] || scaled
		}
	}
	return f
}

func requestsGPUs(pod *corev1.Pod) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name, q := range containers[i].Resources.Limits { // extended resources always have a limit
				if convert.IsGPU(name) && !q.IsZero() {
					return true
				}
			}
		}
	}
	return false
}
