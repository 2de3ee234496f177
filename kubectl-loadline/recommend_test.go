package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/testkit"
)

// proxyUse is what the pod of the DaemonSet without a VPA has used.
func proxyUse() []usage.Sample {
	key := usage.ContainerKey{Namespace: "kube-system", Pod: "proxy-a", Container: "a"}
	var all []usage.Sample
	for i := range 100 {
		at := before(5 * (100 - i))
		all = append(all, usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.Amount(100 + 5*i)},
			usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: resources.Amount(300+i) << 20})
	}
	return all
}

// emptyEstimator has no usage yet.
func emptyEstimator(book *recipe.Book) *estimator {
	return &estimator{Name: fromMetrics, book: book, samples: map[usage.ContainerKey][]usage.Sample{}}
}

// shopSizes are the sizes of the shop and of a DaemonSet without a VPA.
func shopSizes(t *testing.T, scope sizesScope, flag string) *sized {
	t.Helper()
	s := newShop()
	s.pods["web-1-a"].Spec.Containers[0].Resources.Requests = sizes("2", "200Mi")
	s.more = append(s.more, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "proxy"}})
	kube, own := s.clients()
	q := s.question(t, kube, "")
	q.Namespace = ""
	if scope.Selector == nil {
		scope.Selector = labels.Everything()
	}
	all, err := readWorkloads(t.Context(), own, q, scope)
	require.NoError(t, err)
	book, err := recipe.NewBook(flag, recipe.DefaultConfig())
	require.NoError(t, err)
	e := emptyEstimator(book)
	for _, sample := range proxyUse() {
		e.add(sample)
	}
	all.sizes = sizesOf(all.workloads, e)
	return all
}

// A metrics source that reports nonsense once must not decide an estimate.
func TestEstimate_IgnoresSamplesAboveTheCapacityOfTheNode(t *testing.T) {
	pod := testkit.Pod("web-1-a", testkit.Container("a", "cpu=100m memory=100Mi", ""))
	pod.Spec.NodeName = "n"
	for _, name := range []string{"vpa", "loadline", "attune"} {
		book, err := recipe.NewBook(name, recipe.DefaultConfig())
		require.NoError(t, err)
		estimate := func(extra ...usage.Sample) map[string]resources.Bounds {
			e := emptyEstimator(book)
			e.addNodes([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: testkit.List("cpu=4 memory=8Gi")}}})
			key := usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: "a"}
			for _, s := range append(proxyUse(), extra...) {
				s.Container = key
				e.add(s)
			}
			return e.recommend(&managed{pods: []*corev1.Pod{pod}})
		}
		at := explainNow()
		require.Equal(t, estimate(), estimate(usage.Sample{Kind: resources.CPU, At: at, Amount: 4401}, usage.Sample{Kind: resources.Memory, At: at, Amount: 1 << 40}), name)
		require.NotEmpty(t, estimate(), name)
	}
}

// An estimate is what the recommender would say that has seen the same.
func TestAnEstimateIsWhatTheRecommenderWouldSay(t *testing.T) {
	for _, text := range []string{"vpa", "loadline"} {
		r, err := recipe.ParseWith(recipe.DefaultConfig(), text)
		require.NoError(t, err)
		simulated := replay.NewSimulatedRecommender(usage.DefaultConfig(), &r, proxyUse()[0].At)
		for _, s := range proxyUse() {
			simulated.Observe(s.At, s.Kind, s.Amount, 0)
		}
		want := simulated.Advise(explainNow(), resources.List{})
		all := shopSizes(t, sizesScope{Names: []string{"daemonset/proxy"}}, text)
		require.Len(t, all.sizes, 1)
		require.Equal(t, want.Target, convert.Resources(all.sizes[0].Target), text)
		require.Equal(t, want.Lower, convert.Resources(all.sizes[0].Lower), text)
		require.False(t, want.Target.Empty())
	}
}

func TestRecommendIsAsTheDocsShow(t *testing.T) {
	all := shopSizes(t, sizesScope{}, "vpa")
	require.Empty(t, all.problems)
	inTheDocs(t, "recommend -A", printed(t, &recommendAnswer{all.sizes, all.problems}, "table"))
	inTheDocs(t, "diff -A", printed(t, diffOf(all.sizes, nil), "table"))
}

// The requests that a recommendation is compared with have no startup boost.
func TestSizes_IgnoreStartupBoosts(t *testing.T) {
	pod := testkit.Pod("web-1-a", testkit.Container("a", "cpu=3 memory=100Mi", ""))
	pod.Annotations = map[string]string{convert.BoostAnnotationPrefix + "a": `{"requests":{"cpu":"1","memory":"100Mi"},"limits":{}}`}
	list := sizesOf([]*managed{{pods: []*corev1.Pod{pod}}}, nil)
	require.Len(t, list, 1)
	require.Equal(t, "1", list[0].Requests.Cpu().String())
	_, _, current := emptyEstimatorWith(pod).histories([]*corev1.Pod{pod}, attuneChoice(t))
	require.EqualValues(t, 1000, current["a"].Value(resources.CPU))
}

func attuneChoice(t *testing.T) *recipe.Choice {
	t.Helper()
	book, err := recipe.NewBook("attune", recipe.DefaultConfig())
	require.NoError(t, err)
	return book.For("")
}

// emptyEstimatorWith has one sample of the container a of a pod.
func emptyEstimatorWith(pod *corev1.Pod) *estimator {
	e := emptyEstimator(nil)
	e.add(usage.Sample{Container: usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: "a"}, At: before(5), Amount: 100})
	return e
}

