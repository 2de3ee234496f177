package client

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/testkit"
)

func requirements(n int) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for i := range n - 1 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprintf("key-%d", i), Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return s
}

func values(n int) *metav1.LabelSelector {
	r := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}
	for i := range n {
		r.Values = append(r.Values, fmt.Sprintf("web-%d", i))
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
}

func TestSelector_RefusesTooLarge(t *testing.T) {
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		refused  bool
	}{
		{name: "none"},
		{name: "one", selector: requirements(1)},
		{name: "100 requirements", selector: requirements(100)},
		{name: "101 requirements", selector: requirements(101), refused: true},
		{name: "200 values", selector: values(200)},
		{name: "1,000 values", selector: values(1000), refused: true},
		{name: "a long value", selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": strings.Repeat("x", 9000)}}, refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, s := range []*metav1.LabelSelector{tc.selector, BoundSelector(tc.selector)} {
				selector, err := Selector(s)
				if tc.refused {
					require.ErrorIs(t, err, ErrSelectorTooLarge)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, tc.selector != nil, selector.Matches(labels.Set{"app": "web"}) || selector.Matches(labels.Set{"app": "web-1"}))
			}
		})
	}
	for _, tc := range []struct {
		name    string
		text    string
		refused bool
	}{
		{name: "small", text: "app=web"},
		{name: "too many values", text: "app in (" + strings.Repeat("x,", 5000) + "x)", refused: true},
		{name: "too many requirements", text: "a" + strings.Repeat(",a", 100), refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseSelector(BoundSelectorText(tc.text))
			require.Equal(t, tc.refused, err != nil, tc.text[:7])
		})
	}
	_, err := ParseSelector("app in (" + strings.Repeat("x", 2000))
	require.Less(t, len(err.Error()), 600, "the error ends up in a condition")
}

func many(prefix string, n int) map[string]string {
	words := make(map[string]string, n)
	for i := range n {
		words[fmt.Sprintf("%s%06d-%s", prefix, i, strings.Repeat("x", 20))] = strings.Repeat("y", 30)
	}
	return words
}

// hostileMeta fills all metadata that users with access to a namespace control.
func hostileMeta(name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: many("a/", 5000), Annotations: many("vpa", 1000), Finalizers: []string{strings.Repeat("x", 10_000)}}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 10_000))}}
	for _, key := range []string{fleet.ModeAnnotation, convert.OriginalAnnotation, convert.DeclaredAnnotation, convert.ObservedAnnotation, recipe.Annotation, "loadline.dev/x", appsv1.DeprecatedTemplateGeneration} {
		m.Annotations[key] = strings.Repeat("z", 40_000)
	}
	for range 5000 {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Kind: strings.Repeat("K", 50), Name: strings.Repeat("n", 50)})
	}
	m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Kind: "Deployment", Name: "web", Controller: &isController})
	return m
}

func hostileResources() corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
	for i := range 200 {
		list[corev1.ResourceName(fmt.Sprintf("example.com/%d", i))] = resource.MustParse("0")
	}
	return corev1.ResourceRequirements{Requests: list}
}

