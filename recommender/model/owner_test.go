package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// fakeOwners maps controllers to topmost owners. Missing controllers are unknown.
type fakeOwners map[target.Key]target.Key

func (o fakeOwners) Top(controller target.Key) (target.Key, bool) {
	top, known := o[controller]
	return top, known
}

func workload(kind, name string) target.Key {
	return target.NewKey("shop", map[string]string{"Rollout": "argoproj.io/v1alpha1"}[kind], kind, name)
}

func ownedPod(name string, by target.Key, with map[string]string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: with}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	if by != (target.Key{}) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: by.Group + "/v1", Kind: by.Kind, Name: by.Name, Controller: new(true)}}
	}
	return pod
}

func observedVPA(name string, of target.Key, selector string) Observed {
	version := "apps/v1"
	if of.Group != "" {
		version = of.Group + "/v1alpha1"
	}
	parsed, _ := labels.Parse(selector)
	return Observed{Object: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{APIVersion: version, Kind: of.Kind, Name: of.Name}}}, Selector: parsed}
}

func TestModel_SelectsPodsOwnedByTarget(t *testing.T) {
	web, canary := workload("Deployment", "web"), workload("Deployment", "web-canary")
	webSet, canarySet, job := workload("ReplicaSet", "web-1"), workload("ReplicaSet", "web-canary-1"), workload("Job", "migrate")
	rollout, other, custom := workload("Rollout", "web"), workload("Rollout", "other"), workload("ReplicaSet", "rollout-1")
	all := fakeOwners{webSet: web, canarySet: canary, job: job, custom: rollout, other: other}
	app := map[string]string{"app": "web"}
	track := map[string]string{"app": "web", "track": "canary"}
	for _, tc := range []struct {
		name string
		of   target.Key
		pods []*corev1.Pod
		want []string
	}{
		{name: "tracks that share labels", of: web, pods: []*corev1.Pod{ownedPod("stable", webSet, app), ownedPod("canary", canarySet, track)}, want: []string{"stable"}},
		{name: "tracks with the same labels", of: web, pods: []*corev1.Pod{ownedPod("canary", canarySet, app), ownedPod("stable", webSet, app)}, want: []string{"stable"}},
		{name: "a Job of the release", of: web, pods: []*corev1.Pod{ownedPod("migrate", job, app), ownedPod("stable", webSet, app)}, want: []string{"stable"}},
		{name: "a Job alone", of: web, pods: []*corev1.Pod{ownedPod("migrate", job, app)}},
		{name: "a pod without controller", of: web, pods: []*corev1.Pod{ownedPod("bare", target.Key{}, app)}, want: []string{"bare"}},
		{name: "an owner that is not known yet", of: web, pods: []*corev1.Pod{ownedPod("new", workload("ReplicaSet", "unknown"), app)}, want: []string{"new"}},
		{name: "a custom resource", of: rollout, pods: []*corev1.Pod{ownedPod("a", custom, app), ownedPod("b", other, app)}, want: []string{"a"}},
		{name: "a custom resource, the other first", of: rollout, pods: []*corev1.Pod{ownedPod("b", other, track), ownedPod("a", custom, app)}, want: []string{"a"}},
		{name: "a custom resource that is no controller of its pods", of: rollout, pods: []*corev1.Pod{ownedPod("a", webSet, app), ownedPod("b", webSet, track)}, want: []string{"a", "b"}},
	} {
		for order, podsFirst := range map[string]bool{"pods first": true, "VPA first": false} {
			t.Run(tc.name+", "+order, func(t *testing.T) {
				m := NewModel(Config{Store: usage.NewStore(usage.DefaultConfig()), Owners: all})
				vpas := []Observed{observedVPA("v", tc.of, "app=web")}
				if !podsFirst {
					m.SyncVPAs(vpas, time.Unix(0, 0))
				}
				for _, pod := range tc.pods {
					m.PutPod(pod, time.Unix(0, 0))
				}
				m.SyncVPAs(vpas, time.Unix(60, 0))
				require.Equal(t, tc.want, m.Find("shop", "v").PodNames())
			})
		}
	}
}