func TestSizesOfSomeWorkloads(t *testing.T) {
	for name, c := range map[string]struct {
		scope sizesScope
		want  []string
	}{
		"all":        {sizesScope{}, []string{"DaemonSet proxy", "Deployment front", "Deployment web"}},
		"by kind":    {sizesScope{Names: []string{"deployment/web"}}, []string{"Deployment web"}},
		"by name":    {sizesScope{Names: []string{"front", "none"}}, []string{"Deployment front"}},
		"by label":   {sizesScope{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, []string{"Deployment web"}},
		"without":    {sizesScope{Unsized: true}, []string{"DaemonSet proxy"}},
		"wrong kind": {sizesScope{Names: []string{"statefulset/web"}}, nil},
	} {
		var found []string
		for _, s := range shopSizes(t, c.scope, "vpa").sizes {
			found = append(found, s.Workload)
		}
		require.Equal(t, c.want, found, name)
	}
}

func TestWhatWouldChange(t *testing.T) {
	all := shopSizes(t, sizesScope{Names: []string{"deployment/web"}}, "vpa")
	require.Equal(t, []sizeChange{{"shop", "Deployment web", "a", "cpu", 3, "2000m", "1400m", -30, "high", "VPA deployment-web"}}, diffOf(all.sizes, nil).Changes)
	for from, want := range map[resources.Amount]string{1040: "none", 1100: "low", 1250: "medium", 500: "high"} {
		require.Equal(t, want, severityOf(resources.CPU, from, 1000))
	}
}

// The history of two clusters is neither summed nor mixed, and other containers have theirs.
func TestNewEstimator_RefusesSeriesOfTwoClusters(t *testing.T) {
	now := explainNow()
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		series := func(pod, cluster string) string {
			return fmt.Sprintf(`{"metric":{"namespace":"shop","pod":%q,"container":"a","cluster":%q},"values":[[%d,"0.25"],[%d,"0.25"]]}`, pod, cluster, now.Unix()-300, now.Unix())
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s,%s,%s]}}`, series("p", "east"), series("p", "west"), series("q", "east"))
	}))
	defer server.Close()
	f := estimateFlags{}
	fs := flags.New("")
	f.addFlags(fs)
	require.NoError(t, fs.Parse([]string{"--prometheus-address=" + server.URL}))
	parsed, err := f.parse()
	require.NoError(t, err)
	e, err := f.newEstimator(t.Context(), parsed, &rest.Config{Host: server.URL}, question{Kube: fake.NewClientset(), Namespace: "shop", Now: now})
	require.ErrorContains(t, err, `container a of pod shop/p has series with cluster="east" and cluster="west"`)
	require.Empty(t, e.samples[usage.ContainerKey{Namespace: "shop", Pod: "p", Container: "a"}])
	require.Len(t, e.samples[usage.ContainerKey{Namespace: "shop", Pod: "q", Container: "a"}], 4)
}

func TestWhereEstimatesComeFrom(t *testing.T) {
	now := explainNow()
	server := httptest.NewServer(testkit.StrictPrometheus(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods"):
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"p","namespace":"shop"},"timestamp":"2026-03-02T08:00:00Z","containers":[{"name":"a","usage":{"cpu":"250m","memory":"100Mi"}}]}]}`)
		case r.URL.Path == "/api/v1/query_range":
			require.NoError(t, r.ParseForm())
			require.Contains(t, r.Form.Get("query"), `namespace="shop"`)
			value := "0.25"
			if strings.Contains(r.Form.Get("query"), "memory") {
				value = "104857600"
			}
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"namespace":"shop","pod":"p","container":"a"},"values":[[%d,"%s"],[%d,"%s"]]}]}}`,
				now.Unix()-300, value, now.Unix(), value)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	key := usage.ContainerKey{Namespace: "shop", Pod: "p", Container: "a"}
	for address, want := range map[string]struct {
		name    string
		samples int
	}{"": {fromMetrics, 2}, server.URL: {"Prometheus", 4}} {
		f := estimateFlags{}
		fs := flags.New("")
		f.addFlags(fs)
		require.NoError(t, fs.Parse([]string{"--prometheus-address=" + address}))
		parsed, err := f.parse()
		require.NoError(t, err)
		e, err := f.newEstimator(t.Context(), parsed, &rest.Config{Host: server.URL}, question{Kube: fake.NewClientset(), Namespace: "shop", Now: now})
		require.NoError(t, err)
		require.Equal(t, want.name, e.Name)
		require.Len(t, e.samples[key], want.samples)
		require.Equal(t, resources.Amount(250), e.samples[key][0].Amount)
	}
	f := estimateFlags{}
	f.addFlags(flags.New(""))
	parsed, err := f.parse()
	require.NoError(t, err)
	_, err = f.newEstimator(t.Context(), parsed, &rest.Config{Host: server.URL}, question{Kube: fake.NewClientset(), Namespace: "other", Now: now})
	require.ErrorContains(t, err, "list pod metrics")
	require.Equal(t, 8*24*time.Hour, parsed.length)
}

func TestCommandLineOfRecommendAndDiff(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"recommend", "--help"}, 0, "Usage: kubectl loadline recommend [flags] [[KIND/]NAME...]"},
		{[]string{"recommend", "--recipe=soup", "--history-length=1s"}, 2, `--recipe=soup: recipe "soup" does not exist`},
		{[]string{"recommend", "--history-length=1s"}, 2, "--history-length=1s: must be a duration such as 8d"},
		{[]string{"diff", "-o", "x"}, 2, "--output=x"},
		{[]string{"diff", "--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline diff: "},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), c.args, &out, &errOut), c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
}
