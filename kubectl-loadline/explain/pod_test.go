package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/explanation"
)

func explainText(t *testing.T, s *plugintest.Shop, pod string) string {
	t.Helper()
	kube, own := s.Clients()
	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, request(t, s, kube, pod), &out))
	return out.String()
}

func request(t *testing.T, s *plugintest.Shop, kube kubernetes.Interface, pod string) inventory.Request {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	return inventory.Request{Namespace: "shop", Name: pod, Book: book, Now: plugintest.Now(), Kube: kube, Programs: "kube-system"}
}

// updaterAnswer reads a golden file of TestExplainPod_Golden in package updater.
func updaterAnswer(t *testing.T, name string) *explanation.Pod {
	t.Helper()
	text, err := os.ReadFile("../../updater/testdata/explain/" + name + ".json")
	require.NoError(t, err)
	answer := &explanation.Pod{}
	require.NoError(t, json.Unmarshal(text, answer))
	answer.Namespace, answer.Name, answer.UID = "shop", "web-1-b", "web-1-b"
	return answer
}

// explainTextWith returns the output of explain for a pod with an explanation from the updater.
func explainTextWith(t *testing.T, s *plugintest.Shop, answer *explanation.Pod) string {
	t.Helper()
	kube, own := s.Clients()
	answerPod(t, kube, answer)
	var out bytes.Buffer
	require.NoError(t, printPod(t.Context(), own, request(t, s, kube, "web-1-b"), &out))
	return out.String()
}

func TestExplainPod_OutputMatchesDocs(t *testing.T) {
	for _, tc := range []struct{ name, page string }{
		{name: "shares", page: "sharing.md"},
		{name: "outside-window", page: "kubectl.md"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := explainTextWith(t, plugintest.NewShop(), updaterAnswer(t, tc.name))
			page, err := os.ReadFile("../../docs/" + tc.page)
			require.NoError(t, err)
			require.Contains(t, string(page), "$ kubectl loadline explain -n shop pod/web-1-b\n"+text+"```\n", text)
		})
	}
}

func TestExplainPod_FormatsUpdaterExplanation(t *testing.T) {
	for _, tc := range []struct {
		answer string
		want   []string
	}{
		{"resized", []string{"VPA shop/web-vpa, mode InPlaceOrRecreate\n", " container app cpu requests 200m, limit none; recommended 200m, bounds 150m to 400m\n", " skipped no: changed in the last iteration, or due in the next\n"}},
		{"mode-off", []string{"VPA shop/web-vpa, mode Off\n", " skipped ModeOff: ", " what to do "}},
		{"no-vpa", []string{"VPA: none controls it\n", " container app cpu requests 100m, limit none; nothing is recommended\n"}},
		{"too-young", []string{" skipped TooYoung: "}},
		{"recommend-only", []string{"SizingPolicy: fleet, mode Recommend\n", " skipped RecommendOnly: "}},
		{"outside-window", []string{" next change not before 2026-01-02T22:00:00Z\n", " skipped OutsideWindow: "}},
		{"shares-dry-run", []string{" share in a dry run of SizingPolicy fleet among 3 pods of node n1\n", " share of cpu 800m, base 500m, peak 1400m\n"}},
		{"does-not-share", []string{" share in a dry run of SizingPolicy fleet: none, RecipeDoesNotShare: "}},
		{"leaves", []string{" share by SizingPolicy fleet: the pod leaves node n1\n"}},
	} {
		t.Run(tc.answer, func(t *testing.T) {
			text := squeezed(explainTextWith(t, plugintest.NewShop(), updaterAnswer(t, tc.answer)))
			for _, want := range tc.want {
				require.Contains(t, text, want)
			}
			require.NotContains(t, text, "!")
		})
	}
}

