package recommend

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

func now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

// advisorFixture has one VPA and one pod with containers a, b and c.
type advisorFixture struct {
	*Advisor
	vpa   *model.VPA
	model *model.Model
	pod   *corev1.Pod
}

var everything = labels.Everything()

func newAdvisorFixture(t *testing.T, policies ...vpav1.ContainerResourcePolicy) advisorFixture {
	config := usage.DefaultConfig()
	store := usage.NewStore(config)
	chains := recipe.VPA(recipe.DefaultConfig())
	cluster := model.NewModel(model.Config{Store: store})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
	}
	cluster.PutPod(pod, now())
	cluster.SyncVPAs([]model.Observed{{Selector: everything, Object: &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:      &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "d"},
			ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: policies},
		}}}}, now())
	return advisorFixture{&Advisor{Store: store, Shape: config.Shape, Recipe: chains}, cluster.Find("ns", "v"), cluster, pod}
}

func (d advisorFixture) addSamples(t *testing.T, container string, cpu, memory resources.Amount) {
	for k, a := range []resources.Amount{cpu, memory} {
		require.Equal(t, usage.Accepted, d.Store.Observe(usage.Sample{
			Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: container}, Kind: resources.Kind(k), At: now(), Amount: a}))
	}
}

func (d advisorFixture) recommend() []status.Recommended { return d.advise().Recommendation }

func (d advisorFixture) advise() status.Outcome {
	scratch := usage.NewProfile(d.Shape)
	return d.Advise(d.vpa, d.Estimates(d.vpa, &scratch, nil))
}

func TestAdvise_MatchesReferenceForOneSample(t *testing.T) {
	off := vpav1.ContainerScalingModeOff
	d := newAdvisorFixture(t, vpav1.ContainerResourcePolicy{ContainerName: "b", Mode: &off}, vpav1.ContainerResourcePolicy{ContainerName: "c", Mode: &off})
	d.addSamples(t, "a", 1500, 2e9)
	d.addSamples(t, "b", 1500, 2e9)
	got := d.recommend()
	require.Len(t, got, 1, "mode Off removes a container, also from the division of the floor")
	text := func(l corev1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	require.Equal(t, "1737m 2407501950", text(got[0].Target))
	require.Equal(t, "25m 250Mi", text(got[0].LowerBound))
	require.Equal(t, "100G 97656250000Ki", text(got[0].UpperBound))
	require.Equal(t, "1737m 2407501950", text(got[0].UncappedTarget))
}

func TestAdvise_ContainersWithoutSamplesShareFloor(t *testing.T) {
	d := newAdvisorFixture(t)
	d.addSamples(t, "a", 1, 1)
	got := d.recommend()
	require.Len(t, got, 1)
	require.Equal(t, "8m", got[0].LowerBound.Cpu().String())
	require.EqualValues(t, 87381333, got[0].LowerBound.Memory().Value())
}

func TestAdvise_OnlyControlledResources(t *testing.T) {
	cpu, none := []corev1.ResourceName{corev1.ResourceCPU}, []corev1.ResourceName{}
	d := newAdvisorFixture(t, vpav1.ContainerResourcePolicy{ContainerName: "a", ControlledResources: &cpu}, vpav1.ContainerResourcePolicy{ContainerName: "b", ControlledResources: &none})
	d.addSamples(t, "a", 100, 1e9)
	d.addSamples(t, "b", 100, 1e9)
	got := d.recommend()
	require.Len(t, got, 2)
	require.Len(t, got[0].Target, 1)
	require.Len(t, got[0].UpperBound, 1)
	require.Empty(t, got[1].Target)
}

func TestAdvise_CapsAllButUncappedTarget(t *testing.T) {
	d := newAdvisorFixture(t, vpav1.ContainerResourcePolicy{ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.5")}})
	d.Limits.MaxAllowed = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	d.addSamples(t, "a", 1500, 2e9)
	got := d.recommend()[0]
	require.Equal(t, "500m", got.Target.Cpu().String())
	require.Equal(t, "1Gi", got.Target.Memory().String())
	require.Equal(t, "500m", got.UpperBound.Cpu().String())
	require.Equal(t, "1737m", got.UncappedTarget.Cpu().String())
}

func TestAdvise_UsesHistoryOfRemovedContainers(t *testing.T) {
	d := newAdvisorFixture(t)
	old := usage.NewProfile(d.Shape)
	old.AddCPU(2, now().Add(-time.Hour))
	old.AddPeak(1e9, now().Add(-time.Hour))
	d.vpa.Restored = map[string]*usage.Profile{"gone": &old}
	d.vpa.Invalidate()
	got := d.recommend()
	require.Len(t, got, 1)
	require.Equal(t, "gone", got[0].ContainerName)
	images := d.Contents(d.vpa, now())
	require.Len(t, images, 1)
	require.EqualValues(t, 1, images["gone"].Image.Samples)
}

func TestContents_ExcludesPeakOfOpenWindow(t *testing.T) {
	d := newAdvisorFixture(t)
	d.addSamples(t, "a", 100, 1e9)
	image := d.Contents(d.vpa, now())["a"].Image
	require.EqualValues(t, 1, image.Samples)
	require.Empty(t, image.Memory.Weights)
	image = d.Contents(d.vpa, now().Add(25*time.Hour))["a"].Image
	require.Len(t, image.Memory.Weights, 1, "once the window has ended its peak is history")
}

func TestAdvise_NoFloorWithoutData(t *testing.T) {
	d := newAdvisorFixture(t)
	a := usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}
	require.Equal(t, usage.Accepted, d.Store.ObserveOOM(usage.OOM{Container: a, At: now(), Memory: 1 << 30}))
	require.Equal(t, usage.Accepted, d.Store.Observe(usage.Sample{
		Container: usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "b"}, Kind: resources.CPU, At: now(), Amount: 100}))
	got := d.recommend()
	require.Len(t, got, 2)
	for _, list := range []corev1.ResourceList{got[0].Target, got[0].LowerBound, got[0].UpperBound, got[0].UncappedTarget} {
		require.Contains(t, list, corev1.ResourceMemory, "a was killed")
		require.NotContains(t, list, corev1.ResourceCPU, "before its first CPU sample")
	}
	require.Contains(t, got[1].Target, corev1.ResourceCPU)
	require.NotContains(t, got[1].Target, corev1.ResourceMemory)
}

func TestAdvise_DropsRecommendationOfFormerTarget(t *testing.T) {
	d := newAdvisorFixture(t)
	d.vpa.Object.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}}
	d.vpa.Object.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []status.Recommended{{
		ContainerName: "a", Target: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}
	require.Len(t, d.recommend(), 1)
	d.vpa.Retargeted = true
	require.Empty(t, d.recommend())
}

