package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/reason"
)

// response is what an API server passes on.
type response struct {
	text string
	err  error
}

func (r response) DoRaw(context.Context) ([]byte, error) { return []byte(r.text), r.err }

func (r response) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(r.text)), r.err
}

// updaterSays lets the updater that holds the Lease answer with reasons.
func updaterSays(t *testing.T, kube *kubefake.Clientset, reasons map[reason.Reason][]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"reasons": reasons})
	require.NoError(t, err)
	require.NoError(t, kube.Tracker().Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("vpa-updater-7_0a"), RenewTime: new(metav1.NewMicroTime(explainNow())), LeaseDurationSeconds: new(int32(15))}}))
	kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		asked, ok := a.(clienttesting.ProxyGetAction)
		require.True(t, ok)
		require.Equal(t, []string{"kube-system", "http", "vpa-updater-7", "8943", "/left-alone"}, []string{a.GetNamespace(), asked.GetScheme(), asked.GetName(), asked.GetPort(), asked.GetPath()})
		return true, response{text: string(text)}, nil
	})
}

// printed returns an answer in a form.
func printed(t *testing.T, a report, format string) string {
	t.Helper()
	var out bytes.Buffer
	o := outputFlag{format}
	require.NoError(t, o.validate())
	require.NoError(t, o.print(&out, &out, a))
	return out.String()
}

func TestStatusOfAPodGivesEachReasonOfTheUpdater(t *testing.T) {
	require.Greater(t, len(reason.Skips()), 50)
	for _, why := range reason.Skips() {
		s := newShop()
		kube, own := s.clients()
		updaterSays(t, kube, map[reason.Reason][]string{why: {"web-1-b"}})
		a, err := statusOfPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system")
		require.NoError(t, err)
		text := squeezed(printed(t, a, "table"))
		require.Contains(t, text, "LEFT ALONE "+string(why)+"\nWHAT IT MEANS "+why.Explain().Means+"\nWHAT TO DO "+why.Explain().Advice+"\nSAYS the updater")
		require.NotContains(t, text, "!")
	}
}

func TestStatusOfAPodWithoutTheUpdater(t *testing.T) {
	s := newShop()
	s.pods["web-1-b"].Spec.Containers[0].Resources.Requests = sizes("1100m", "200Mi")
	s.pods["web-1-b"].Status.StartTime = new(metav1.NewTime(before(10)))
	kube, own := s.clients()
	a, err := statusOfPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system")
	require.NoError(t, err)
	text := squeezed(printed(t, a, "table"))
	require.Contains(t, text, "LEFT ALONE TooYoung\n")
	require.Contains(t, text, "SAYS what can be seen from outside\n")
	require.Contains(t, text, "! the updater does not say why it leaves the pod alone: ask the updater in namespace kube-system: none is there\n")
	a, err = statusOfPod(t.Context(), own, question{Namespace: "kube-system", Name: "proxy-a", Book: s.question(t, kube, "").Book, Now: explainNow(), Kube: kube}, "kube-system")
	require.NoError(t, err)
	require.Contains(t, squeezed(printed(t, a, "table")), "LEFT ALONE NoVPA\n")
}

// shopStatus is the status of the shop of which the updater has said why one pod is left alone.
func shopStatus(t *testing.T) *statusAnswer {
	t.Helper()
	s := newShop()
	s.pods["web-1-a"].Spec.Containers[0].Resources.Requests = sizes("2", "200Mi")
	kube, own := s.clients()
	updaterSays(t, kube, map[reason.Reason][]string{reason.NodeFull: {"web-1-b"}})
	a, err := statusOf(t.Context(), own, s.question(t, kube, ""), statusScope{Updater: "kube-system"})
	require.NoError(t, err)
	return a
}

// inTheDocs checks that docs/kubectl.md shows what a command prints.
func inTheDocs(t *testing.T, command, text string) {
	t.Helper()
	inTheDocsOf(t, "kubectl.md", command, text)
}

// inTheDocsOf checks that a page does.
func inTheDocsOf(t *testing.T, name, command, text string) {
	t.Helper()
	page, err := os.ReadFile("../docs/" + name)
	require.NoError(t, err)
	if want := "$ kubectl loadline " + command + "\n" + text + "```\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/%s does not have %q", name, want)
	}
}

func TestStatusIsAsTheDocsShow(t *testing.T) {
	inTheDocs(t, "status -n shop", printed(t, shopStatus(t), "table"))
	s := newShop()
	kube, own := s.clients()
	updaterSays(t, kube, map[reason.Reason][]string{reason.NodeFull: {"web-1-b"}})
	a, err := statusOfPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system")
	require.NoError(t, err)
	inTheDocs(t, "status -n shop pod/web-1-b", printed(t, a, "table"))
}

