package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

func sizes(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func ownedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
}

// shop is a node with three pods of a Deployment that nearly always use 0.5 cores and at times 1.4,
// one of another that is just being resized, and one of a DaemonSet without a VPA.
type shop struct {
	policy loadlinev1alpha1.SizingPolicy
	vpa    vpav1.VerticalPodAutoscaler
	pods   map[string]*corev1.Pod
	node   corev1.Node
	more   []runtime.Object
	record *loadlinev1alpha1.SizingRecord // of the first Deployment
	own    []runtime.Object               // of our own kinds, besides
	minAge time.Duration                  // --sharing-min-age
	hidden string                         // a resource that may not be listed
}

func newShop() *shop {
	old := metav1.NewTime(explainNow().Add(-48 * time.Hour))
	s := &shop{pods: map[string]*corev1.Pod{}}
	s.policy = loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}}, Recipe: new("cruisekube"),
		Workloads: []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Rollout:   &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto)},
		Sharing:   &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingDryRun)},
	}}
	s.vpa = vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{fleet.PolicyLabel: "shop"}}}
	s.vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	s.vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "a", LowerBound: sizes("500m", "150Mi"), Target: sizes("1400m", "200Mi"), UpperBound: sizes("1500m", "250Mi")}}}
	pod := func(namespace, name, app, kind, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}, OwnerReferences: ownedBy(kind, owner)}}
		p.Spec.NodeName = "n1"
		p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: sizes("1400m", "200Mi")}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &old, QOSClass: corev1.PodQOSBurstable}
		s.pods[name] = p
		return p
	}
	for _, app := range []string{"web", "front"} {
		s.more = append(s.more,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, CreationTimestamp: old}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: templateWith("a")}},
			&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app + "-1", OwnerReferences: ownedBy("Deployment", app)}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3))}})
	}
	for _, name := range []string{"web-1-c", "web-1-a", "web-1-b"} {
		pod("shop", name, "web", "ReplicaSet", "web-1")
	}
	pod("shop", "front-1-a", "front", "ReplicaSet", "front-1").Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu", LastTransitionTime: metav1.NewTime(before(5))}}
	pod("kube-system", "proxy-a", "proxy", "DaemonSet", "proxy").Spec.Containers[0].Resources.Requests = sizes("100m", "50Mi")
	pod("shop", "job-a", "job", "Job", "job").Status.Phase = corev1.PodSucceeded
	s.node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	s.node.Status.Allocatable = sizes("8", "32Gi")
	s.node.Status.NodeInfo.KubeletVersion = "v1.35.0"
	s.more = append(s.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return s
}

// says returns what explain says of a pod.
func (s *shop) says(t *testing.T, pod string) string {
	t.Helper()
	kube, own := s.clients()
	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, s.question(t, kube, pod), "kube-system", &out))
	return out.String()
}

// question is one about a pod of the shop.
func (s *shop) question(t *testing.T, kube kubernetes.Interface, pod string) question {
	t.Helper()
	book, err := recipe.NewBook("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	return question{"shop", pod, book, explainNow(), fleet.Options{}, kube, s.minAge}
}

// clients returns those of a cluster that has the shop.
func (s *shop) clients() (*kubefake.Clientset, *fake.Clientset) {
	objects := append([]runtime.Object{&s.node}, s.more...)
	for _, p := range s.pods {
		objects = append(objects, p)
	}
	own := append([]runtime.Object{&s.policy}, s.own...)
	for _, app := range []string{"web", "front"} {
		v := s.vpa.DeepCopy()
		v.Name, v.Spec.TargetRef = "deployment-"+app, &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: app}
		own = append(own, v)
	}
	if s.record != nil {
		own = append(own, s.record)
	}
	kube := kubefake.NewClientset(objects...)
	kube.PrependReactor("list", s.hidden, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return s.hidden != "", nil, errors.New("forbidden")
	})
	return kube, fake.NewSimpleClientset(own...)
}

