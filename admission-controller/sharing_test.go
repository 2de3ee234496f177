package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/sharing"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/testkit"
)

// sharingCase is a new pod of the Deployment web under a policy with sharing.
type sharingCase struct {
	policy *loadlinev1alpha1.SizingPolicy
	vpa    *vpav1.VerticalPodAutoscaler
	web    *appsv1.Deployment
	pod    *corev1.Pod
	hpa    *autoscalingv2.HorizontalPodAutoscaler // nil for none
	minAge time.Duration                          // --sharing-min-age, 0 for the default
}

func newSharingCase(changes ...func(*sharingCase)) sharingCase {
	long := metav1.NewTime(time.Now().Add(-24 * time.Hour))
	c := sharingCase{
		policy: sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Recipe = new("cruisekube")
			s.Sharing = &loadlinev1alpha1.Sharing{
				Mode: new(loadlinev1alpha1.SharingOn), Resources: []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory},
				CPULimit: new(loadlinev1alpha1.SharingCPULimitRemove),
			}
		}),
		vpa: generatedVPA(vpav1.UpdateModeOff),
		pod: testkit.Pod("p", testkit.Container("c", "cpu=2 memory=2000M", "cpu=4 memory=3000M")),
	}
	c.policy.Status.Conditions = []metav1.Condition{{Type: sizing.ConditionSharing, Status: metav1.ConditionTrue}}
	testkit.Recommend("c", "cpu=1250m memory=700M")(c.vpa)
	c.vpa.Status.Recommendation.ContainerRecommendations = c.vpa.Status.Recommendation.ContainerRecommendations[1:]
	c.vpa.Status.Recommendation.ContainerRecommendations[0].UpperBound = testkit.List("cpu=2 memory=900M")
	c.vpa.CreationTimestamp = long
	c.web = webOf(clusterWithWeb(nil), long)
	for _, change := range changes {
		change(&c)
	}
	return c
}

func webOf(kube *fake.Clientset, created metav1.Time) *appsv1.Deployment {
	object, err := kube.Tracker().Get(appsv1.SchemeGroupVersion.WithResource("deployments"), testkit.Namespace, "web")
	if err != nil {
		panic(err)
	}
	web, _ := object.(*appsv1.Deployment)
	web = web.DeepCopy()
	web.CreationTimestamp = created
	return web
}

func (c sharingCase) answer(t *testing.T) server.Answer {
	t.Helper()
	kube, vpas := clusterWithWeb(nil), vpafake.NewSimpleClientset(c.vpa)
	require.NoError(t, kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), c.web, testkit.Namespace))
	if c.hpa != nil {
		require.NoError(t, kube.Tracker().Add(c.hpa))
	}
	if c.policy != nil {
		require.NoError(t, vpas.Tracker().Add(c.policy))
	}
	aged := func(config *Config) {
		if c.minAge > 0 {
			config.SharingMinAge = c.minAge
		}
	}
	answer := webhookOf(t, kube, vpas, aged).Answer(t.Context(), podRequest(t, c.pod))
	require.NoError(t, answer.Err)
	return answer
}

var (
	asShared = []client.PatchOperation{
		client.PatchAdd("/spec/containers/0/resources/requests/cpu", "1250m"),
		client.PatchAdd("/spec/containers/0/resources/requests/memory", "700M"),
		client.PatchAdd("/spec/containers/0/resources/limits/memory", "1800M"),
		client.PatchRemove("/spec/containers/0/resources/limits/cpu"),
	}
	asAnyOther = []client.PatchOperation{
		client.PatchAdd("/spec/containers/0/resources/requests/cpu", "1250m"),
		client.PatchAdd("/spec/containers/0/resources/requests/memory", "700M"),
		client.PatchAdd("/spec/containers/0/resources/limits/cpu", "2500m"),
		client.PatchAdd("/spec/containers/0/resources/limits/memory", "1050M"),
	}
)

func sharingSettings(change func(*loadlinev1alpha1.Sharing)) func(*sharingCase) {
	return func(c *sharingCase) { change(c.policy.Spec.Sharing) }
}

