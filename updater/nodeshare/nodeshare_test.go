package nodeshare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/target"
)

func noon() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// vpa recommends a base of 100m and a peak of 300m to a workload created two hours ago.
func vpa(t *testing.T, text string, changes ...func(*fleet.Policy, *rollout.State)) *VPA {
	t.Helper()
	object := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{recipe.Annotation: text}}}
	object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "a", LowerBound: list("100m", "100Mi"), Target: list("300m", "200Mi"), UpperBound: list("300m", "200Mi")}}}
	p, state := fleet.Policy{Name: "p", Sharing: fleet.Sharing{Mode: fleet.SharingOn, Kinds: [resources.Kinds]bool{resources.CPU: true}}}, rollout.State{}
	d := fleet.Decision{Policy: &p, Mode: fleet.Auto}
	for _, change := range changes {
		change(&p, &state)
		d.Mode = p.Mode
	}
	v := NewVPA(object, &d, &target.Workload{Key: target.Key{Kind: "Deployment"}, Created: noon().Add(-2 * time.Hour)}, &state, newBook(t))
	v.Sizing = Sizing{Recommendation: convert.Recommendation(object.Status.Recommendation), Rules: convert.Rules(object), Ranges: &policy.Ranges{}}
	return &v
}

func newBook(t *testing.T) *recipe.Cache {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	return book
}

func pod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list(cpu, "150Mi")}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func (v *VPA) read(p *corev1.Pod, on *Node) *Pod {
	return new(v.Read(p, ObservePod(p, nil), &Demand{}, on, noon()))
}

func TestNewVPA_SharingModeAndRank(t *testing.T) {
	canary := func(p *fleet.Policy, s *rollout.State) {
		p.Mode, p.RolloutHash, *s = fleet.Canary, "h", rollout.State{Phase: rollout.PhaseFullRollout, Hash: "h"}
	}
	v := vpa(t, "loadline:cpu=shared")
	require.Equal(t, fleet.SharingOn, v.Mode)
	require.Empty(t, v.ModeReason)
	v = vpa(t, "cruisekube", canary)
	require.Equal(t, fleet.SharingOn, v.Mode, "the canary is over")
	require.Equal(t, sharing.Rule{Pooling: sharing.LargestHeadroom}, v.Rule)
	v = vpa(t, "cruisekube", canary, func(_ *fleet.Policy, s *rollout.State) { s.Hash = "former" })
	require.Equal(t, reason.ModeTooConservative, v.ModeReason)
	v = vpa(t, "vpa")
	require.Equal(t, fleet.SharingOff, v.Mode)
	require.Equal(t, reason.RecipeDoesNotShare, v.ModeReason)
	require.Equal(t, sharing.Never, v.Rank(3))
	v.Settings.Evict = true
	require.Equal(t, sharing.Low, v.Rank(3))
	own := NewVPA(&vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeInPlace)}}},
		&v.Decision, &target.Workload{}, &rollout.State{}, newBook(t))
	own.Settings.Evict = true
	require.Equal(t, sharing.Never, own.Rank(3), "somebody wrote a VPA that never evicts")
}