// A made VPA is Off, so under a policy without a mode nobody ever changes its pods. The updater says nothing of them:
// it only counts them.
func TestPodsOfAMadeVPAUnderAPolicyWithoutAModeAreLeftAlone(t *testing.T) {
	const means, advice = "its VPA was generated for a SizingPolicy without `spec.rollout.mode`, which changes no running pods",
		"nothing, or set `spec.rollout.mode` of the SizingPolicy; the recommender reverts edits of the VPA"
	for name, rollout := range map[string]*loadlinev1alpha1.Rollout{
		"no rollout": nil,
		"no mode":    {Cooldown: &metav1.Duration{}},
		"Inherit":    {Mode: new(loadlinev1alpha1.RolloutModeInherit)},
	} {
		s := newShop()
		s.pods["web-1-b"].Spec.Containers[0].Resources.Requests = sizes("2", "200Mi")
		s.policy.Spec.Rollout = rollout
		s.policy.Spec.Sharing = nil
		kube, own := s.clients()
		updaterSays(t, kube, nil)
		a, err := statusOf(t.Context(), own, s.question(t, kube, ""), statusScope{Updater: "kube-system"})
		require.NoError(t, err)
		for i, pods := range []int{1, 3} {
			require.Zero(t, a.Workloads[i].Due, name)
			require.Equal(t, []podsLeft{{Reason: reason.ModeOff, Pods: pods}}, a.Workloads[i].Left, name)
		}
		require.Equal(t, []podsLeft{{reason.ModeOff, 4, means, advice}}, a.Reasons, name)

		pod, err := statusOfPod(t.Context(), own, s.question(t, kube, "web-1-b"), "kube-system")
		require.NoError(t, err)
		require.Contains(t, squeezed(printed(t, pod, "table")), "POLICY shop, mode Inherit\nLEFT ALONE ModeOff\nWHAT IT MEANS "+means+"\nWHAT TO DO "+advice+"\nSAYS what can be seen from outside\n", name)

		require.Contains(t, squeezed(s.says(t, "web-1-b")), " left alone ModeOff: "+means+"\n", name)
	}
}

// What to do about one reason is said of each kind of VPA.
func TestAVPAThatIsOffIsExplainedByWhoWroteIt(t *testing.T) {
	s := newShop()
	s.policy.Spec.Rollout = nil
	person := s.vpa.DeepCopy()
	person.Name, person.Labels = "written", nil
	person.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "front"}
	s.own = append(s.own, person)
	kube, own := s.clients()
	a, err := statusOf(t.Context(), own, s.question(t, kube, ""), statusScope{Updater: "kube-system"})
	require.NoError(t, err)
	require.Len(t, a.Reasons, 2)
	e := reason.ModeOff.Explain()
	require.Contains(t, a.Reasons, podsLeft{reason.ModeOff, 1, e.Means, e.Advice})
	pod, err := statusOfPod(t.Context(), own, s.question(t, kube, "front-1-a"), "kube-system")
	require.NoError(t, err)
	require.Equal(t, []string{"written", e.Advice}, []string{pod.Workload.VPA, pod.Advice})
}

func TestStatusInAllFormats(t *testing.T) {
	a := shopStatus(t)
	require.Equal(t, []workloadStatus{
		{Namespace: "shop", VPA: "deployment-front", Target: "Deployment front", Mode: "Off", Policy: "shop", PolicyMode: "Auto", Pods: 1, Left: []podsLeft{{Reason: "Unchanged", Pods: 1}}},
		{Namespace: "shop", VPA: "deployment-web", Target: "Deployment web", Mode: "Off", Policy: "shop", PolicyMode: "Auto", Pods: 3, Due: 1, Left: []podsLeft{{Reason: "NodeFull", Pods: 1}, {Reason: "Unchanged", Pods: 1}}},
	}, a.Workloads)
	var read statusAnswer
	require.NoError(t, json.Unmarshal([]byte(printed(t, a, "json")), &read))
	require.Equal(t, a.Workloads, read.Workloads)
	read = statusAnswer{}
	require.NoError(t, yaml.Unmarshal([]byte(printed(t, a, "yaml")), &read))
	require.Equal(t, a.Workloads, read.Workloads)
	require.Equal(t, "VPA,MODE,POLICY,PHASE,COOLDOWN UNTIL,PODS,DUE,LEFT ALONE,TARGET,CONDITIONS\n"+
		"deployment-front,Off,shop (Auto),-,-,1,0,Unchanged 1,Deployment front,-\n"+
		"deployment-web,Off,shop (Auto),-,-,3,1,\"NodeFull 1, Unchanged 1\",Deployment web,-\n", printed(t, a, "csv"))
	require.Contains(t, printed(t, a, "md"), "| VPA | MODE | POLICY |")
	require.Contains(t, printed(t, a, "md"), "| --- | --- | --- |")
	require.Contains(t, squeezed(printed(t, a, "wide")), "WHAT TO DO")
	require.NotContains(t, squeezed(printed(t, a, "table")), "WHAT TO DO")
	require.ErrorContains(t, (&outputFlag{"xml"}).validate(), "--output=xml: must be table, wide, json, yaml, csv, md")
}

func TestStatusOfVPAsThatALabelSelectsAndOfAllNamespaces(t *testing.T) {
	s := newShop()
	kube, own := s.clients()
	q := s.question(t, kube, "")
	q.Namespace = ""
	a, err := statusOf(t.Context(), own, q, statusScope{Updater: "kube-system"})
	require.NoError(t, err)
	require.Len(t, a.Workloads, 2)
	require.Equal(t, 1, a.Unmanaged, "the pod of the DaemonSet; that of the Job is done")
	require.True(t, strings.HasPrefix(printed(t, a, "table"), "NAMESPACE"))
	a, err = statusOf(t.Context(), own, q, statusScope{Selector: "app=none", Updater: "kube-system"})
	require.NoError(t, err)
	require.Empty(t, a.Workloads)
}

func TestCommandLineOfStatus(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "Usage: kubectl loadline status [flags] [pod/NAME]"},
		{[]string{"web"}, 2, "kubectl loadline status: want pod/NAME, or nothing"},
		{[]string{"-o", "xml", "-l", "a=b=c"}, 2, "--output=xml: must be table, wide, json, yaml, csv, md; --selector=a=b=c: "},
		{[]string{"--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline status: "},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), append([]string{"status"}, c.args...), &out, &errOut), c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
}