// squeezed is a table with one space between its columns.
func squeezed(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

func TestAPodIsExplainedAsTheDocsShow(t *testing.T) {
	text := newShop().says(t, "web-1-b")
	page, err := os.ReadFile("../docs/sharing.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "$ kubectl loadline explain -n shop pod/web-1-b\n"+text+"```\n", text)
}

func TestWhyAPodIsLeftAlone(t *testing.T) {
	younger := func(s *shop) { s.pods["web-1-b"].Status.StartTime = new(metav1.NewTime(before(10))) }
	smaller := func(s *shop) {
		s.pods["web-1-b"].Spec.Containers[0].Resources.Requests = sizes("1100m", "200Mi")
	}
	outside := func(s *shop) {
		s.pods["web-1-b"].Spec.Containers[0].Resources.Requests = sizes("2", "200Mi")
	}
	for name, c := range map[string]struct {
		changes []func(*shop)
		want    string
	}{
		"as recommended":  {nil, "left alone Unchanged: the pod already has its target"},
		"too young":       {[]func(*shop){smaller, younger}, "left alone TooYoung: "},
		"out of bounds":   {[]func(*shop){outside}, "to be changed nothing that can be seen from here is in the way"},
		"only recommends": {[]func(*shop){outside, func(s *shop) { s.policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend) }}, "left alone RecommendOnly: "},
		"paused":          {[]func(*shop){outside, func(s *shop) { s.policy.Spec.Paused = new(true) }}, "left alone PolicyPaused: "},
		"a mode that is Off": {[]func(*shop){outside, func(s *shop) {
			s.vpa.Labels, s.policy.Spec.Namespaces.Names = nil, []string{"other"}
		}}, "left alone ModeOff: "},
		"a schedule": {[]func(*shop){outside, func(s *shop) {
			s.policy.Spec.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
		}}, "left alone OutsideWindow: "},
		"refused by the node": {[]func(*shop){outside, func(s *shop) {
			s.pods["web-1-b"].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
		}}, "left alone Infeasible: "},
		"requirements": {[]func(*shop){outside, func(s *shop) {
			s.vpa.Spec.UpdatePolicy.EvictionRequirements = []*vpav1.EvictionRequirement{{Resources: []corev1.ResourceName{"cpu"}, ChangeRequirement: vpav1.TargetHigherThanRequests}}
		}}, "left alone RequirementsNotMet: "},
		"an unreadable VPA": {[]func(*shop){func(s *shop) {
			s.vpa.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"}
		}}, "left alone VPAUnreadable: "},
		"a record that cannot be read": {[]func(*shop){outside, func(s *shop) {
			s.record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", Annotations: map[string]string{vpav1.UnreadableAnnotation: "status: x"}}}
		}}, "left alone NoRecord: "},
		"pending, without a policy": {[]func(*shop){outside, func(s *shop) {
			s.vpa.Labels, s.policy.Spec.Namespaces.Names = nil, []string{"other"}
			s.vpa.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeInPlaceOrRecreate)
			s.pods["web-1-b"].Status.Phase = corev1.PodPending
		}}, "left alone NotRunning: "},
		"no VPA": {[]func(*shop){func(s *shop) { s.pods["web-1-b"].OwnerReferences = nil }}, "VPA: none controls it\n"},
	} {
		s := newShop()
		for _, change := range c.changes {
			change(s)
		}
		require.Contains(t, squeezed(s.says(t, "web-1-b")), c.want, name)
	}
}

func TestExplainPod_NamesWhatKeepsPodsOutOfVPAs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string
	}{
		{name: "labels", want: "no VPA selects the pod: its labels exceed 100 labels or 8 KiB", change: func(p *corev1.Pod) {
			for i := range 100 {
				p.Labels[fmt.Sprint("label-", i)] = "x"
			}
		}},
		{name: "containers", want: "no VPA selects the pod: it has more than 300 containers", change: func(p *corev1.Pod) {
			p.Spec.Containers = make([]corev1.Container, 301)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShop()
			tc.change(s.pods["web-1-b"])
			text := s.says(t, "web-1-b")
			require.Contains(t, text, tc.want)
			require.Contains(t, text, "none controls it")
		})
	}
}

func TestExplainAndStatusGiveTheReasonOfTheUpdater(t *testing.T) {
	s := newShop()
	kube, own := s.clients()
	updaterSays(t, kube, map[reason.Reason][]string{reason.Stabilizing: {"web-1-b"}})
	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system", &out))
	require.Contains(t, squeezed(out.String()), " left alone Stabilizing: "+reason.Stabilizing.Explain().Means+"\n")
}

func TestWhatTheUpdaterSaidOfAPodIsShown(t *testing.T) {
	s := newShop()
	event := func(name, by, message string, minutes int) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Reason: "InPlaceResizedByVPA", Message: message, Source: corev1.EventSource{Component: by},
			InvolvedObject: corev1.ObjectReference{UID: "web-1-b"}, LastTimestamp: metav1.NewTime(before(minutes))}
	}
	other := event("d", "vpa-updater", "of another pod", 1)
	other.InvolvedObject.UID = "web-1-a"
	s.more = append(s.more, event("a", "vpa-updater", "first", 20), event("b", "vpa-updater", "second", 10), event("c", "kubelet", "third", 5), other)
	text := squeezed(s.says(t, "web-1-b"))
	require.Contains(t, text, "event 2026-03-02T07:50:00Z InPlaceResizedByVPA: second\n event 2026-03-02T07:40:00Z InPlaceResizedByVPA: first\n")
	require.NotContains(t, text, "third")
	require.NotContains(t, text, "of another pod")
}

func TestWhatPodsOfANodeShareIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*shop)
		want   string
		not    string
	}{
		"sharing is off":      {func(s *shop) { s.policy.Spec.Sharing = nil }, "node n1: no policy wants its pods to share what it has left\n", "does not share"},
		"a recipe without it": {func(s *shop) { s.policy.Spec.Recipe = new("vpa") }, "node n1: no pod shares\nSizingPolicy: shop, sharing DryRun\n does not share shop/front-1-a NoRecommendation, RecipeDoesNotShare\n does not share shop/web-1-a NoRecommendation, RecipeDoesNotShare\n", "POD"},
		"the bases are more":  {func(s *shop) { s.node.Status.Allocatable = sizes("2500m", "32Gi") }, "; the bases alone are more than that\n", ""},
		"a pod that must go":  {func(s *shop) { s.node.Status.Allocatable, s.policy.Spec.Sharing.Evict = sizes("3", "32Gi"), new(true) }, "leaves the node", ""},
		"an old kubelet":      {func(s *shop) { s.node.Status.NodeInfo.KubeletVersion = "v1.32.0" }, "! KubeletTooOld: nothing could be changed there\n", ""},
		"nothing is known":    {func(s *shop) { s.node.Status.Allocatable = nil }, "! AllocatableUnknown: nothing could be changed there\n", "POD"},
		"a cordoned node":     {func(s *shop) { s.node.Spec.Unschedulable = true }, "! it takes no new pods", ""},
		"memory, too":         {func(s *shop) { s.policy.Spec.Sharing.Resources = []corev1.ResourceName{"cpu", "memory"} }, " shop/web-1-b * 150 MiB 200 MiB 166.67 MiB 200 MiB\n", ""},
		"On, and what is said": {func(s *shop) {
			s.policy.Spec.Sharing.Mode = new(loadlinev1alpha1.SharingOn)
			s.policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionFalse, Reason: "NodesUnknown", Message: "why"}}
		}, "SizingPolicy: shop, sharing On; condition Sharing False, NodesUnknown: why\n", ""},
		"a VPA that cannot be read": {func(s *shop) { s.vpa.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"} }, "shop/web-1-b * NoRecommendation\n", "POD"},
		"a HorizontalPodAutoscaler": {func(s *shop) {
			s.more = append(s.more, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "h"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
				Metrics:        []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}}}}})
		}, "shop/web-1-b * ManagedByHPA\n", "POD"},
		"pods that may not be listed": {func(s *shop) { s.hidden = "pods" }, "! it is not known what the pods of node n1 share: list pods of all namespaces: forbidden\n", "node n1:"},
		"LimitRanges, the same":       {func(s *shop) { s.hidden = "limitranges" }, "! it is not known which VPA controls the pod: list LimitRanges of namespace shop: forbidden\n", "POD"},
	} {
		s := newShop()
		c.change(s)
		text := squeezed(s.says(t, "web-1-b"))
		require.Contains(t, text, c.want, name)
		if c.not != "" {
			require.NotContains(t, text, c.not, name)
		}
	}
	text := newShop()
	text.pods["web-1-b"].Spec.NodeName = ""
	require.False(t, strings.Contains(text.says(t, "web-1-b"), "node"), "it runs on none")
}

// acting is a policy that is On, and whose pods share.
func acting(s *shop) {
	s.policy.Spec.Sharing.Mode = new(loadlinev1alpha1.SharingOn)
	s.policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionTrue, Reason: "Shares", Message: "pods that share: 3"}}
}

// Pods of a policy that is On, and of one in a dry run, share apart, as in the updater: each take in full what
// they request from the others.
func TestADryRunBesidePodsThatShareIsExplained(t *testing.T) {
	s := newShop()
	acting(s)
	dry := s.policy.DeepCopy()
	dry.Name, dry.Spec.Namespaces.Names, dry.Spec.Sharing.Mode, dry.Status.Conditions = "pay", []string{"pay"}, new(loadlinev1alpha1.SharingDryRun), nil
	vpa := s.vpa.DeepCopy()
	vpa.Namespace, vpa.Name, vpa.Labels = "pay", "deployment-till", map[string]string{fleet.PolicyLabel: "pay"}
	vpa.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "till"}
	s.own = []runtime.Object{dry, vpa}
	labels := map[string]string{"app": "till"}
	s.more = append(s.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pay"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "pay", Name: "till", CreationTimestamp: metav1.NewTime(before(3000))}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "pay", Name: "till-1", OwnerReferences: ownedBy("Deployment", "till")}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1))}})
	till := s.pods["web-1-a"].DeepCopy()
	till.Namespace, till.Name, till.UID, till.Labels, till.OwnerReferences = "pay", "till-1-a", "till-1-a", labels, ownedBy("ReplicaSet", "till-1")
	s.pods["till-1-a"] = till
	text := squeezed(s.says(t, "web-1-b"))
	require.Contains(t, text, "node n1: pods that share: 3, with the largest headroom for all; pods that would share, in a dry run: 1, with the largest headroom for all\n")
	require.Contains(t, text, "pods that share:\n cpu allocatable 8000m, available to those who share 5100m: bases 1500m, headroom 900m, left 2700m\n POD BASE PEAK SHARE REQUESTS\n"+
		" shop/web-1-a 500m 1400m 800m 1400m\n")
	require.Contains(t, text, "pods that would share, in a dry run:\n cpu allocatable 8000m, available to those who share 2300m: bases 500m, headroom 900m, left 900m\n POD BASE PEAK SHARE REQUESTS\n"+
		" pay/till-1-a 500m 1400m 1400m 1400m\n")
}

// A policy that is On whose condition says that its pods do not share is in a dry run.
func TestAPolicyThatIsOnAndDoesNotShareIsExplained(t *testing.T) {
	s := newShop()
	acting(s)
	require.Contains(t, s.says(t, "web-1-b"), "node n1: pods that share: 3, ")
	s.policy.Status.Conditions[0].Status = metav1.ConditionFalse
	require.Contains(t, s.says(t, "web-1-b"), "node n1: pods that would share, in a dry run: 3, ")
}

func TestTheLeastAgeOfWorkloadsThatShareIsExplained(t *testing.T) {
	s := newShop()
	require.Contains(t, s.says(t, "web-1-b"), "assumed: a workload shares from an age of 1h0m0s on; give --sharing-min-age if the updater has another\n")
	s.minAge = 50 * time.Hour
	text := squeezed(s.says(t, "web-1-b"))
	require.NotContains(t, text, "assumed")
	require.Contains(t, text, "does not share shop/web-1-b * NewWorkload\n")
	s.minAge = 40 * time.Hour
	require.NotContains(t, s.says(t, "web-1-b"), "NewWorkload")
}

// Which pods carry a share is shown of all pods of the node, whether their policy wants it still or not.
func TestMarksOfPodsThatShareAreExplained(t *testing.T) {
	s := newShop()
	for name, text := range map[string]string{
		"web-1-a": "cpu,memory at 2026-03-02T07:50:00Z after 0", "web-1-b": "cpu at 2026-03-02T07:55:00Z after 3 reverted", "proxy-a": "cpu",
	} {
		s.pods[name].Annotations = map[string]string{convert.SharedAnnotation: text}
	}
	text := squeezed(s.says(t, "web-1-b"))
	require.Contains(t, text, " does not share shop/web-1-b * Reverted\n")
	require.Contains(t, text, " has a share kube-system/proxy-a cpu, never made smaller\n has a share shop/web-1-a cpu, memory, made smaller at 2026-03-02T07:50:00Z\n"+
		" has a share shop/web-1-b * cpu, did harm, so it was taken back at 2026-03-02T07:55:00Z\n")
	s.policy.Spec.Sharing = nil
	require.Contains(t, squeezed(s.says(t, "web-1-b")), " has a share shop/web-1-a cpu, memory, made smaller at 2026-03-02T07:50:00Z\n", "it leaves")
}

// What was kept because less did harm is part of the recommendation, and of the base.
func TestWhatWasKeptAfterARevertCountsForAPod(t *testing.T) {
	s := newShop()
	state := rollout.State{Mode: fleet.Auto, Hash: convert.Rollout(&s.policy).Hash, Kept: []policy.Container{cpu("a", 1600)},
		Reverted: []rollout.RevertedSizes{{Container: cpu("a", 1400), At: before(10)}}}
	s.record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web"}, Status: convert.RecordStatus(state)}
	text := squeezed(s.says(t, "web-1-b"))
	require.Contains(t, text, "recommended 1600m, bounds 500m to 1600m\n")
	require.Contains(t, text, " shop/web-1-b * 1600m 1600m 1600m 1400m\n")
}

// Of equals the pods leave first that are the least missed: there are three of the one workload, and
// one of the other.
func TestPodsThatLeaveAreThoseOfTheLowestRank(t *testing.T) {
	s := newShop()
	s.pods["front-1-a"].Status.Conditions = nil
	for _, o := range s.more {
		if r, ok := o.(*appsv1.ReplicaSet); ok && r.Name == "front-1" {
			r.Spec.Replicas = new(int32(1))
		}
	}
	s.node.Status.Allocatable, s.policy.Spec.Sharing.Evict = sizes("2900m", "32Gi"), new(true)
	text := squeezed(s.says(t, "web-1-b"))
	require.Contains(t, text, " shop/web-1-a 500m 1400m leaves the node 1400m\n")
	require.Equal(t, 1, strings.Count(text, "leaves the node"), text)
}