func TestExplainPod_QuotesUpdaterExplanation(t *testing.T) {
	answer := updaterAnswer(t, "shares")
	answer.VPA, answer.Mode, answer.Containers[0].Name, answer.Share.Node, answer.Rollout.Policy = plugintest.Hostile, plugintest.Hostile, plugintest.Hostile, plugintest.Hostile, plugintest.Hostile
	plugintest.RequirePrintable(t, explainTextWith(t, plugintest.NewShop(), answer))
}

func TestExplainPod_ReportsUpdaterState(t *testing.T) {
	answer := updaterAnswer(t, "resized")
	answer.DryRun = true
	require.Contains(t, squeezed(explainTextWith(t, plugintest.NewShop(), answer)), " skipped no: it would be changed, but the updater runs with --dry-run\n")
	answer = updaterAnswer(t, "resized")
	answer.Waiting = "the status Lease of the admission controller is missing or stale, evicted pods might come back unchanged"
	require.Contains(t, explainTextWith(t, plugintest.NewShop(), answer), "! nothing is changed since 2026-01-02T12:00:00Z: the status Lease of the admission controller is missing or stale, evicted pods might come back unchanged\n")
	answer = updaterAnswer(t, "mode-off")
	answer.VPA, answer.Problem = "", "find the VPA of the pod: forbidden"
	require.Contains(t, explainTextWith(t, plugintest.NewShop(), answer), "! find the VPA of the pod: forbidden\n")
}

// The updater caches only pods with a node.
func TestExplainPod_UnscheduledPod(t *testing.T) {
	s := plugintest.NewShop()
	s.Pods["web-1-b"].Spec.NodeName, s.Pods["web-1-b"].Status.Phase = "", corev1.PodPending
	require.True(t, strings.HasPrefix(explainTextWith(t, s, updaterAnswer(t, "resized")), "! the pod is on no node yet, so the updater does not change it: limited to objects that you can read\npod shop/web-1-b\n"))
}

// The updater may have an earlier pod with this name in its cache.
func TestExplainPod_IgnoresExplanationOfEarlierPod(t *testing.T) {
	answer := updaterAnswer(t, "too-young")
	answer.UID = "former"
	text := squeezed(explainTextWith(t, plugintest.NewShop(), answer))
	require.Contains(t, text, "! the updater does not know this pod yet: limited to objects that you can read\n")
	require.Contains(t, text, " skipped Unchanged: ")
}

func TestExplainPod_ReportsUnreachableUpdater(t *testing.T) {
	require.True(t, strings.HasPrefix(explainText(t, plugintest.NewShop(), "web-1-b"), "! query the updater in namespace kube-system: no pod found: limited to objects that you can read\npod shop/web-1-b, node n1\n"))
}