func TestAdvise_SkipsContainerWithoutControlledData(t *testing.T) {
	cpu := []corev1.ResourceName{corev1.ResourceCPU}
	d := newAdvisorFixture(t, vpav1.ContainerResourcePolicy{ContainerName: "a", ControlledResources: &cpu})
	a := usage.ContainerKey{Namespace: "ns", Pod: "p", Container: "a"}
	require.Equal(t, usage.Accepted, d.Store.ObserveOOM(usage.OOM{Container: a, At: now(), Memory: 1 << 30}))
	require.Empty(t, d.recommend())
}

func TestAdvise_EmptyTargetIfNothingControlled(t *testing.T) {
	none := []corev1.ResourceName{}
	d := newAdvisorFixture(t, vpav1.ContainerResourcePolicy{ContainerName: "a", ControlledResources: &none})
	d.addSamples(t, "a", 100, 1e9)
	raw, err := json.Marshal(d.recommend())
	require.NoError(t, err)
	require.JSONEq(t, `[{"containerName":"a","target":{}}]`, string(raw), "the API server refuses a null")
}

// With history from Prometheus the time of the last change is unknown. The published target counts
// as changed at start, so a restart does not shorten the cooldown.
func TestAdvise_HoldsTargetOfUnknownAgeForAnHour(t *testing.T) {
	d := newAdvisorFixture(t)
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	d.vpa.Recipe = book.ForAnnotation("attune:memory-decrease=yes")
	d.Pods = podWith("3", "3Gi")
	known := sketch.New(d.vpa.Recipe.Needs)
	d.vpa.Sketches = map[string]*sketch.Sketch{"a": known}
	d.addSamples(t, "a", 100, 100<<20)
	observe := func(from, to int) {
		for m := from; m < to; m += 5 {
			for k, use := range []resources.Amount{100, 100 << 20} {
				known.Observe(now().Add(time.Duration(m)*time.Minute), resources.Kind(k), use, 0)
			}
		}
	}
	observe(-8*24*60, 0)
	d.setPublished("a", "3", "3Gi")
	target := func() string { return d.recommend()[0].Target.Cpu().String() }
	require.Equal(t, "3", target())
	observe(0, 55)
	require.Equal(t, "3", target())
	observe(55, 70)
	require.Equal(t, "1500m", target())
}