func TestNodeGather_SelectsSharingPods(t *testing.T) {
	object := &corev1.Node{}
	object.Status.Allocatable = list("1", "1Gi")
	object.Status.NodeInfo.KubeletVersion = "v1.35.0"
	n := NewNode(object)
	require.Empty(t, n.Problem)
	v := vpa(t, "cruisekube")
	resizing := pod("resizing", "50m")
	resizing.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}}
	pods := []*Pod{v.read(pod("one", "250m"), &n), v.read(resizing, &n), new(NewUnsharedPod(pod("other", "400m"))), v.read(pod("two", "50m"), &n)}
	input, rule, members := n.Gather(pods)
	require.Equal(t, []*Pod{pods[0], pods[3]}, members)
	require.Equal(t, sharing.Rule{Pooling: sharing.LargestHeadroom, NeverEvict: true}, rule)
	require.InDelta(t, 550, input.Available[resources.CPU], 0, "what the others request is gone")
	c := input.Pods[0].Containers[0]
	require.Equal(t, [2]float64{100, 300}, [2]float64{c.Base[resources.CPU], c.Peak[resources.CPU]})
	require.InDelta(t, 150<<20, c.Peak[resources.Memory], 0, "memory is not shared, and counts as it is")
	require.Equal(t, reason.Resizing, pods[1].ExclusionReason())
	require.Equal(t, reason.NoSharingPolicy, pods[2].ExclusionReason())

	bound := pod("bound", "400m")
	bound.UID, bound.Status.Phase = "bound", corev1.PodPending
	input, _, _ = n.Gather(append(pods, new(NewUnsharedPod(bound))))
	require.InDelta(t, 550, input.Available[resources.CPU], 0, "it does not fit beside the others, so its kubelet refuses it")
	bound.Spec.Containers[0].Resources.Requests = list("150m", "0")
	input, _, _ = n.Gather(append(pods, new(NewUnsharedPod(bound))))
	require.InDelta(t, 400, input.Available[resources.CPU], 0)

	n.Allocatable = n.Allocatable.With(resources.CPU, 500)
	_, _, members = n.Gather(pods)
	require.Empty(t, members)
	require.Equal(t, reason.TooLarge, pods[0].ExclusionReason(), "50m are left, and its base is 100m")
	n.Problem = reason.AllocatableUnknown
	_, _, members = n.Gather(pods)
	require.Len(t, members, 2, "nobody knows what is too large")
}

// minAllowed counts only up to the current request, so that a user cannot claim a whole node with
// it.
func TestVPARead_MinAllowedCountsUpToRequest(t *testing.T) {
	n := Node{Allocatable: resources.NewList(4000, 1<<40)}
	for _, tc := range []struct {
		name                           string
		requests                       string
		lower, target, uncapped, least string
		base, peak                     float64
	}{
		{name: "as recommended", requests: "10m", lower: "100m", target: "300m", uncapped: "300m", least: "0", base: 100, peak: 300},
		{name: "raised above the request", requests: "10m", lower: "2", target: "2", uncapped: "300m", least: "2", base: 10, peak: 300},
		{name: "raised without an uncapped target", requests: "10m", lower: "2", target: "2", least: "2", base: 10, peak: 10},
		{name: "raised and half requested", requests: "1", lower: "2", target: "2", uncapped: "300m", least: "2", base: 1000, peak: 1000},
		{name: "raised and requested", requests: "2", lower: "2", target: "2", uncapped: "300m", least: "2", base: 2000, peak: 2000},
		{name: "raised and exceeded by the request", requests: "3", lower: "2", target: "2", uncapped: "300m", least: "2", base: 2000,
			peak: 2000},
		{name: "only the base is raised", requests: "10m", lower: "200m", target: "300m", uncapped: "300m", least: "200m", base: 10,
			peak: 300},
		{name: "only the base is raised, and requested", requests: "250m", lower: "200m", target: "300m", uncapped: "300m", least: "200m",
			base: 200, peak: 300},
		{name: "minAllowed below the recommendation", requests: "10m", lower: "100m", target: "300m", uncapped: "300m", least: "50m",
			base: 100, peak: 300},
		{name: "minAllowed not in the recommendation yet", requests: "10m", lower: "100m", target: "300m", uncapped: "300m", least: "2",
			base: 100, peak: 300},
		{name: "rounded up", requests: "10m", lower: "2", target: "2", uncapped: "1", least: "1500m", base: 1000, peak: 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := vpa(t, "cruisekube")
			status := &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
				{ContainerName: "other"},
				{ContainerName: "a", LowerBound: list(tc.lower, "1Gi"), Target: list(tc.target, "1Gi"), UpperBound: list("4", "1Gi")},
			}}
			if tc.uncapped != "" {
				status.ContainerRecommendations[1].UncappedTarget = list(tc.uncapped, "1Gi")
			}
			v.status = status
			v.Sizing.Recommendation = convert.Recommendation(status)
			v.Sizing.Rules = convert.Rules(&vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{
				ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
					{ContainerName: "a", MinAllowed: list(tc.least, "0")},
				}},
			}})
			c := v.read(pod("one", tc.requests), &n).Sharing.Containers[0]
			require.Equal(t, [2]float64{tc.base, tc.peak}, [2]float64{c.Base[resources.CPU], c.Peak[resources.CPU]})
		})
	}
	v := vpa(t, "cruisekube")
	v.Sizing.Floors = map[string]resources.List{"a": resources.NewList(150, 0)}
	c := v.read(pod("one", "10m"), &n).Sharing.Containers[0]
	require.InDelta(t, 150, c.Base[resources.CPU], 0, "a floor after a revert is not what somebody wrote")

	v = vpa(t, "cruisekube")
	v.Sizing.Ranges.Container.Min = resources.NewList(2000, 0)
	c = v.read(pod("one", "10m"), &n).Sharing.Containers[0]
	require.Equal(t, [2]float64{100, 300}, [2]float64{c.Base[resources.CPU], c.Peak[resources.CPU]}, "neither does a LimitRange")
}

