package explain

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/target"
)

// saved returns a VPA with a recipe annotation and a checkpoint of five hours. Without the sketch,
// it is like one of the upstream VPA.
func saved(t *testing.T, annotation string, withSketch bool) (client *fake.Clientset, p usage.Profile, known *sketch.Sketch, book *recipe.Cache) {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	p, known = usage.NewProfile(usage.DefaultConfig().Shape), sketch.New(book.ForAnnotation(annotation).Needs)
	known.SetLimitRatio(sketch.LimitRatioOf(256<<20, 256<<20))
	for i := range 300 {
		at := plugintest.Now().Add(time.Duration(i-300) * time.Minute)
		p.AddCPU(0.3, at)
		known.Observe(at, resources.CPU, 300, 0)
		known.Observe(at, resources.Memory, 300<<20, 0)
	}
	content := checkpoint.Content{Image: p.Image(), Windows: map[string]usage.Window{"web-1": {End: plugintest.Now().Add(time.Hour), Usage: 300 << 20, OOM: -1}}}
	if withSketch {
		content.Sketch = known.Image()
	}
	r, err := checkpoint.NewRecord(checkpoint.Owner{Namespace: "ns", VPA: "web"}, "a", content, plugintest.Now())
	require.NoError(t, err)
	v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Annotations: map[string]string{recipe.Annotation: annotation}}}
	v.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "a", Target: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m")}}}}
	p.AddPeak(300<<20, plugintest.Now().Add(time.Hour))
	return fake.NewSimpleClientset([]runtime.Object{v, r.Object()}...), p, known, book
}

func explainVPA(ctx context.Context, client versioned.Interface, q inventory.Request) (*vpaReport, error) {
	return explainFrom(ctx, client, q, func(ctx context.Context, a *vpaReport) (map[string]checkpoint.ContainerHistory, error) {
		return historyFromCheckpoints(ctx, client, q, a)
	})
}

func TestExplainVPA_StepsMatchRecommender(t *testing.T) {
	for _, text := range []string{"", "loadline:memory=safe", "loadline:memory=following", "autopilot:models=ensemble", "crane", "cruisekube", "loadline:cpu=shared"} {
		client, p, known, book := saved(t, text, true)
		a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
		require.NoError(t, err)
		require.Empty(t, a.Problems)
		require.Len(t, a.Explained.Containers, 1)
		r := book.ForAnnotation(text)
		want := r.Recommend(recipe.Input{Profile: &p, Sketch: known, Containers: 1, Current: resources.List{}.With(resources.CPU, 400)}).Bounds
		for k := range resources.Kind(resources.Kinds) {
			steps := a.Explained.Containers[0].Resource(k)
			require.Equal(t, want.Target.Value(k), resources.FromFloat(steps.Target[len(steps.Target)-1].Amount), "%s %s", text, k)
			require.Equal(t, want.Lower.Value(k), resources.FromFloat(steps.LowerBound[len(steps.LowerBound)-1].Amount), "%s %s", text, k)
			require.Equal(t, want.Upper.Value(k), resources.FromFloat(steps.UpperBound[len(steps.UpperBound)-1].Amount), "%s %s", text, k)
		}
	}
}

// The checkpoint stores the limit ratio of the pods.
func TestExplainVPA_LimitMargin(t *testing.T) {
	client, _, _, book := saved(t, "loadline", true)
	a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	require.Contains(t, out.String(), "margin 0.2 (limit 1 x request) + 0.15 x volatility + (0.15 + 2 x restlessness) halved every 6h")
	require.Contains(t, out.String(), "or highest of the last day + 0.2")
}

func TestExplainVPA_SeparateLimit(t *testing.T) {
	client, _, known, book := saved(t, "loadline:memory=following", true)
	a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	require.Contains(t, out.String(), "the same for the request, as limit and request are equal")

	known.SetLimitRatio(150)
	for h := range 48 {
		known.Observe(plugintest.Now().Add(time.Duration(h)*time.Hour), resources.Memory, 100<<20, 0)
	}
	a.Explained.Containers[0], _ = explanation.Explain("a", a.Computed.Recipe, recipe.Input{Sketch: known, Containers: 1})
	a.Explained.Containers[0].Published = &vpav1.RecommendedContainerResources{
		Target: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("110Mi")}, UpperBound: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("400Mi")}}
	out.Reset()
	require.NoError(t, a.Print(&out))
	steps := a.Explained.Containers[0].Memory.UpperBound
	require.NotEqual(t, "target", steps[0].Step)
	for _, part := range []string{
		"highest of the last day + 0.1, if that is less", "memory limit protects  second-highest daily peak",
		"memory limit           1.5 x that, as declared", "request 110 MiB, lower bound -; limit protects 400 MiB",
		cli.FormatAmount(resources.Memory, 1.5*steps[len(steps)-1].Amount),
	} {
		require.Contains(t, out.String(), part)
	}
	require.NotContains(t, out.String(), "memory upper bound")
}