// hostileObjects returns an object of each kind, as large as a user with access to a namespace can
// make it.
func hostileObjects(name string) map[string]any {
	template := corev1.PodTemplateSpec{ObjectMeta: hostileMeta(name)}
	abroad := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
	var containers []corev1.Container
	for i := range 500 {
		containers = append(containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: hostileResources(), Env: []corev1.EnvVar{{Name: "a", Value: strings.Repeat("x", 1000)}}})
		abroad.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(abroad.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{Namespaces: []string{strings.Repeat("n", 200)}, LabelSelector: requirements(20)})
	}
	job := batchv1.JobSpec{Selector: requirements(5000), PodFailurePolicy: &batchv1.PodFailurePolicy{}}
	for range 20 {
		var rule batchv1.PodFailurePolicyRule
		for range 20 {
			rule.OnPodConditions = append(rule.OnPodConditions, batchv1.PodFailurePolicyOnPodConditionsPattern{Type: corev1.PodConditionType(strings.Repeat("x", 300))})
		}
		job.PodFailurePolicy.Rules = append(job.PodFailurePolicy.Rules, rule)
	}
	long := strings.Repeat("x", 100_000)
	hpa := autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: long, Name: long}}
	vpa := vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: long}, ResourcePolicy: &vpav1.PodResourcePolicy{}}
	status := vpav1.VerticalPodAutoscalerStatus{Recommendation: &vpav1.RecommendedPodResources{}}
	for i := range 5000 {
		hpa.Metrics = append(hpa.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Name: corev1.ResourceMemory, Container: fmt.Sprint("c", i), Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType}}})
		vpa.ResourcePolicy.ContainerPolicies = append(vpa.ResourcePolicy.ContainerPolicies, vpav1.ContainerResourcePolicy{ContainerName: fmt.Sprint("c", i)})
		status.Recommendation.ContainerRecommendations = append(status.Recommendation.ContainerRecommendations, vpav1.RecommendedContainerResources{
			ContainerName: fmt.Sprint("c", i), Target: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(i), resource.DecimalSI)}})
	}
	return map[string]any{
		"Deployment":            &appsv1.Deployment{ObjectMeta: hostileMeta(name), Spec: appsv1.DeploymentSpec{Selector: requirements(20_000), Template: template}},
		"StatefulSet":           &appsv1.StatefulSet{ObjectMeta: hostileMeta(name), Spec: appsv1.StatefulSetSpec{Selector: requirements(5000), Template: template}},
		"DaemonSet":             &appsv1.DaemonSet{ObjectMeta: hostileMeta(name), Spec: appsv1.DaemonSetSpec{Selector: requirements(5000), Template: template}},
		"ReplicaSet":            &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: long, Name: long, Controller: &isController}}}, Spec: appsv1.ReplicaSetSpec{Selector: requirements(5000)}},
		"ReplicationController": &corev1.ReplicationController{ObjectMeta: hostileMeta(name), Spec: corev1.ReplicationControllerSpec{Selector: many("a/", 5000)}},
		"Job":                   &batchv1.Job{ObjectMeta: hostileMeta(name), Spec: job},
		"CronJob": &batchv1.CronJob{ObjectMeta: hostileMeta(name), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: many("a/", 5000)}}}}}},
		"Pod": &corev1.Pod{ObjectMeta: hostileMeta(name), Spec: corev1.PodSpec{Containers: containers, InitContainers: containers, Affinity: abroad},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending, Message: long}}}},
		"Namespace":               &corev1.Namespace{ObjectMeta: hostileMeta(name)},
		"HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: hostileMeta(name), Spec: hpa},
		"VerticalPodAutoscaler":   &vpav1.VerticalPodAutoscaler{ObjectMeta: hostileMeta(name), Spec: vpa, Status: status},
		"LimitRange":              &corev1.LimitRange{ObjectMeta: hostileMeta(name)},
		"SizingPolicy":            &loadlinev1alpha1.SizingPolicy{ObjectMeta: hostileMeta(name)},
	}
}

// Tenants must not control how much memory their objects take.
func TestTrimmer_BoundsMemoryOfHostileObjects(t *testing.T) {
	for kind, object := range hostileObjects("x") {
		t.Run(kind, func(t *testing.T) {
			before := cachesize.EstimateSize(object)
			kept, err := new(Trimmer).Trim(object)
			require.NoError(t, err)
			limit := int64(100 << 10)
			switch kind {
			case "Pod": // 600 containers and 64 KiB of annotations
				limit = 900 << 10
			case "VerticalPodAutoscaler": // 300 recommendations
				limit = 400 << 10
			}
			t.Logf("%d KiB of %d", cachesize.EstimateSize(kept)>>10, before>>10)
			require.LessOrEqual(t, cachesize.EstimateSize(kept), limit)
		})
	}
}

// Regression test: 106 Deployments without pods filled the webhook to its memory limit.
func TestTrimmer_DropsLargeSelectors(t *testing.T) {
	var trimmer Trimmer
	before := testkit.LiveHeap()
	kept := make([]any, 106)
	for i := range kept {
		var err error
		kept[i], err = trimmer.Trim(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("d", i)}, Spec: appsv1.DeploymentSpec{Selector: requirements(5_000)}})
		require.NoError(t, err)
		_, err = Selector(kept[i].(*appsv1.Deployment).Spec.Selector)
		require.ErrorIs(t, err, ErrSelectorTooLarge)
	}
	require.Less(t, testkit.LiveHeap()-before, int64(1<<20))
	runtime.KeepAlive(kept)
}

