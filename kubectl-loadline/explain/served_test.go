package explain

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
)

func webVPA() *vpav1.VerticalPodAutoscaler {
	v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "v"}}
	v.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "app", LowerBound: plugintest.Resources("349m", "322877000"), Target: plugintest.Resources("350m", "323529000"), UpperBound: plugintest.Resources("700m", "647265000")}}}
	v.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{
		{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(plugintest.Before(300))},
		{Type: "SufficientHistory", Status: corev1.ConditionFalse, Message: "a day of usage", LastTransitionTime: metav1.NewTime(plugintest.Before(300))}}
	return v
}

// webExplained returns the explanation by a recommender with a day of usage.
func webExplained(t *testing.T) *explanation.VPA {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	p := usage.NewProfile(usage.DefaultConfig().Shape)
	for i := range 1440 {
		p.AddCPU(0.3, plugintest.Now().Add(time.Duration(i-1440)*time.Minute))
	}
	p.AddPeak(250<<20, plugintest.Now())
	c, _ := explanation.Explain("app", book.ForAnnotation("").Recipe, recipe.Input{Profile: &p, Containers: 1})
	c.Published = explanation.Published(webVPA(), "app")
	return &explanation.VPA{Namespace: "shop", Name: "web", Recipe: explanation.NewRecipe(book.ForAnnotation("")), Containers: []explanation.Container{c}}
}

func answering(t *testing.T, answer any, failure error) *kubefake.Clientset {
	t.Helper()
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	kube := kubefake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-recommender-lease"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("vpa-recommender-7_0a"), RenewTime: new(metav1.NewMicroTime(plugintest.Now())), LeaseDurationSeconds: new(int32(15))}})
	kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		request, ok := a.(clienttesting.ProxyGetAction)
		require.True(t, ok)
		require.Equal(t, []string{"kube-system", "http", "vpa-recommender-7", "8942", "/explain/vpa"}, []string{a.GetNamespace(), request.GetScheme(), request.GetName(), request.GetPort(), request.GetPath()})
		require.Equal(t, map[string]string{"namespace": "shop", "name": "web"}, request.GetParams())
		return true, plugintest.Response{Text: string(text), Err: failure}, nil
	})
	return kube
}

func explained(t *testing.T, kube *kubefake.Clientset, v *vpav1.VerticalPodAutoscaler) string {
	t.Helper()
	a, err := explainServed(t.Context(), fake.NewSimpleClientset(v), servedRequest(t, kube))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	return out.String()
}

func servedRequest(t *testing.T, kube *kubefake.Clientset) inventory.Request {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	return inventory.Request{Namespace: "shop", Name: "web", Book: book, Now: plugintest.Now(), Kube: kube, Programs: "kube-system"}
}

// noProxy is the error of the API server for users without permission for pods/proxy.
func noProxy() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods/proxy"}, "vpa-recommender-7", nil)
}

func TestExplainVPA_OutputMatchesDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl.md")
	require.NoError(t, err)
	for _, tc := range []struct{ name, text string }{
		{name: "answer", text: explained(t, answering(t, webExplained(t), nil), webVPA())},
		{name: "refused", text: explained(t, answering(t, nil, noProxy()), webVPA())},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Contains(t, string(page), "$ kubectl loadline explain -n shop web\n"+tc.text+"```\n", tc.text)
		})
	}
}

func TestExplainVPA_ReportsTargetHeld(t *testing.T) {
	answer := webExplained(t)
	answer.Held = "not lowered: memory of container app"
	require.Contains(t, explained(t, answering(t, answer, nil), webVPA()), "! TargetHeld: not lowered: memory of container app\n")
}

func TestExplainVPA_ReportsMissingSteps(t *testing.T) {
	refused := func(code int, text string) error {
		return apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{Resource: "pods"}, "http:vpa-recommender-7:8942", text, 0, true)
	}
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{name: "no permission", err: noProxy(), want: "no permission to get pods/proxy, which the Role of deploy/explain-reader grants"},
		{name: "not the leader", err: refused(http.StatusServiceUnavailable, "this replica does not lead\n"), want: "this replica does not lead"},
		{name: "another recommender", err: refused(http.StatusNotFound, "shop/web: not served by this program\n"), want: "shop/web: not served by this program"},
		{name: "without explanations", err: refused(http.StatusNotFound, "404 page not found\n"), want: "it serves no explanations: it has --explain=false, or another version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := explained(t, answering(t, nil, tc.err), webVPA())
			require.Regexp(t, "^! query the recommender in namespace kube-system: "+tc.want+": without the steps of the recommendation; --from-checkpoint computes them\nVPA shop/web\n", text)
		})
	}
}