func TestShares_MinAllowedCannotClaimNode(t *testing.T) {
	n := Node{Allocatable: resources.NewList(4000, 1<<40)}
	leave := func(p *fleet.Policy, _ *rollout.State) { p.Mode, p.Sharing.Evict = fleet.Auto, true }
	greedy, decent := vpa(t, "cruisekube", leave), vpa(t, "cruisekube", leave)
	status := &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "a", LowerBound: list("2", "1Gi"), Target: list("2", "1Gi"), UncappedTarget: list("20m", "1Gi")}}}
	greedy.status, greedy.Sizing.Recommendation = status, convert.Recommendation(status)
	greedy.Sizing.Rules = convert.Rules(&vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: &vpav1.PodResourcePolicy{
		ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list("2", "0")}}}}})
	pods := []*Pod{decent.read(pod("web", "300m"), &n), greedy.read(pod("a", "10m"), &n), greedy.read(pod("b", "10m"), &n), greedy.read(pod("c", "10m"), &n)}
	for _, p := range pods[1:] {
		p.Sharing.Rank = sharing.Never
	}
	input, rule, members := n.Gather(pods)
	require.Len(t, members, 4)
	found := sharing.Shares(input, rule)
	require.Empty(t, found.Evictions)
	require.Equal(t, [resources.Kinds]bool{}, found.Overcommitted)
	require.Greater(t, found.Shares[0][0][resources.CPU], 200.0, "most of the headroom is its own")
}

