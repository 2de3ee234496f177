package recommender

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/pkg/testkit"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/recommend"
)

// touchMetrics creates one series of every vector, because empty vectors are not gathered.
func touchMetrics(m *metrics) {
	countVPAs(m.objects, nil)
	for _, v := range []*prometheus.CounterVec{m.resources, m.samples, m.historySamples, m.ooms, m.statuses, m.checkpoints, m.panics} {
		v.WithLabelValues("x").Inc()
	}
	for _, v := range []*prometheus.CounterVec{m.responses, m.prometheusRequests} {
		v.WithLabelValues("x", "x").Inc()
	}
	m.depth.WithLabelValues("x").Set(1)
	m.limited.WithLabelValues("x").Set(1)
	m.recipes.WithLabelValues("x", "x").Set(1)
	m.execution.WithLabelValues("x").Observe(1)
	m.prometheusDuration.WithLabelValues("x", "x").Observe(1)
	cluster := model.NewModel(model.Config{Store: usage.NewStore(usage.DefaultConfig())})
	cluster.PutPod(aPod("p", "web", "a"), start())
	cluster.SyncVPAs([]model.Observed{{Object: aVPA("v", "web", 0), Selector: labels.Everything()}}, start())
	linked := cluster.Find("ns", "v")
	linked.Published.Uncapped = map[string]resources.List{"a": resources.NewList(5, 5)}
	m.quality.RecordChange(linked, "a", resources.NewList(9, 9))
	m.policies.VPAs.WithLabelValues("created")
	m.policies.Workloads.WithLabelValues("", "", "")
	for _, v := range []*prometheus.GaugeVec{m.policies.Degraded, m.policies.Cores, m.policies.Bytes} {
		v.WithLabelValues("")
	}
	// Containers with a recommendation above and below usage, and one without.
	v := &model.VPA{Object: &vpav1.VerticalPodAutoscaler{}, Published: model.Published{Uncapped: map[string]resources.List{"a": resources.NewList(5, 5)}}}
	for k := range resources.Kind(resources.Kinds) {
		for _, used := range []resources.Amount{1, 9} {
			m.quality.Observe(v, usage.ContainerKey{Container: "a"}, k, used, false)
		}
		m.quality.Observe(v, usage.ContainerKey{Container: "b"}, k, 1, false)
	}
}

func touchWorkloads(w *recommend.WorkloadQuality) {
	store := usage.NewStore(usage.DefaultConfig())
	cluster := model.NewModel(model.Config{Store: store})
	book, err := recipe.NewCache("attune", recipe.DefaultConfig())
	if err != nil {
		panic(err)
	}
	for _, cpu := range []string{"1", "2"} {
		object := aVPA("v", "web", 0)
		object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
			{ContainerName: "a", Target: corev1.ResourceList{"memory": resource.MustParse("1"), "cpu": resource.MustParse(cpu)}}}}
		cluster.SyncVPAs([]model.Observed{{Object: object}}, start())
		served := cluster.Find("ns", "v")
		served.Recipe = book.ForAnnotation("")
		served.Sketches = map[string]*sketch.Sketch{"a": sketch.New(served.Recipe.Needs)}
		w.Follow(cluster, store, start())
	}
	w.Observe(cluster.Find("ns", "v"), "a", resources.CPU, 1)
}

func TestMetrics_MatchGolden(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	touchMetrics(m)
	m.sizes.Add("pods", cache.NewStore(cache.MetaNamespaceKeyFunc))
	synctest.Test(t, func(t *testing.T) { // until the cache is measured
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		m.sizes.Run(ctx)
	})
	touchWorkloads(recommend.NewWorkloadQuality(registry))
	serving.NewClosedConnections(registry)
	lines, err := testkit.DescribeMetrics(registry)
	require.NoError(t, err)
	golden(t, "testdata/metrics.golden", strings.Join(lines, "\n")+"\n")
}
