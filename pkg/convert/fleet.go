package convert

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Policy converts a SizingPolicy. A policy that CheckPolicy refuses is unusable, but still holds
// the workloads that it selects. An invalid selector selects everything, so that no pod is changed
// that the policy may protect.
func Policy(p *loadlinev1alpha1.SizingPolicy) fleet.Policy {
	spec := &p.Spec
	policy := fleet.Policy{
		Name:         p.Name,
		Paused:       spec.Paused != nil && *spec.Paused,
		Recommender:  Recommender(p),
		RolloutHash:  rolloutHash(p),
		GenerateVPAs: spec.VPAs == nil || *spec.VPAs == loadlinev1alpha1.VPAsIfMissing,
		Namespaces:   fleet.Namespaces{Names: spec.Namespaces.Names, Exclude: spec.Namespaces.Exclude},
	}
	if problems, _ := CheckPolicy(p); len(problems) > 0 {
		policy.Unusable = problems.ToAggregate().Error()
	}
	if spec.Recipe != nil {
		policy.Recipe = *spec.Recipe
	}
	if r := spec.Rollout; r != nil && r.InitialSizing != nil {
		policy.Initial = initialSizing[*r.InitialSizing]
	}
	if r := spec.Rollout; r != nil && r.HPA != nil {
		policy.IgnoresHPAs = *r.HPA == loadlinev1alpha1.HPAProceed
	}
	policy.Sharing = policySharing(p)
	if spec.Priority != nil {
		policy.Priority = int(*spec.Priority)
	}
	if spec.Namespaces.Selector != nil {
		policy.Namespaces.Selector = parseSelector(spec.Namespaces.Selector)
	}
	policy.Workloads = workloadMatches(spec.Workloads)
	if spec.Rollout != nil && spec.Rollout.Mode != nil {
		policy.Mode, _ = fleet.ParseMode(string(*spec.Rollout.Mode))
	}
	if policy.Mode != fleet.Inherit {
		policy.MinHistory = rollout.DefaultMinHistory
		if m := spec.Rollout.MinHistory; m != nil {
			policy.MinHistory = m.Duration
		}
	}
	return policy
}

func policySharing(p *loadlinev1alpha1.SizingPolicy) fleet.Sharing {
	spec := &p.Spec
	if spec.Sharing == nil {
		return fleet.Sharing{}
	}
	shared := readSharing(spec.Sharing)
	if shared.Mode == fleet.SharingOn && !RolloutSettings(p).Recreate {
		shared.Evict = false
	}
	if shared.RestrictsUserVPAs && shared.Mode == fleet.SharingOn && spec.ResourcePolicy != nil {
		shared.Max = new(Rules(&vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: spec.ResourcePolicy}}))
	}
	return shared
}

func workloadMatches(selected []loadlinev1alpha1.WorkloadSelection) (matches []fleet.Match) {
	for i := range selected {
		w := &selected[i]
		match := fleet.Match{Group: apiGroup(w.APIVersion), Kind: w.Kind, Name: w.Name}
		if w.Selector != nil && fleet.Listed(match.Group, match.Kind) {
			match.Selector = parseSelector(w.Selector)
		}
		matches = append(matches, match)
	}
	return matches
}

var initialSizing = map[loadlinev1alpha1.InitialSizing]fleet.InitialSizing{
	loadlinev1alpha1.InitialSizingOff: fleet.AsWritten, loadlinev1alpha1.InitialSizingTarget: fleet.ToTarget,
}

var (
	sharingModes = map[loadlinev1alpha1.SharingMode]fleet.SharingMode{
		loadlinev1alpha1.SharingDryRun: fleet.SharingDryRun, loadlinev1alpha1.SharingOn: fleet.SharingOn,
	}
	cpuLimits = map[loadlinev1alpha1.SharingCPULimit]sharing.CPULimit{
		loadlinev1alpha1.SharingCPULimitRemove: sharing.RemoveLimit, loadlinev1alpha1.SharingCPULimitNodeAllocatable: sharing.NodeLimit,
	}
)

func readSharing(s *loadlinev1alpha1.Sharing) fleet.Sharing {
	var shared fleet.Sharing
	if s.Mode != nil {
		shared.Mode = sharingModes[*s.Mode]
	}
	shared.Kinds[resources.CPU] = len(s.Resources) == 0
	for k := range resources.Kind(resources.Kinds) {
		shared.Kinds[k] = shared.Kinds[k] || slices.Contains(s.Resources, ResourceName(k))
	}
	shared.Evict = s.Evict != nil && *s.Evict
	if s.CPULimit != nil {
		shared.CPULimit = cpuLimits[*s.CPULimit]
	}
	if s.MaxEvictionRanking != nil {
		if rank, ok := sharing.ParseRank(string(*s.MaxEvictionRanking)); ok {
			shared.MaxRank = &rank
		}
	}
	shared.RestrictsUserVPAs = s.UserVPAs != nil && *s.UserVPAs == loadlinev1alpha1.SharingUserVPAsRestrict
	shared.AcceptsNodeAutoscaler = s.NodeAutoscaler != nil && *s.NodeAutoscaler == loadlinev1alpha1.SharingNodeAutoscalerAccept
	return shared
}

// IsGenerated reports whether a VPA is generated: it has the policy label and the name of the
// generated VPA for its target. A user VPA that was copied from a generated VPA has another name.
func IsGenerated(vpa *vpav1.VerticalPodAutoscaler) bool {
	_, labelled := vpa.Labels[fleet.PolicyLabel]
	return labelled && vpa.Name == GeneratedName(vpa)
}

// GeneratedName returns the name of the generated VPA for the target, empty without a target.
func GeneratedName(vpa *vpav1.VerticalPodAutoscaler) string {
	ref := vpa.Spec.TargetRef
	if ref == nil {
		return ""
	}
	return fleet.GeneratedVPAName(ref.Kind, apiGroup(ref.APIVersion), ref.Name)
}

func apiGroup(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// DefaultRecommender is the recommender of VPAs and policies that name none.
const DefaultRecommender = "default"

// Recommender returns the name of the recommender of a policy.
func Recommender(p *loadlinev1alpha1.SizingPolicy) string {
	if p.Spec.Recommender == nil {
		return DefaultRecommender
	}
	return *p.Spec.Recommender
}

type labelSelector struct{ labels.Selector }

func (s labelSelector) Matches(set map[string]string) bool {
	return s.Selector.Matches(labels.Set(set))
}

func parseSelector(selector *metav1.LabelSelector) fleet.Selector {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		s = labels.Everything()
	}
	return labelSelector{s}
}