func TestModel_ResolvesOwnerLater(t *testing.T) {
	web, canary, set := workload("Deployment", "web"), workload("Deployment", "web-canary"), workload("ReplicaSet", "web-canary-1")
	all := fakeOwners{}
	m := NewModel(Config{Store: usage.NewStore(usage.DefaultConfig()), Owners: all})
	vpas := []Observed{observedVPA("v", web, "app=web")}
	for _, name := range []string{"a", "b"} {
		m.PutPod(ownedPod(name, set, map[string]string{"app": "web"}), time.Unix(0, 0))
	}
	m.SyncVPAs(vpas, time.Unix(0, 0))
	require.Equal(t, []string{"a", "b"}, m.Find("shop", "v").PodNames())
	all[set] = canary
	m.SyncVPAs(vpas, time.Unix(60, 0))
	require.Empty(t, m.Find("shop", "v").PodNames())
	m.PutPod(ownedPod("c", workload("ReplicaSet", "unknown"), map[string]string{"app": "web", "pod-template-hash": "1"}), time.Unix(60, 0))
	m.RemovePod("shop", "c")
	m.SyncVPAs(vpas, time.Unix(120, 0))
	require.Empty(t, m.unresolvedOwners)
}

func TestModel_SeparatesHistoriesByOwner(t *testing.T) {
	web, webSet := workload("Deployment", "web"), workload("ReplicaSet", "web-1")
	all := fakeOwners{webSet: web}
	store := usage.NewStore(usage.DefaultConfig())
	m := NewModel(Config{Store: store, Owners: all})
	vpas := []Observed{observedVPA("v", web, "app=web")}
	m.SyncVPAs(vpas, time.Unix(0, 0))
	m.PutPod(ownedPod("web-1-a", webSet, map[string]string{"app": "web", "pod-template-hash": "1"}), time.Unix(0, 0))
	for run := range 3 {
		job := workload("Job", fmt.Sprint("migrate-", run))
		all[job] = job
		name := fmt.Sprint("migrate-", run)
		m.PutPod(ownedPod(name, job, map[string]string{"app": "web", "job-name": name}), time.Unix(0, 0))
		m.RemovePod("shop", name)
	}
	m.RemovePod("shop", "web-1-a")
	m.SyncVPAs(vpas, time.Unix(60, 0))
	require.Len(t, m.Find("shop", "v").Series("app"), 1)
}

// A blue/green release may first select both colors and then the new one.
func TestSyncVPAs_KeepsOwnedHistoryOfNarrowedSelector(t *testing.T) {
	rollout, blue, green := workload("Rollout", "web"), workload("ReplicaSet", "web-blue"), workload("ReplicaSet", "web-green")
	stranger := workload("Deployment", "other")
	for _, tc := range []struct {
		name string
		blue target.Key // topmost controller of the blue pods
		want int
	}{
		{name: "pods of the target", blue: rollout, want: 2},
		{name: "pods of another workload", blue: stranger, want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := NewModel(Config{Store: usage.NewStore(usage.DefaultConfig()), Owners: fakeOwners{blue: tc.blue, green: rollout}})
			m.PutPod(ownedPod("blue", blue, map[string]string{"app": "web", "color": "blue"}), time.Unix(0, 0))
			m.PutPod(ownedPod("green", green, map[string]string{"app": "web", "color": "green"}), time.Unix(0, 0))
			for i, selector := range []string{"color=blue", "color in (blue,green)", "color=green"} {
				m.SyncVPAs([]Observed{observedVPA("v", rollout, selector)}, time.Unix(int64(60*i), 0))
			}
			require.Len(t, m.Find("shop", "v").Series("app"), tc.want)
			require.Equal(t, []string{"green"}, m.Find("shop", "v").PodNames())
		})
	}
}