func TestExplainVPA_NamesMissingPodPermission(t *testing.T) {
	kube := kubefake.NewClientset()
	plugintest.Forbid(&kube.Fake, "pods")
	_, err := programs.ExplainVPA(t.Context(), kube, "kube-system", "shop", "web", plugintest.Now())
	require.EqualError(t, err, "query the recommender in namespace kube-system: no permission to list pods, which the Role of deploy/explain-reader grants")
	_, err = programs.ExplainVPA(t.Context(), kubefake.NewClientset(&appsv1.Deployment{}), "kube-system", "shop", "web", plugintest.Now())
	require.EqualError(t, err, "query the recommender in namespace kube-system: no pod found")
}

func TestExplainVPA_WithoutStepsShowsWhatIsReadable(t *testing.T) {
	v := webVPA()
	v.Annotations = map[string]string{recipe.Annotation: "loadline"}
	kube := answering(t, nil, noProxy())
	require.NoError(t, kube.Tracker().Add(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, InvolvedObject: corev1.ObjectReference{UID: "v"},
		Source: corev1.EventSource{Component: programs.UpdaterComponent}, Reason: "PodsLeftAlone", Message: "NodeFull", LastTimestamp: metav1.NewTime(plugintest.Before(5))}))
	text := explained(t, kube, v)
	for _, part := range []string{
		"VPA shop/web, recipe loadline (annotation loadline.dev/recipe: loadline)\n",
		"condition SufficientHistory: False since 2026-03-02T03:00:00Z: a day of usage\n",
		"event 2026-03-02T07:55:00Z PodsLeftAlone: NodeFull\n",
		"container app\n", "350m, bounds 349m to 700m",
	} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "cpu target")
}

func TestExplainVPA_ServedJSON(t *testing.T) {
	own := fake.NewSimpleClientset(webVPA())
	a, err := explainServed(t.Context(), own, servedRequest(t, answering(t, webExplained(t), nil)))
	require.NoError(t, err)
	steps := a.steps()
	require.Equal(t, "vpa", steps.Recipe)
	require.Empty(t, steps.Problems)
	require.Equal(t, plugintest.Now().Add(-time.Minute), steps.Saved["app"])
	require.Equal(t, a.Explained.Containers[0].CPU.Target[0].Amount, steps.Steps[0].Amount)
	require.Equal(t, resources.CPU, steps.Steps[0].kind)

	a, err = explainServed(t.Context(), own, servedRequest(t, answering(t, nil, noProxy())))
	require.NoError(t, err)
	steps = a.steps()
	require.Empty(t, steps.Steps)
	require.Empty(t, steps.Recipe)
	require.Contains(t, steps.Problems[0], "no permission to get pods/proxy")
}

func TestExplainVPA_QuotesRecommenderExplanation(t *testing.T) {
	answer := webExplained(t)
	answer.Held, answer.Recipe.Name, answer.Containers[0].Name, answer.Containers[0].CPU.Target[0].Step = plugintest.Hostile, plugintest.Hostile, plugintest.Hostile, plugintest.Hostile
	plugintest.RequirePrintable(t, explained(t, answering(t, answer, nil), webVPA()))
}

// The recommender has its own recipe, so a recipe flag of the plugin has no effect.
func TestExplainVPA_NamesIgnoredFlags(t *testing.T) {
	c := explainConfig{output: &cli.OutputFlag{Format: "table"}, programs: "kube-system", ignored: []string{"--recipe"}}
	q := servedRequest(t, answering(t, webExplained(t), nil))
	var out, errOut bytes.Buffer
	require.NoError(t, c.printVPA(t.Context(), &cli.Cluster{Clients: &client.Clients{VPA: fake.NewSimpleClientset(webVPA()), Kube: q.Kube}, Namespace: "shop"}, inventory.ParsedEstimate{Book: q.Book}, q, &out, &errOut))
	require.Contains(t, out.String(), "! --recipe: ignored without --from-checkpoint or --prometheus-address")
}
