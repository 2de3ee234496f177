package explain

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

func TestStatusOfPod_ReasonsOfUpdater(t *testing.T) {
	require.Greater(t, len(reason.SkipReasons()), 50)
	for _, why := range reason.SkipReasons() {
		s := plugintest.NewShop()
		kube, own := s.Clients()
		answerPod(t, kube, &explanation.Pod{UID: "web-1-b", VPA: "deployment-web", Mode: "Off", Skip: explanation.NewSkip(why)})
		a, err := whyPod(t.Context(), own, request(t, s, kube, "web-1-b"))
		require.NoError(t, err)
		text := squeezed(plugintest.Printed(t, a, "table"))
		require.Contains(t, text, "SKIPPED "+string(why)+"\nWHAT IT MEANS "+why.Explain().Meaning+"\nWHAT TO DO "+why.Explain().Advice+"\nSOURCE the last iteration of the updater\n")
		require.NotContains(t, text, "!")
	}
}

func TestStatusOfPod_WithoutUpdater(t *testing.T) {
	s := plugintest.NewShop()
	s.Pods["web-1-b"].Spec.Containers[0].Resources.Requests = plugintest.Resources("1100m", "200Mi")
	s.Pods["web-1-b"].Status.StartTime = new(metav1.NewTime(plugintest.Before(10)))
	kube, own := s.Clients()
	a, err := whyPod(t.Context(), own, request(t, s, kube, "web-1-b"))
	require.NoError(t, err)
	text := squeezed(plugintest.Printed(t, a, "table"))
	require.Contains(t, text, "SKIPPED TooYoung\n")
	require.Contains(t, text, "SOURCE the objects visible to you\n")
	require.Contains(t, text, "! query the updater in namespace kube-system: no pod found\n")
	a, err = whyPod(t.Context(), own, inventory.Request{Namespace: "kube-system", Name: "proxy-a", Book: request(t, s, kube, "").Book, Now: plugintest.Now(), Kube: kube})
	require.NoError(t, err)
	require.Contains(t, squeezed(plugintest.Printed(t, a, "table")), "SKIPPED NoVPA\n")
}

func TestStatusOfPod_WithoutVPA(t *testing.T) {
	s := plugintest.NewShop()
	kube, own := s.Clients()
	answerPod(t, kube, updaterAnswer(t, "no-vpa"))
	a, err := whyPod(t.Context(), own, request(t, s, kube, "web-1-b"))
	require.NoError(t, err)
	require.Equal(t, reason.NoVPA, a.Reason)
	require.NotEmpty(t, a.Advice)
}

