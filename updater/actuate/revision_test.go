package actuate

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
)

// standalone returns a checker for the only pod of a ReplicaSet or ReplicationController without a
// Deployment. Admission adds a container and a token to each pod, and rewrites an image.
func standalone(t *testing.T, kind string, edit func(template *corev1.PodTemplateSpec), admit func(replacement *corev1.Pod)) *checkerFixture {
	t.Helper()
	config := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config-1"}}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"checksum": "1"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "web",
			InitContainers:     []corev1.Container{{Name: "setup", Image: "setup:1"}},
			Containers: []corev1.Container{
				{Name: "app", Image: "app:1", Env: []corev1.EnvVar{{Name: "MODE", Value: "slow"}}},
				{Name: "log", Image: "log:1"},
			},
			Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: config}}},
		},
	}
	inject := func(pod *corev1.Pod, token string) {
		pod.Spec.InitContainers[0].Image = "mirror/" + pod.Spec.InitContainers[0].Image
		pod.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:" + token}}, pod.Spec.Containers...)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access-" + token})
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].VolumeMounts = append(pod.Spec.Containers[i].VolumeMounts, corev1.VolumeMount{Name: "kube-api-access-" + token})
		}
	}
	now := template.DeepCopy()
	edit(now)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner"}
	selector := map[string]string{"app": "web"}
	var owner runtime.Object = &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(1)), Selector: metav1.SetAsLabelSelector(selector), Template: *now,
	}}
	version := "apps/v1"
	if kind == "ReplicationController" {
		version, owner = "v1", &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{
			Replicas: new(int32(1)), Selector: selector, Template: now,
		}}
	}
	live := &corev1.Pod{
		ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy(),
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	live.Namespace, live.Name, live.UID = "shop", "web-1", "pod"
	live.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "web", UID: "owner", Controller: new(true)}}
	live.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}
	inject(live, "old")
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{UID: "vpa", Generation: 1}}
	c := &checkerFixture{kube: fake.NewClientset(live, owner), pod: live, now: time.Unix(1e9, 0), vpa: vpa}
	c.kube.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		pod := a.(ktesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		inject(pod, "new")
		admit(pod)
		c.created = append(c.created, pod)
		return true, pod, c.refusal
	})
	c.Checker = &Checker{Kube: c.kube, Config: &disruption.Config{MinReplicas: 1, Tolerance: 0.5}, Clock: clockFunc(func() time.Time { return c.now })}
	return c
}

// Pods of these controllers have no revision label and are kept when the template changes.
func TestCheck_BlocksPodsOfChangedStandaloneTemplate(t *testing.T) {
	cases := []struct {
		name  string
		edit  func(*corev1.PodTemplateSpec)
		admit func(*corev1.Pod)
		want  string // empty: the pod is evicted
	}{
		{name: "same template"},
		{name: "image", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "app:2" }, want: "image of container app"},
		{name: "image of an init container", edit: func(p *corev1.PodTemplateSpec) {
			p.Spec.InitContainers[0].Image = "setup:2"
		}, want: "image of container setup"},
		{name: "environment", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Env[0].Value = "fast" }, want: "container app"},
		{name: "new container", edit: func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "cache"})
		}, want: "container cache"},
		{name: "container removed", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Containers = p.Spec.Containers[:1] }, want: "container log"},
		{name: "volume", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Volumes[0].ConfigMap.Name = "config-2" }, want: "volume config"},
		{name: "label", edit: func(p *corev1.PodTemplateSpec) { p.Labels["version"] = "2" }, want: "label version"},
		{name: "annotation", edit: func(p *corev1.PodTemplateSpec) { p.Annotations["checksum"] = "2" }, want: "annotation checksum"},
		{name: "service account", edit: func(p *corev1.PodTemplateSpec) { p.Spec.ServiceAccountName = "other" }, want: "serviceAccountName"},
		{name: "resources alone", edit: func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}},
		{name: "annotation of Loadline", edit: func(p *corev1.PodTemplateSpec) { p.Annotations[convert.ObservedAnnotation] = "app" }},
		{name: "annotation that admission adds", admit: func(p *corev1.Pod) { p.Annotations["injected"] = "now" }},
		{name: "container that admission adds since the pod was created", admit: func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "agent"})
		}},
	}
	for _, kind := range []string{"ReplicaSet", "ReplicationController"} {
		for _, tc := range cases {
			t.Run(kind+"/"+tc.name, func(t *testing.T) {
				if tc.edit == nil {
					tc.edit = func(*corev1.PodTemplateSpec) {}
				}
				if tc.admit == nil {
					tc.admit = func(*corev1.Pod) {}
				}
				c := standalone(t, kind, tc.edit, tc.admit)
				err := c.Check(t.Context(), c.change())
				if tc.want == "" {
					require.NoError(t, err)
					return
				}
				held := c.requireBlocked(t, err)
				require.Equal(t, reason.OlderRevision, held.Reason)
				require.ErrorContains(t, held, "the template of "+kind+" web differs from the pod: "+tc.want)
			})
		}
	}
}