func TestExplainVPA_MissingPoints(t *testing.T) {
	for withSketch, said := range map[bool]bool{true: false, false: true} {
		client, _, _, book := saved(t, "attune", withSketch)
		a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, a.Print(&out))
		require.Equal(t, said, strings.Contains(out.String(), "! there are 0 of 48 points of cpu and 0 of 48 points of memory of five minutes"), out.String())
	}
}

func TestExplainVPA_Table(t *testing.T) {
	client, _, _, book := saved(t, "loadline:memory=safe", true)
	a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	for _, part := range []string{
		"VPA ns/web, recipe loadline (annotation loadline.dev/recipe: loadline:memory=safe)\n",
		"container a, as saved with samples up to 2026-03-02T07:59:00Z\n",
		"cpu target", "0.75 of the load, half-life 48h", "x 1.05", "cpu upper bound", "x 1.5",
		"memory target", "second-highest daily peak of 14 days, or the running one", "300 MiB", "floor",
		"cpu published", "400m, bounds - to -",
	} {
		require.Contains(t, out.String(), part)
	}
}

func TestExplainVPA_MissingData(t *testing.T) {
	client, _, _, book := saved(t, "loadline", false)
	a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	require.Contains(t, out.String(), "! the recipe needs data besides the histograms that is not known yet")

	client, _, _, book = saved(t, "soup", false)
	a, err = explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	out.Reset()
	require.NoError(t, a.Print(&out))
	require.Contains(t, out.String(), "VPA ns/web, recipe vpa\n! annotation loadline.dev/recipe: recipe \"soup\" does not exist")

	_, err = explainVPA(t.Context(), fake.NewSimpleClientset(), inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.ErrorContains(t, err, "not found")
	_, err = explainVPA(t.Context(), fake.NewSimpleClientset(a.VPA), inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.ErrorContains(t, err, "the VPA has no checkpoint: a recommender with --storage=prometheus writes none, so give --prometheus-address")
}

func TestExplainVPA_HeldTarget(t *testing.T) {
	client, _, _, book := saved(t, "loadline", true)
	a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	for s, said := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false} {
		a.VPA.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: "TargetHeld", Status: s, Message: "not lowered, because"}}
		var out bytes.Buffer
		require.NoError(t, a.Print(&out))
		require.Equal(t, said, strings.Contains(out.String(), "! TargetHeld: not lowered, because\n"), s)
	}
}

func TestExplainVPA_OutdatedStatus(t *testing.T) {
	client, _, _, book := saved(t, "loadline", true)
	a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
	require.NoError(t, err)
	for seen, said := range map[int64]bool{4: true, 5: false, 0: false} {
		a.VPA.Generation, a.VPA.Status.ObservedGeneration = 5, seen
		var out bytes.Buffer
		require.NoError(t, a.Print(&out))
		require.Equal(t, said, strings.Contains(out.String(), "! the published recommendation is for generation 4 of the VPA, and the current generation is 5"), seen)
	}
}

func TestExplainVPA_MemoryGrowth(t *testing.T) {
	for daily, said := range map[float64]bool{10: true, 0: false} {
		for _, tc := range []struct {
			name   string
			recipe string
			keeps  bool
		}{
			{name: "loadline", recipe: "loadline", keeps: true},
			{name: "autopilot", recipe: "autopilot", keeps: true},
			{name: "default recipe"},
			{name: "crane", recipe: "crane"},
		} {
			t.Run(fmt.Sprintf("%s at %g MiB a day", tc.name, daily), func(t *testing.T) {
				_, p, _, book := saved(t, tc.recipe, true)
				known := sketch.New(book.ForAnnotation(tc.recipe).Needs)
				for h := range 8 * 24 {
					at, mib := plugintest.Now().Add(time.Duration(h-8*24)*time.Hour), 100+daily*float64(h)/24
					known.Observe(at, resources.Memory, resources.Amount(mib*(1<<20)), 0)
				}
				a := &vpaReport{VPA: &vpav1.VerticalPodAutoscaler{}, Computed: book.ForAnnotation(tc.recipe)}
				a.explain(map[string]checkpoint.ContainerHistory{"a": {Profile: &p, Sketch: known.Image()}}, plugintest.Now())
				var out bytes.Buffer
				require.NoError(t, a.Print(&out))
				note := strings.Contains(out.String(), "! memory grew by 10 MiB a day over 6 days, to 17")
				require.Equal(t, said && tc.keeps, note)
			})
		}
	}
}

func TestExplainVPA_LowLimit(t *testing.T) {
	for share, said := range map[float64]bool{0.2: true, 0: false} {
		_, p, _, book := saved(t, "loadline", true)
		known := sketch.New(book.ForAnnotation("loadline").Needs)
		for m := range 60 {
			known.ObserveUse("", plugintest.Now().Add(time.Duration(m-60)*time.Minute), resources.CPU, sketch.Usage{Amount: 100, Limit: 300, Throttled: share})
		}
		a := &vpaReport{VPA: &vpav1.VerticalPodAutoscaler{}, Computed: book.ForAnnotation("loadline")}
		a.explain(map[string]checkpoint.ContainerHistory{"a": {Profile: &p, Sketch: known.Image()}}, plugintest.Now())
		var out bytes.Buffer
		require.NoError(t, a.Print(&out))
		require.Equal(t, said, strings.Contains(out.String(), "! its CPU limit was too low for its bursts: under a limit, usage counts as at least 600m"), out.String())
	}
}