// shopStatus returns the status of the shop, where the updater skips one pod.
func shopStatus(t *testing.T) *statusReport {
	t.Helper()
	s := plugintest.NewShop()
	s.Pods["web-1-a"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	kube, own := s.Clients()
	answerSkips(t, kube, map[reason.Reason][]string{reason.NodeFull: {"web-1-b"}})
	a, err := statusOf(t.Context(), own, request(t, s, kube, ""), "")
	require.NoError(t, err)
	return a
}

func TestStatus_OutputMatchesDocs(t *testing.T) {
	plugintest.InTheDocs(t, "status -n shop", plugintest.Printed(t, shopStatus(t), "table"))
	s := plugintest.NewShop()
	kube, own := s.Clients()
	answerPod(t, kube, &explanation.Pod{UID: "web-1-b", VPA: "deployment-web", Mode: "Off", Skip: explanation.NewSkip(reason.NodeFull)})
	a, err := whyPod(t.Context(), own, request(t, s, kube, "web-1-b"))
	require.NoError(t, err)
	plugintest.InTheDocs(t, "why -n shop pod/web-1-b", plugintest.Printed(t, a, "table"))
}

// A generated VPA has mode Off, so without a mode of the policy its pods never change. The updater
// only counts such pods.
func TestStatus_PolicyWithoutMode(t *testing.T) {
	const means, advice = "its VPA was generated for a SizingPolicy without `spec.rollout.mode`, which changes no running pods",
		"nothing, or set `spec.rollout.mode` of the SizingPolicy; the recommender reverts edits of the VPA"
	for name, rollout := range map[string]*loadlinev1alpha1.Rollout{
		"no rollout": nil,
		"no mode":    {Cooldown: &metav1.Duration{}},
		"Inherit":    {Mode: new(loadlinev1alpha1.RolloutModeInherit)},
	} {
		s := plugintest.NewShop()
		s.Pods["web-1-b"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
		s.Policy.Spec.Rollout = rollout
		s.Policy.Spec.Sharing = nil
		kube, own := s.Clients()
		answerSkips(t, kube, nil)
		answerPod(t, kube, &explanation.Pod{UID: "web-1-b", VPA: "deployment-web", Mode: "Off", Skip: explanation.NewSkip(reason.ModeOff)})
		a, err := statusOf(t.Context(), own, request(t, s, kube, ""), "")
		require.NoError(t, err)
		for i, pods := range []int{1, 3} {
			require.Zero(t, a.Workloads[i].Due, name)
			require.Equal(t, []skippedPods{{Reason: reason.ModeOff, Pods: pods}}, a.Workloads[i].Skipped, name)
		}
		require.Equal(t, []skippedPods{{Reason: reason.ModeOff, Pods: 4, Means: means, Advice: advice}}, a.Reasons, name)

		pod, err := whyPod(t.Context(), own, request(t, s, kube, "web-1-b"))
		require.NoError(t, err)
		require.Contains(t, squeezed(plugintest.Printed(t, pod, "table")), "POLICY shop, mode Inherit\nSKIPPED ModeOff\nWHAT IT MEANS "+means+"\nWHAT TO DO "+advice+"\nSOURCE the last iteration of the updater\n", name)

		require.Contains(t, squeezed(explainText(t, s, "web-1-b")), " skipped ModeOff: "+means+"\n", name)
	}
}

// The advice depends on the kind of VPA.
func TestStatus_ModeOffOfUserVPA(t *testing.T) {
	s := plugintest.NewShop()
	s.Policy.Spec.Rollout = nil
	person := s.VPA.DeepCopy()
	person.Name, person.Labels = "written", nil
	person.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "front"}
	s.Own = append(s.Own, person)
	kube, own := s.Clients()
	a, err := statusOf(t.Context(), own, request(t, s, kube, ""), "")
	require.NoError(t, err)
	require.Len(t, a.Reasons, 2)
	e := reason.ModeOff.Explain()
	require.Contains(t, a.Reasons, skippedPods{Reason: reason.ModeOff, Pods: 1, Means: e.Meaning, Advice: e.Advice})
	pod, err := whyPod(t.Context(), own, request(t, s, kube, "front-1-a"))
	require.NoError(t, err)
	require.Equal(t, []string{"written", e.Advice}, []string{pod.Workload.VPA, pod.Advice})
}

func TestStatus_Formats(t *testing.T) {
	a := shopStatus(t)
	require.Equal(t, []workloadStatus{
		{Namespace: "shop", VPA: "deployment-front", Target: "Deployment front", Mode: "Off", Policy: "shop", PolicyMode: "Auto", Pods: 1, Skipped: []skippedPods{{Reason: "Unchanged", Pods: 1}}},
		{Namespace: "shop", VPA: "deployment-web", Target: "Deployment web", Mode: "Off", Policy: "shop", PolicyMode: "Auto", Pods: 3, Due: 1, Skipped: []skippedPods{{Reason: "NodeFull", Pods: 1}, {Reason: "Unchanged", Pods: 1}}},
	}, a.Workloads)
	var read statusReport
	require.NoError(t, json.Unmarshal([]byte(plugintest.Printed(t, a, "json")), &read))
	require.Equal(t, a.Workloads, read.Workloads)
	read = statusReport{}
	require.NoError(t, yaml.Unmarshal([]byte(plugintest.Printed(t, a, "yaml")), &read))
	require.Equal(t, a.Workloads, read.Workloads)
	require.Equal(t, "VPA,MODE,POLICY,PHASE,COOLDOWN UNTIL,PODS,DUE,SKIPPED,TARGET,CONDITIONS\n"+
		"deployment-front,Off,shop (Auto),-,-,1,0,Unchanged 1,Deployment front,-\n"+
		"deployment-web,Off,shop (Auto),-,-,3,1,\"NodeFull 1, Unchanged 1\",Deployment web,-\n", plugintest.Printed(t, a, "csv"))
	require.Contains(t, plugintest.Printed(t, a, "md"), "| VPA | MODE | POLICY |")
	require.Contains(t, plugintest.Printed(t, a, "md"), "| --- | --- | --- |")
	require.Contains(t, squeezed(plugintest.Printed(t, a, "wide")), "WHAT TO DO")
	require.NotContains(t, squeezed(plugintest.Printed(t, a, "table")), "WHAT TO DO")
	require.ErrorContains(t, (&cli.OutputFlag{Format: "xml"}).Validate(), "--output=xml: must be table, wide, json, yaml, csv, md")
}

func TestStatus_Selection(t *testing.T) {
	s := plugintest.NewShop()
	kube, own := s.Clients()
	q := request(t, s, kube, "")
	q.Namespace = ""
	a, err := statusOf(t.Context(), own, q, "")
	require.NoError(t, err)
	require.Len(t, a.Workloads, 2)
	require.Equal(t, 1, a.Unmanaged, "the pod of the DaemonSet; that of the Job is done")
	require.True(t, strings.HasPrefix(plugintest.Printed(t, a, "table"), "NAMESPACE"))
	a, err = statusOf(t.Context(), own, q, "app=none")
	require.NoError(t, err)
	require.Empty(t, a.Workloads)
}

func TestStatus_CommandLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "help", args: []string{"--help"}, code: 0, want: "Usage: kubectl loadline status [flags]"},
		{name: "unexpected argument", args: []string{"web"}, code: 2,
			want: `kubectl loadline status: unexpected argument "web": -l selects VPAs by their labels`},
		{name: "pod as argument", args: []string{"pod/web-1"}, code: 2,
			want: `kubectl loadline status: unexpected argument "pod/web-1": for a pod use: kubectl loadline why pod/web-1`},
		{name: "invalid output and selector", args: []string{"-o", "xml", "-l", "a=b=c"}, code: 2,
			want: "--output=xml: must be table, wide, json, yaml, csv, md; --selector=a=b=c: "},
		{name: "missing kubeconfig", args: []string{"--kubeconfig=/nowhere/at/all"}, code: 1, want: "kubectl loadline status: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), Commands(), append([]string{"status"}, tc.args...), &out, &errOut))
			require.Contains(t, out.String()+errOut.String(), tc.want)
		})
	}
}