func TestShares_RecipeFloorCannotClaimNode(t *testing.T) {
	n := Node{Allocatable: resources.NewList(4000, 1<<40)}
	leave := func(p *fleet.Policy, _ *rollout.State) {
		p.Mode, p.Sharing.Evict, p.Recipe = fleet.Auto, true, "cruisekube"
	}
	recommended := func(v *VPA, cpu string) *VPA {
		v.status = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
			ContainerName: "a", LowerBound: list(cpu, "1Gi"), Target: list(cpu, "1Gi"), UncappedTarget: list(cpu, "1Gi")}}}
		v.Sizing.Recommendation = convert.Recommendation(v.status)
		return v
	}
	for _, tc := range []struct {
		name, recipe, cpu string
		base              float64 // of a pod that requests 10m
	}{
		{name: "floor", recipe: "cruisekube:pod-min-cpu=2000", cpu: "2", base: 10},
		{name: "floor that the recommender rounds up", recipe: "cruisekube:pod-min-cpu=1990", cpu: "2", base: 10},
		{name: "floor of another recipe", recipe: "loadline:cpu=shared,pod-min-cpu=2000", cpu: "2", base: 10},
		{name: "usage above the floor", recipe: "cruisekube:pod-min-cpu=1000", cpu: "2", base: 2000},
		{name: "no floor", recipe: "cruisekube", cpu: "2", base: 2000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			greedy := recommended(vpa(t, tc.recipe, leave), tc.cpu)
			p := greedy.read(pod("a", "10m"), &n)
			require.InDelta(t, tc.base, p.Sharing.Containers[0].Base[resources.CPU], 0)
			pods := []*Pod{vpa(t, "cruisekube", leave).read(pod("web", "300m"), &n), p, greedy.read(pod("b", "10m"), &n), greedy.read(pod("c", "10m"), &n)}
			for _, p := range pods[1:] {
				p.Sharing.Rank = sharing.Never
			}
			input, rule, _ := n.Gather(pods)
			require.Equal(t, tc.base > 10, sharing.Shares(input, rule).Evictions != nil)
		})
	}
	byPolicy := recommended(vpa(t, "", func(p *fleet.Policy, _ *rollout.State) { p.Mode, p.Recipe = fleet.Auto, "cruisekube:pod-min-cpu=2000" }), "2")
	require.InDelta(t, 2000, byPolicy.read(pod("a", "10m"), &n).Sharing.Containers[0].Base[resources.CPU], 0, "the policy may reserve room")
}

func TestShares_PolicyRestrictsUserVPAs(t *testing.T) {
	n := Node{Allocatable: resources.NewList(4000, 1<<40)}
	restrict := func(p *fleet.Policy, _ *rollout.State) {
		p.Mode, p.Recipe, p.Sharing.RestrictsUserVPAs = fleet.Auto, "cruisekube", true
		p.Sharing.Max = new(convert.Rules(&vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: &vpav1.PodResourcePolicy{
			ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: list("200m", "1Gi")}}}}}))
	}
	v := vpa(t, "vpa", restrict)
	require.Equal(t, fleet.SharingOn, v.Mode, "the recipe of the policy shares, that of the VPA does not")
	c := v.read(pod("a", "300m"), &n).Sharing.Containers[0]
	require.InDelta(t, 100, c.Base[resources.CPU], 0)
	require.InDelta(t, 200, c.Peak[resources.CPU], 0)
	c = vpa(t, "cruisekube").read(pod("a", "300m"), &n).Sharing.Containers[0]
	require.InDelta(t, 300, c.Peak[resources.CPU], 0)
}

func TestNodeGather_IgnoresPodsThatKubeletRefuses(t *testing.T) {
	n := Node{Allocatable: resources.NewList(1000, 1<<40)}
	v := vpa(t, "cruisekube")
	for _, tc := range []struct {
		name   string
		cpu    string
		change func(*corev1.Pod)
		left   float64
	}{
		{name: "larger than the node", cpu: "900", change: func(*corev1.Pod) {}, left: 1000},
		{name: "larger than the free capacity", cpu: "901m", change: func(*corev1.Pod) {}, left: 1000},
		{name: "as large as the free capacity", cpu: "900m", change: func(*corev1.Pod) {}, left: 100},
		{name: "accepted by the kubelet", cpu: "900", change: func(p *corev1.Pod) { p.Status.StartTime = new(metav1.NewTime(noon())) },
			left: -899_100},
		{name: "running", cpu: "900", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, left: -899_100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bound := pod("bound", tc.cpu)
			bound.Status.Phase = corev1.PodPending
			tc.change(bound)
			if bound.Status.Phase != corev1.PodRunning { // otherwise it would share
				input, _, _ := n.Gather([]*Pod{v.read(pod("one", "100m"), &n), v.read(bound, &n)})
				require.InDelta(t, tc.left, input.Available[resources.CPU], 0)
			}
			input, _, _ := n.Gather([]*Pod{v.read(pod("one", "100m"), &n), new(NewUnsharedPod(bound))})
			require.InDelta(t, tc.left, input.Available[resources.CPU], 0)
		})
	}
}