func TestExplainPod_ReasonsWithoutUpdater(t *testing.T) {
	younger := func(s *plugintest.Shop) {
		s.Pods["web-1-b"].Status.StartTime = new(metav1.NewTime(plugintest.Before(10)))
	}
	smaller := func(s *plugintest.Shop) {
		s.Pods["web-1-b"].Spec.Containers[0].Resources.Requests = plugintest.Resources("1100m", "200Mi")
	}
	outside := func(s *plugintest.Shop) {
		s.Pods["web-1-b"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	}
	for _, tc := range []struct {
		name    string
		changes []func(*plugintest.Shop)
		want    string
	}{
		{name: "has its target", want: "skipped Unchanged: the pod already has its target"},
		{name: "too young", changes: []func(*plugintest.Shop){smaller, younger}, want: "skipped TooYoung: "},
		{name: "out of bounds", changes: []func(*plugintest.Shop){outside}, want: "skipped unknown: you can read no reason"},
		{name: "mode Recommend", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.Policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
		}}, want: "skipped RecommendOnly: "},
		{name: "paused policy", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) { s.Policy.Spec.Paused = new(true) }},
			want: "skipped PolicyPaused: "},
		{name: "mode Off", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.VPA.Labels, s.Policy.Spec.Namespaces.Names = nil, []string{"other"}
		}}, want: "skipped ModeOff: "},
		{name: "infeasible resize", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.Pods["web-1-b"].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
		}}, want: "skipped Infeasible: "},
		{name: "eviction requirements", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.VPA.Spec.UpdatePolicy.EvictionRequirements = []*vpav1.EvictionRequirement{{Resources: []corev1.ResourceName{"cpu"}, ChangeRequirement: vpav1.TargetHigherThanRequests}}
		}}, want: "skipped RequirementsNotMet: "},
		{name: "unreadable VPA", changes: []func(*plugintest.Shop){func(s *plugintest.Shop) {
			s.VPA.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec: x"}
		}}, want: "skipped VPAUnreadable: "},
		{name: "unreadable record", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.Record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", Annotations: map[string]string{vpav1.UnreadableAnnotation: "status: x"}}}
		}}, want: "skipped NoRecord: "},
		{name: "pending without a policy", changes: []func(*plugintest.Shop){outside, func(s *plugintest.Shop) {
			s.VPA.Labels, s.Policy.Spec.Namespaces.Names = nil, []string{"other"}
			s.VPA.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeInPlaceOrRecreate)
			s.Pods["web-1-b"].Status.Phase = corev1.PodPending
		}}, want: "skipped NotRunning: "},
		{name: "no VPA", changes: []func(*plugintest.Shop){func(s *plugintest.Shop) { s.Pods["web-1-b"].OwnerReferences = nil }},
			want: "VPA: none controls it\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := plugintest.NewShop()
			for _, change := range tc.changes {
				change(s)
			}
			require.Contains(t, squeezed(explainText(t, s, "web-1-b")), tc.want)
		})
	}
}

func TestExplainPod_ReportsPodsOutsideVPALimits(t *testing.T) {
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
			text := explainText(t, s, "web-1-b")
			require.Contains(t, text, tc.want)
			require.Contains(t, text, "none controls it")
		})
	}
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
	text := squeezed(explainText(t, s, "web-1-b"))
	require.Contains(t, text, "event 2026-03-02T07:50:00Z InPlaceResizedByVPA: second\n event 2026-03-02T07:40:00Z InPlaceResizedByVPA: first\n")
	require.NotContains(t, text, "third")
	require.NotContains(t, text, "of another pod")
}

func TestExplainPod_ShareAnnotation(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{name: "never made smaller", text: "cpu", want: "cpu, never made smaller"},
		{name: "made smaller", text: "cpu,memory at 2026-03-02T07:50:00Z after 0",
			want: "cpu, memory, made smaller at 2026-03-02T07:50:00Z"},
		{name: "reverted", text: "cpu at 2026-03-02T07:55:00Z after 3 reverted", want: "cpu, reverted after harm at 2026-03-02T07:55:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := plugintest.NewShop()
			s.Pods["web-1-b"].Annotations = map[string]string{convert.SharedAnnotation: tc.text}
			require.Contains(t, squeezed(explainText(t, s, "web-1-b")), " has a share "+tc.want+"\n")
		})
	}
}

// Resources kept after a revert raise the recommendation.
func TestExplainPod_FloorsAfterRevert(t *testing.T) {
	s := plugintest.NewShop()
	state := rollout.State{Mode: fleet.Auto, Hash: convert.RolloutSettings(&s.Policy).Hash, ProvenResources: []policy.Container{cpu("a", 1600)},
		RevertedResources: []rollout.RevertedResources{{Container: cpu("a", 1400), At: plugintest.Before(10)}}}
	s.Record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web"}, Status: convert.RecordStatus(state)}
	require.Contains(t, squeezed(explainText(t, s, "web-1-b")), "recommended 1600m, bounds 500m to 1600m\n")
}

func TestExplainPod_WithoutPermissionForLimitRanges(t *testing.T) {
	s := plugintest.NewShop()
	s.Hidden = "limitranges"
	require.Contains(t, explainText(t, s, "web-1-b"), "! it is not known which VPA controls the pod: list LimitRanges of namespace shop: forbidden\n")
}