// The dry run returns no pod to compare if the quota counts both pods.
func TestCheck_BlocksChangedStandaloneTemplateUnderQuota(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*corev1.PodTemplateSpec)
		want string // empty: the pod is evicted
	}{
		{name: "same template", edit: func(*corev1.PodTemplateSpec) {}},
		{name: "no service account", edit: func(p *corev1.PodTemplateSpec) { p.Spec.ServiceAccountName = "" }},
		{name: "image", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "app:2" }, want: "image of container app"},
		{name: "environment", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Env[0].Value = "fast" }, want: "container app"},
		{name: "command", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Command = []string{"other"} }, want: "container app"},
		{name: "new container", edit: func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "cache"})
		}, want: "container cache"},
		{name: "volume", edit: func(p *corev1.PodTemplateSpec) { p.Spec.Volumes[0].ConfigMap.Name = "config-2" }, want: "volume config"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := standalone(t, "ReplicaSet", tc.edit, func(*corev1.Pod) {})
			exceeded := errors.New("exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1")
			c.refusal = apierrors.NewForbidden(corev1.Resource("pods"), "web-", exceeded)
			err := c.Check(t.Context(), c.change())
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			held := c.requireBlocked(t, err)
			require.Equal(t, reason.OlderRevision, held.Reason)
			require.ErrorContains(t, held, "differs from the pod: "+tc.want)
		})
	}
}

// A quota for pods with requests does not count an evicted pod without requests.
func TestCheck_SubtractsOnlyPodsCountedByQuota(t *testing.T) {
	ten := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	for scope, want := range map[corev1.ResourceQuotaScope]reason.Reason{
		corev1.ResourceQuotaScopeNotBestEffort: reason.ReplacementRefused,
		corev1.ResourceQuotaScopeBestEffort:    "",
	} {
		t.Run(string(scope), func(t *testing.T) {
			c := newCheckerFixture(t, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "team"},
				Spec:       corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{scope}},
				Status:     corev1.ResourceQuotaStatus{Hard: ten, Used: ten},
			})
			exceeded := errors.New("exceeded quota: team, requested: pods=1, used: pods=10, limited: pods=10")
			c.refusal = apierrors.NewForbidden(corev1.Resource("pods"), "web-", exceeded)
			err := c.Check(t.Context(), c.change())
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, want, c.requireBlocked(t, err).Reason)
		})
	}
}

// Other pods of the owner may have the new template.
func TestPaused_OlderRevisionPausesOnePod(t *testing.T) {
	c := standalone(t, "ReplicaSet", func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "app:2" }, func(*corev1.Pod) {})
	require.Error(t, c.Check(t.Context(), c.change()))
	require.Equal(t, reason.OlderRevision, c.requireBlocked(t, c.Paused(c.change())).Reason)
	other := c.change()
	other.Object = c.pod.DeepCopy()
	other.Object.Name, other.Object.UID = "web-2", "other"
	require.NoError(t, c.Paused(other))
	c.now = c.now.Add(firstRefusalPause)
	require.NoError(t, c.Paused(c.change()))
}
