package explain

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
)

// says returns the output of explain for a pod.
func says(t *testing.T, s *plugintest.Shop, pod string) string {
	t.Helper()
	kube, own := s.Clients()
	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, request(t, s, kube, pod), "kube-system", &out))
	return out.String()
}

// request returns a request for a pod of the shop.
func request(t *testing.T, s *plugintest.Shop, kube kubernetes.Interface, pod string) inventory.Request {
	t.Helper()
	book, err := recipe.NewBook("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	return inventory.Request{Namespace: "shop", Name: pod, Book: book, Now: plugintest.Now(), Kube: kube, SharingMinAge: s.MinAge}
}

func TestExplainPod_OutputMatchesDocs(t *testing.T) {
	text := says(t, plugintest.NewShop(), "web-1-b")
	page, err := os.ReadFile("../../docs/sharing.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "$ kubectl loadline explain -n shop pod/web-1-b\n"+text+"```\n", text)
}

func TestExplainPod_Reasons(t *testing.T) {
	younger := func(s *plugintest.Shop) {
		s.Pods["web-1-b"].Status.StartTime = new(metav1.NewTime(plugintest.Before(10)))
	}
	smaller := func(s *plugintest.Shop) {
		s.Pods["web-1-b"].Spec.Containers[0].Resources.Requests = plugintest.Resources("1100m", "200Mi")
	}
	outside := func(s *plugintest.Shop) {
		s.Pods["web-1-b"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	}
	for name, c := range map[string]struct {
		changes []func(*plugintest.Shop)
		want    string
	}{
		"as recommended":  {nil, "left alone Unchanged: the pod already has its target"},
		"too young":       {[]func(*plugintest.Shop){smaller, younger}, "left alone TooYoung: "},
		"out of bounds":   {[]func(*plugintest.Shop){outside}, "to be changed nothing that can be seen from here is in the way"},
		"only recommends": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) { s.Policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend) }}, "left alone RecommendOnly: "},
		"paused":          {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) { s.Policy.Spec.Paused = new(true) }}, "left alone PolicyPaused: "},
		"a mode that is Off": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.VPA.Labels, s.Policy.Spec.Namespaces.Names = nil, []string{"other"}
		}}, "left alone ModeOff: "},
		"a schedule": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.Policy.Spec.Rollout.Schedule = &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}
		}}, "left alone OutsideWindow: "},
		"refused by the node": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.Pods["web-1-b"].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
		}}, "left alone Infeasible: "},
		"requirements": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.VPA.Spec.UpdatePolicy.EvictionRequirements = []*vpav1.EvictionRequirement{{Resources: []corev1.ResourceName{"cpu"}, ChangeRequirement: vpav1.TargetHigherThanRequests}}
		}}, "left alone RequirementsNotMet: "},
		"an unreadable VPA": {[]func(*plugintest.Shop){func(s *plugintest.Shop) {
			s.VPA.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"}
		}}, "left alone VPAUnreadable: "},
		"a record that cannot be read": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.Record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", Annotations: map[string]string{vpav1.UnreadableAnnotation: "status: x"}}}
		}}, "left alone NoRecord: "},
		"pending, without a policy": {[]func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.VPA.Labels, s.Policy.Spec.Namespaces.Names = nil, []string{"other"}
			s.VPA.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeInPlaceOrRecreate)
			s.Pods["web-1-b"].Status.Phase = corev1.PodPending
		}}, "left alone NotRunning: "},
		"no VPA": {[]func(*plugintest.Shop){func(s *plugintest.Shop) { s.Pods["web-1-b"].OwnerReferences = nil }}, "VPA: none controls it\n"},
	} {
		s := plugintest.NewShop()
		for _, change := range c.changes {
			change(s)
		}
		require.Contains(t, plugintest.Squeezed(says(t, s, "web-1-b")), c.want, name)
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
			s := plugintest.NewShop()
			tc.change(s.Pods["web-1-b"])
			text := says(t, s, "web-1-b")
			require.Contains(t, text, tc.want)
			require.Contains(t, text, "none controls it")
		})
	}
}

func TestExplainPod_ReasonOfUpdater(t *testing.T) {
	s := plugintest.NewShop()
	kube, own := s.Clients()
	plugintest.AnswerSkips(t, kube, map[reason.Reason][]string{reason.Stabilizing: {"web-1-b"}})
	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, request(t, s, kube, "web-1-b"), "kube-system", &out))
	require.Contains(t, plugintest.Squeezed(out.String()), " left alone Stabilizing: "+reason.Stabilizing.Explain().Means+"\n")
}

func TestExplainPod_Events(t *testing.T) {
	s := plugintest.NewShop()
	event := func(name, by, message string, minutes int) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Reason: "InPlaceResizedByVPA", Message: message, Source: corev1.EventSource{Component: by},
			InvolvedObject: corev1.ObjectReference{UID: "web-1-b"}, LastTimestamp: metav1.NewTime(plugintest.Before(minutes))}
	}
	other := event("d", "vpa-updater", "of another pod", 1)
	other.InvolvedObject.UID = "web-1-a"
	s.More = append(s.More, event("a", "vpa-updater", "first", 20), event("b", "vpa-updater", "second", 10), event("c", "kubelet", "third", 5), other)
	text := plugintest.Squeezed(says(t, s, "web-1-b"))
	require.Contains(t, text, "event 2026-03-02T07:50:00Z InPlaceResizedByVPA: second\n event 2026-03-02T07:40:00Z InPlaceResizedByVPA: first\n")
	require.NotContains(t, text, "third")
	require.NotContains(t, text, "of another pod")
}

func TestExplainPod_Shares(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*plugintest.Shop)
		want   string
		not    string
	}{
		"sharing is off":      {func(s *plugintest.Shop) { s.Policy.Spec.Sharing = nil }, "node n1: no policy wants its pods to share what it has left\n", "does not share"},
		"a recipe without it": {func(s *plugintest.Shop) { s.Policy.Spec.Recipe = new("vpa") }, "node n1: no pod shares\nSizingPolicy: shop, sharing DryRun\n does not share shop/front-1-a NoRecommendation, RecipeDoesNotShare\n does not share shop/web-1-a NoRecommendation, RecipeDoesNotShare\n", "POD"},
		"the bases are more":  {func(s *plugintest.Shop) { s.Node.Status.Allocatable = plugintest.Resources("2500m", "32Gi") }, "; the bases alone are more than that\n", ""},
		"a pod that must go": {func(s *plugintest.Shop) {
			s.Node.Status.Allocatable, s.Policy.Spec.Sharing.Evict = plugintest.Resources("3", "32Gi"), new(true)
		}, "leaves the node", ""},
		"an old kubelet":   {func(s *plugintest.Shop) { s.Node.Status.NodeInfo.KubeletVersion = "v1.32.0" }, "! KubeletTooOld: nothing could be changed there\n", ""},
		"nothing is known": {func(s *plugintest.Shop) { s.Node.Status.Allocatable = nil }, "! AllocatableUnknown: nothing could be changed there\n", "POD"},
		"a cordoned node":  {func(s *plugintest.Shop) { s.Node.Spec.Unschedulable = true }, "! it takes no new pods", ""},
		"memory, too":      {func(s *plugintest.Shop) { s.Policy.Spec.Sharing.Resources = []corev1.ResourceName{"cpu", "memory"} }, " shop/web-1-b * 150 MiB 200 MiB 166.67 MiB 200 MiB\n", ""},
		"On, and what is said": {func(s *plugintest.Shop) {
			s.Policy.Spec.Sharing.Mode = new(loadlinev1alpha1.SharingOn)
			s.Policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionFalse, Reason: "NodesUnknown", Message: "why"}}
		}, "SizingPolicy: shop, sharing On; condition Sharing False, NodesUnknown: why\n", ""},
		"a VPA that cannot be read": {func(s *plugintest.Shop) { s.VPA.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"} }, "shop/web-1-b * NoRecommendation\n", "POD"},
		"a HorizontalPodAutoscaler": {func(s *plugintest.Shop) {
			s.More = append(s.More, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "h"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
				Metrics:        []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}}}}})
		}, "shop/web-1-b * ManagedByHPA\n", "POD"},
		"pods that may not be listed": {func(s *plugintest.Shop) { s.Hidden = "pods" }, "! it is not known what the pods of node n1 share: list pods of all namespaces: forbidden\n", "node n1:"},
		"LimitRanges, the same":       {func(s *plugintest.Shop) { s.Hidden = "limitranges" }, "! it is not known which VPA controls the pod: list LimitRanges of namespace shop: forbidden\n", "POD"},
	} {
		s := plugintest.NewShop()
		c.change(s)
		text := plugintest.Squeezed(says(t, s, "web-1-b"))
		require.Contains(t, text, c.want, name)
		if c.not != "" {
			require.NotContains(t, text, c.not, name)
		}
	}
	text := plugintest.NewShop()
	text.Pods["web-1-b"].Spec.NodeName = ""
	require.False(t, strings.Contains(says(t, text, "web-1-b"), "node"), "it runs on none")
}

// acting is a policy that is On, and whose pods share.
func acting(s *plugintest.Shop) {
	s.Policy.Spec.Sharing.Mode = new(loadlinev1alpha1.SharingOn)
	s.Policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionTrue, Reason: "Shares", Message: "pods that share: 3"}}
}

// Pods of a policy that is On, and of one in a dry run, share apart, as in the updater: each take in full what
// they request from the others.
func TestExplainPod_DryRunOfSharing(t *testing.T) {
	s := plugintest.NewShop()
	acting(s)
	dry := s.Policy.DeepCopy()
	dry.Name, dry.Spec.Namespaces.Names, dry.Spec.Sharing.Mode, dry.Status.Conditions = "pay", []string{"pay"}, new(loadlinev1alpha1.SharingDryRun), nil
	vpa := s.VPA.DeepCopy()
	vpa.Namespace, vpa.Name, vpa.Labels = "pay", "deployment-till", map[string]string{fleet.PolicyLabel: "pay"}
	vpa.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "till"}
	s.Own = []runtime.Object{dry, vpa}
	labels := map[string]string{"app": "till"}
	s.More = append(s.More, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pay"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "pay", Name: "till", CreationTimestamp: metav1.NewTime(plugintest.Before(3000))}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "pay", Name: "till-1", OwnerReferences: plugintest.OwnedBy("Deployment", "till")}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1))}})
	till := s.Pods["web-1-a"].DeepCopy()
	till.Namespace, till.Name, till.UID, till.Labels, till.OwnerReferences = "pay", "till-1-a", "till-1-a", labels, plugintest.OwnedBy("ReplicaSet", "till-1")
	s.Pods["till-1-a"] = till
	text := plugintest.Squeezed(says(t, s, "web-1-b"))
	require.Contains(t, text, "node n1: pods that share: 3, with the largest headroom for all; pods that would share, in a dry run: 1, with the largest headroom for all\n")
	require.Contains(t, text, "pods that share:\n cpu allocatable 8000m, available to those who share 5100m: bases 1500m, headroom 900m, left 2700m\n POD BASE PEAK SHARE REQUESTS\n"+
		" shop/web-1-a 500m 1400m 800m 1400m\n")
	require.Contains(t, text, "pods that would share, in a dry run:\n cpu allocatable 8000m, available to those who share 2300m: bases 500m, headroom 900m, left 900m\n POD BASE PEAK SHARE REQUESTS\n"+
		" pay/till-1-a 500m 1400m 1400m 1400m\n")
}

// A policy that is On whose condition says that its pods do not share is in a dry run.
func TestExplainPod_InactiveSharing(t *testing.T) {
	s := plugintest.NewShop()
	acting(s)
	require.Contains(t, says(t, s, "web-1-b"), "node n1: pods that share: 3, ")
	s.Policy.Status.Conditions[0].Status = metav1.ConditionFalse
	require.Contains(t, says(t, s, "web-1-b"), "node n1: pods that would share, in a dry run: 3, ")
}

func TestExplainPod_SharingMinAge(t *testing.T) {
	s := plugintest.NewShop()
	require.Contains(t, says(t, s, "web-1-b"), "assumed: a workload shares from an age of 1h0m0s on; give --sharing-min-age if the updater has another\n")
	s.MinAge = 50 * time.Hour
	text := plugintest.Squeezed(says(t, s, "web-1-b"))
	require.NotContains(t, text, "assumed")
	require.Contains(t, text, "does not share shop/web-1-b * NewWorkload\n")
	s.MinAge = 40 * time.Hour
	require.NotContains(t, says(t, s, "web-1-b"), "NewWorkload")
}

// Which pods carry a share is shown of all pods of the node, whether their policy wants it still or not.
func TestExplainPod_Marks(t *testing.T) {
	s := plugintest.NewShop()
	for name, text := range map[string]string{
		"web-1-a": "cpu,memory at 2026-03-02T07:50:00Z after 0", "web-1-b": "cpu at 2026-03-02T07:55:00Z after 3 reverted", "proxy-a": "cpu",
	} {
		s.Pods[name].Annotations = map[string]string{convert.SharedAnnotation: text}
	}
	text := plugintest.Squeezed(says(t, s, "web-1-b"))
	require.Contains(t, text, " does not share shop/web-1-b * Reverted\n")
	require.Contains(t, text, " has a share kube-system/proxy-a cpu, never made smaller\n has a share shop/web-1-a cpu, memory, made smaller at 2026-03-02T07:50:00Z\n"+
		" has a share shop/web-1-b * cpu, did harm, so it was taken back at 2026-03-02T07:55:00Z\n")
	s.Policy.Spec.Sharing = nil
	require.Contains(t, plugintest.Squeezed(says(t, s, "web-1-b")), " has a share shop/web-1-a cpu, memory, made smaller at 2026-03-02T07:50:00Z\n", "it leaves")
}

// What was kept because less did harm is part of the recommendation, and of the base.
func TestExplainPod_FloorsAfterRevert(t *testing.T) {
	s := plugintest.NewShop()
	state := rollout.State{Mode: fleet.Auto, Hash: convert.Rollout(&s.Policy).Hash, Kept: []policy.Container{cpu("a", 1600)},
		Reverted: []rollout.RevertedSizes{{Container: cpu("a", 1400), At: plugintest.Before(10)}}}
	s.Record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web"}, Status: convert.RecordStatus(state)}
	text := plugintest.Squeezed(says(t, s, "web-1-b"))
	require.Contains(t, text, "recommended 1600m, bounds 500m to 1600m\n")
	require.Contains(t, text, " shop/web-1-b * 1600m 1600m 1600m 1400m\n")
}

// Of equals the pods leave first that are the least missed: there are three of the one workload, and
// one of the other.
func TestExplainPod_LeavingPods(t *testing.T) {
	s := plugintest.NewShop()
	s.Pods["front-1-a"].Status.Conditions = nil
	for _, o := range s.More {
		if r, ok := o.(*appsv1.ReplicaSet); ok && r.Name == "front-1" {
			r.Spec.Replicas = new(int32(1))
		}
	}
	s.Node.Status.Allocatable, s.Policy.Spec.Sharing.Evict = plugintest.Resources("2900m", "32Gi"), new(true)
	text := plugintest.Squeezed(says(t, s, "web-1-b"))
	require.Contains(t, text, " shop/web-1-a 500m 1400m leaves the node 1400m\n")
	require.Equal(t, 1, strings.Count(text, "leaves the node"), text)
}