func TestSharing_SizesNewPods(t *testing.T) {
	mode := func(m loadlinev1alpha1.SharingMode) func(*sharingCase) {
		return sharingSettings(func(s *loadlinev1alpha1.Sharing) { s.Mode = &m })
	}
	says := func(status metav1.ConditionStatus) func(*sharingCase) {
		return func(c *sharingCase) { c.policy.Status.Conditions[0].Status = status }
	}
	onCPU := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Metrics:        []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU}}},
	}}
	for _, tc := range []struct {
		name   string
		change func(*sharingCase)
		want   []client.PatchOperation
	}{
		{name: "On", change: func(*sharingCase) {}, want: asShared},
		{name: "no policy", change: func(c *sharingCase) { c.policy = nil }},
		{name: "no sharing settings", change: func(c *sharingCase) { c.policy.Spec.Sharing = nil }, want: asAnyOther},
		{name: "Off", change: mode(loadlinev1alpha1.SharingOff), want: asAnyOther},
		{name: "DryRun", change: mode(loadlinev1alpha1.SharingDryRun), want: asAnyOther},
		{name: "updater does not share", change: says(metav1.ConditionFalse), want: asAnyOther},
		{name: "updater has not reported sharing", change: func(c *sharingCase) { c.policy.Status.Conditions = nil }, want: asAnyOther},
		{name: "updater has not observed the policy", change: func(c *sharingCase) { c.policy.Generation = 2 }, want: asAnyOther},
		{name: "updater has observed the policy", change: func(c *sharingCase) {
			c.policy.Generation, c.policy.Status.Conditions[0].ObservedGeneration = 2, 2
		}, want: asShared},
		{name: "mode without resizes", change: func(c *sharingCase) {
			c.policy.Spec.Rollout.Mode = new(loadlinev1alpha1.RolloutModeOneShot)
			c.policy.Spec.Rollout.InitialSizing = new(loadlinev1alpha1.InitialSizingTarget)
		}, want: asAnyOther},
		{name: "recipe without sharing", change: func(c *sharingCase) { c.policy.Spec.Recipe = new("vpa") }, want: asAnyOther},
		{name: "recipe of the command line", change: func(c *sharingCase) { c.policy.Spec.Recipe = nil }, want: asAnyOther},
		{name: "VPA with a recipe without sharing",
			change: func(c *sharingCase) { c.vpa.Annotations = map[string]string{recipe.Annotation: "vpa"} }, want: asAnyOther},
		{name: "VPA with a recipe with sharing", change: func(c *sharingCase) {
			c.policy.Spec.Recipe, c.vpa.Annotations = nil, map[string]string{recipe.Annotation: "cruisekube"}
		}, want: asShared},
		{name: "opted out", change: func(c *sharingCase) { c.web.Annotations = map[string]string{sharing.SharingAnnotation: "off"} },
			want: asAnyOther},
		{name: "workload too young",
			change: func(c *sharingCase) { c.web.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute)) }, want: asAnyOther},
		{name: "workload older than --sharing-min-age", change: func(c *sharingCase) {
			c.web.CreationTimestamp, c.minAge = metav1.NewTime(time.Now().Add(-2*time.Minute)), time.Minute
		}, want: asShared},
		{name: "workload younger than --sharing-min-age", change: func(c *sharingCase) { c.minAge = 48 * time.Hour }, want: asAnyOther},
		{name: "pod-level resources", change: func(c *sharingCase) {
			c.pod.Spec.Resources = &corev1.ResourceRequirements{Requests: testkit.List("cpu=8")}
		}},
		{name: "GPU", change: func(c *sharingCase) {
			c.pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] = testkit.List("x=1")["x"]
		}, want: asAnyOther},
		{name: "HPA on CPU", change: func(c *sharingCase) { c.hpa = onCPU }, want: []client.PatchOperation{
			client.PatchAdd("/spec/containers/0/resources/requests/memory", "700M"), client.PatchAdd("/spec/containers/0/resources/limits/memory", "1050M"),
		}},
		{name: "Guaranteed", change: func(c *sharingCase) {
			c.pod.Spec.Containers[0] = testkit.Container("c", "cpu=2 memory=2000M", "cpu=2 memory=2000M")
		}, want: []client.PatchOperation{
			client.PatchAdd("/spec/containers/0/resources/requests/cpu", "1250m"), client.PatchAdd("/spec/containers/0/resources/requests/memory", "700M"),
			client.PatchAdd("/spec/containers/0/resources/limits/cpu", "1250m"), client.PatchAdd("/spec/containers/0/resources/limits/memory", "700M"),
		}},
		{name: "memory is not shared", change: sharingSettings(func(s *loadlinev1alpha1.Sharing) { s.Resources = nil }),
			want: []client.PatchOperation{
				client.PatchAdd("/spec/containers/0/resources/requests/cpu", "1250m"),
				client.PatchAdd("/spec/containers/0/resources/requests/memory", "700M"),
				client.PatchAdd("/spec/containers/0/resources/limits/memory", "1050M"),
				client.PatchRemove("/spec/containers/0/resources/limits/cpu"),
			}},
		{name: "CPU limits stay", change: sharingSettings(func(s *loadlinev1alpha1.Sharing) { s.CPULimit = nil }), want: asShared[:3]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sizes []client.PatchOperation
			for _, step := range newSharingCase(tc.change).answer(t).Patch {
				if step.Op != "test" && len(step.Path) > len("/spec/") && step.Path[:len("/spec/")] == "/spec/" {
					sizes = append(sizes, step)
				}
			}
			require.Equal(t, tc.want, sizes)
		})
	}
}

func TestSharing_KeepsRequestsOfDaemonPods(t *testing.T) {
	c := newSharingCase()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace, Name: "agent", UID: "agent-uid", CreationTimestamp: c.web.CreationTimestamp},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	vpa := testkit.VPA("agent", testkit.Mode(vpav1.UpdateModeRecreate))
	vpa.Status.Recommendation = c.vpa.Status.Recommendation
	vpa.Spec.TargetRef.Kind, vpa.Spec.TargetRef.Name = "DaemonSet", "agent"
	c.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: new(true)}}
	c.policy.Spec.Workloads[0].Kind = "DaemonSet"
	kube, vpas := clusterWithWeb(nil), vpafake.NewSimpleClientset(vpa, c.policy)
	require.NoError(t, kube.Tracker().Add(d))
	answer := webhookOf(t, kube, vpas).Answer(t.Context(), podRequest(t, c.pod))
	require.NoError(t, answer.Err)
	require.Contains(t, answer.Patch, client.PatchRemove("/spec/containers/0/resources/limits/cpu"))
	require.Contains(t, answer.Patch, client.PatchAdd("/spec/containers/0/resources/limits/memory", "3G"))
	for _, step := range answer.Patch {
		require.NotContains(t, step.Path, "/requests/")
	}
}
