package sizes

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/testkit"
)

func emptyEstimator(book *recipe.Cache) *inventory.Estimator {
	return &inventory.Estimator{Name: inventory.FromMetricsAPI, Book: book}
}

func shopSizes(t *testing.T, scope inventory.Selection, flag string) *workloadSizes {
	t.Helper()
	s := plugintest.NewShop()
	s.Pods["web-1-a"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	s.More = append(s.More, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "proxy"}})
	kube, own := s.Clients()
	q := request(t, s, kube, "")
	q.Namespace = ""
	if scope.Selector == nil {
		scope.Selector = labels.Everything()
	}
	all, err := readWorkloads(t.Context(), own, q, scope)
	require.NoError(t, err)
	book, err := recipe.NewCache(flag, recipe.DefaultConfig())
	require.NoError(t, err)
	e := emptyEstimator(book)
	for _, sample := range plugintest.ProxyUsage() {
		e.Add(sample)
	}
	all.sizes = sizesOf(all.workloads, e)
	return all
}

func TestEstimate_MatchesRecommender(t *testing.T) {
	for _, text := range []string{"vpa", "loadline"} {
		r, err := recipe.ParseWith(recipe.DefaultConfig(), text)
		require.NoError(t, err)
		simulated := replay.NewSimulatedRecommender(usage.DefaultConfig(), &r, plugintest.ProxyUsage()[0].At)
		for _, s := range plugintest.ProxyUsage() {
			simulated.Observe(s.At, s.Kind, s.Amount, 0)
		}
		want := simulated.Advise(plugintest.Now(), resources.List{})
		all := shopSizes(t, inventory.Selection{Names: []string{"daemonset/proxy"}}, text)
		require.Len(t, all.sizes, 1)
		require.Equal(t, want.Target, convert.Resources(all.sizes[0].Target), text)
		require.Equal(t, want.Lower, convert.Resources(all.sizes[0].Lower), text)
		require.False(t, want.Target.Empty())
	}
}

func TestRecommend_OutputMatchesDocs(t *testing.T) {
	all := shopSizes(t, inventory.Selection{}, "vpa")
	require.Empty(t, all.problems)
	plugintest.InTheDocs(t, "recommend -A", plugintest.Printed(t, &recommendReport{all.sizes, all.problems}, "table"))
	plugintest.InTheDocs(t, "diff -A", plugintest.Printed(t, diffOf(all.sizes, nil), "table"))
}

func TestSizes_IgnoreStartupBoosts(t *testing.T) {
	pod := testkit.Pod("web-1-a", testkit.Container("a", "cpu=3 memory=100Mi", ""))
	pod.Annotations = map[string]string{convert.BoostAnnotationPrefix + "a": `{"requests":{"cpu":"1","memory":"100Mi"},"limits":{}}`}
	list := sizesOf([]*inventory.Workload{{Pods: []*corev1.Pod{pod}}}, nil)
	require.Len(t, list, 1)
	require.Equal(t, "1", list[0].Requests.Cpu().String())
	_, _, current := estimatorWith(pod).Histories([]*corev1.Pod{pod}, attuneChoice(t))
	require.EqualValues(t, 1000, current["a"].Value(resources.CPU))
}

func attuneChoice(t *testing.T) *recipe.Choice {
	t.Helper()
	book, err := recipe.NewCache("attune", recipe.DefaultConfig())
	require.NoError(t, err)
	return book.ForAnnotation("")
}

func estimatorWith(pod *corev1.Pod) *inventory.Estimator {
	e := emptyEstimator(nil)
	e.Add(usage.Sample{Container: usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: "a"}, At: plugintest.Before(5), Amount: 100})
	return e
}

func TestSizes_Selection(t *testing.T) {
	for _, tc := range []struct {
		name  string
		scope inventory.Selection
		want  []string
	}{
		{name: "all", want: []string{"DaemonSet proxy", "Deployment front", "Deployment web"}},
		{name: "kind and name", scope: inventory.Selection{Names: []string{"deployment/web"}}, want: []string{"Deployment web"}},
		{name: "name", scope: inventory.Selection{Names: []string{"front", "none"}}, want: []string{"Deployment front"}},
		{name: "label", scope: inventory.Selection{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})},
			want: []string{"Deployment web"}},
		{name: "without a VPA", scope: inventory.Selection{Unsized: true}, want: []string{"DaemonSet proxy"}},
		{name: "no workload of the kind", scope: inventory.Selection{Names: []string{"statefulset/web"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var found []string
			for _, s := range shopSizes(t, tc.scope, "vpa").sizes {
				found = append(found, s.Workload)
			}
			require.Equal(t, tc.want, found)
		})
	}
}

func TestDiff_ReportsChangesAndSeverity(t *testing.T) {
	all := shopSizes(t, inventory.Selection{Names: []string{"deployment/web"}}, "vpa")
	require.Equal(t, []sizeChange{{
		Namespace: "shop", Workload: "Deployment web", Container: "a", Resource: "cpu", Pods: 3,
		Now: "2000m", Target: "1400m", Percent: -30, Severity: "high", From: "VPA deployment-web",
	}}, diffOf(all.sizes, nil).Changes)
	for from, want := range map[resources.Amount]string{1040: "none", 1100: "low", 1250: "medium", 500: "high"} {
		require.Equal(t, want, severityOf(resources.CPU, from, 1000))
	}
}

func TestRecommend_CommandLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "help", args: []string{"recommend", "--help"}, code: 0, want: "Usage: kubectl loadline recommend [flags] [[KIND/]NAME...]"},
		{name: "unknown recipe", args: []string{"recommend", "--recipe=soup", "--history-length=1s"}, code: 2,
			want: `--recipe=soup: recipe "soup" does not exist`},
		{name: "history too short", args: []string{"recommend", "--history-length=1s"}, code: 2,
			want: "--history-length=1s: must be a duration such as 8d"},
		{name: "invalid output", args: []string{"diff", "-o", "x"}, code: 2, want: "--output=x"},
		{name: "missing kubeconfig", args: []string{"diff", "--kubeconfig=/nowhere/at/all"}, code: 1, want: "kubectl loadline diff: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), Commands(), tc.args, &out, &errOut))
			require.Contains(t, out.String()+errOut.String(), tc.want)
		})
	}
}