func TestExplainVPA_RequestsFromStatus(t *testing.T) {
	const note = "! the recipe starts from the requests of the running pods"
	for _, tc := range []struct {
		name   string
		recipe string
		want   bool
	}{
		{name: "attune", recipe: "attune", want: true},
		{name: "loadline", recipe: "loadline"},
		{name: "default recipe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, _, _, book := saved(t, tc.recipe, true)
			a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
			require.NoError(t, err)
			var out bytes.Buffer
			require.NoError(t, a.Print(&out))
			require.Equal(t, tc.want, strings.Contains(out.String(), note))
		})
	}
}

func TestExplainVPA_JSON(t *testing.T) {
	client, _, _, book := saved(t, "loadline", true)
	q := inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()}
	a, err := explainVPA(t.Context(), client, q)
	require.NoError(t, err)
	steps := a.steps()
	last := map[string]float64{}
	for _, s := range steps.Steps {
		last[s.Container+" "+string(s.Resource)+" "+s.Bound] = s.Amount
	}
	of := a.Explained.Containers[0].CPU.Target
	require.InDelta(t, of[len(of)-1].Amount, last["a cpu target"], 1e-9)
	require.Len(t, last, 6, "three bounds of two kinds")
	require.Len(t, steps.Tables()[0].Rows, len(steps.Steps))
	require.Contains(t, plugintest.Printed(t, steps, "json"), `"recipe": "loadline"`)
	require.Contains(t, plugintest.Printed(t, steps, "csv"), "a,cpu,target,")
}

func TestExplain_CommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "help", args: []string{"--help"}, code: 0, want: "Usage: kubectl loadline explain [flags] VPA|pod/NAME"},
		{name: "no argument", code: 2, want: "must have the name of one VPA or pod/NAME as argument"},
		{name: "two arguments", args: []string{"a", "b"}, code: 2, want: "must have the name of one VPA or pod/NAME as argument"},
		{name: "unknown recipe", args: []string{"--recipe=soup", "web"}, code: 2, want: `--recipe=soup: recipe "soup" does not exist`},
		{name: "invalid percentile", args: []string{"--target-cpu-percentile=7", "web"}, code: 2,
			want: "--target-cpu-percentile=7: must be from 0 to 1"},
		{name: "unsupported output for a pod", args: []string{"-o", "json", "pod/web-1"}, code: 2,
			want: "--output=json: must be table for a pod: why pod/web-1 has all forms"},
		{name: "checkpoint and Prometheus", args: []string{"--from-checkpoint", "--prometheus-address=http://prometheus", "web"}, code: 2,
			want: "--from-checkpoint=true: excludes --prometheus-address"},
		{name: "unsupported output for a VPA", args: []string{"-o", "html", "web"}, code: 2, want: "--output=html: must be table, wide"},
		{name: "invalid kubeconfig for a VPA", args: []string{"--kubeconfig=" + file, "-n", "ns", "web"}, code: 1, want: "VPA ns/web: "},
		{name: "invalid kubeconfig for a pod", args: []string{"--kubeconfig=" + file, "-n", "ns", "pod/web-1"}, code: 1,
			want: "pod ns/web-1: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), Commands(), append([]string{"explain"}, tc.args...), &out, &errOut))
			require.Contains(t, out.String()+errOut.String(), tc.want)
		})
	}
}

func TestExplainVPA_IgnoresFormerTarget(t *testing.T) {
	client, _, _, book := saved(t, "", false)
	checkpoints, vpas := client.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns"), client.AutoscalingV1().VerticalPodAutoscalers("ns")
	c, err := checkpoints.Get(t.Context(), "web-a", metav1.GetOptions{})
	require.NoError(t, err)
	own := target.Key{Namespace: "ns", Kind: "Deployment", Name: "web"}
	r, err := checkpoint.NewRecord(checkpoint.Owner{Namespace: "ns", VPA: "web"}, "a", checkpoint.Content{Target: own}, c.Status.LastUpdateTime.Time)
	require.NoError(t, err)
	c.Annotations = r.Object().Annotations
	_, err = checkpoints.Update(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	v, err := vpas.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	for name, explained := range map[string]bool{"web": true, "small": false} {
		v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
		v, err = vpas.Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		a, err := explainVPA(t.Context(), client, inventory.Request{Namespace: "ns", Name: "web", Book: book, Now: plugintest.Now()})
		if explained {
			require.NoError(t, err)
			require.Len(t, a.Explained.Containers, 1)
			continue
		}
		require.ErrorContains(t, err, "container a: its checkpoint is that of a former target, Deployment web, and is not used")
	}
}