func trimOne[T any](t *testing.T, object T) T {
	t.Helper()
	got, err := Trim(object)
	require.NoError(t, err)
	return got.(T)
}

func TestTrim_KeepsMeaningOfBoundedObjects(t *testing.T) {
	hostile := hostileObjects("x")

	pod := trimOne(t, hostile["Pod"].(*corev1.Pod))
	require.Len(t, pod.Spec.Containers, maxContainers)
	cpu := resource.Quantity{}
	for _, c := range pod.Spec.Containers {
		cpu.Add(*c.Resources.Requests.Cpu())
	}
	require.Equal(t, "5", cpu.String(), "500 containers of 10m")
	require.True(t, Dropped(pod.Labels), "no VPA selects the pod")
	require.Equal(t, "web", metav1.GetControllerOf(pod).Name)
	require.True(t, convert.Traits(pod).CrossNamespace)
	require.Empty(t, convert.ParseDeclared(pod.Annotations))
	pod.Annotations[convert.ResizedAtAnnotation] = "2026-01-02T12:00:00Z"
	_, err := convert.ParseChange(pod)
	require.ErrorContains(t, err, "has more than")

	v := trimOne(t, hostile["VerticalPodAutoscaler"].(*vpav1.VerticalPodAutoscaler))
	require.Equal(t, "spec.resourcePolicy.containerPolicies: must have at most 300 entries, has 5000", convert.UnreadableReason(v))
	require.Equal(t, vpav1.UpdateModeOff, *v.Spec.UpdatePolicy.UpdateMode)
	require.NotEmpty(t, recipe.Problem(v.Annotations[recipe.Annotation]), "a recipe that was cut is not another recipe")

	looked := trimOne(t, hostile["HorizontalPodAutoscaler"].(*autoscalingv2.HorizontalPodAutoscaler)).Spec.Metrics
	require.Len(t, looked, 2)
	require.Equal(t, corev1.ResourceMemory, looked[1].Resource.Name)

	made := &vpav1.VerticalPodAutoscaler{ObjectMeta: hostileMeta("made")}
	made.Labels[fleet.PolicyLabel] = "standard"
	made = trimOne(t, made)
	require.Equal(t, "standard", made.Labels[fleet.PolicyLabel])
	require.True(t, Dropped(made.Labels))
	require.True(t, Dropped(made.Annotations))
}

func TestTrim_DropsSpecsWithLongNames(t *testing.T) {
	for _, tc := range []struct {
		name, container string
		unreadable      bool
	}{{name: "ordinary", container: "web"}, {name: "long", container: strings.Repeat("x", maxVPASpec/maxVPAContainers+1), unreadable: true}} {
		t.Run(tc.name, func(t *testing.T) {
			policies := make([]vpav1.ContainerResourcePolicy, maxVPAContainers)
			for i := range policies {
				policies[i].ContainerName = tc.container
			}
			v := trimOne(t, &vpav1.VerticalPodAutoscaler{Spec: vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: policies}}})
			require.Equal(t, tc.unreadable, convert.UnreadableReason(v) != "")
		})
	}
}

func TestTrim_KeepsOrdinaryLabelsAndAnnotations(t *testing.T) {
	m := metav1.ObjectMeta{Labels: many("a/", 90), Annotations: map[string]string{"vpaUpdates": "x", "loadline.dev/other": "y", "other": "z"}}
	pod := trimOne(t, &corev1.Pod{ObjectMeta: m})
	require.Equal(t, m.Labels, pod.Labels)
	require.Equal(t, map[string]string{"vpaUpdates": "x", "loadline.dev/other": "y"}, pod.Annotations)
	vpa := trimOne(t, &vpav1.VerticalPodAutoscaler{ObjectMeta: m})
	require.Equal(t, m.Annotations, vpa.Annotations)
}
