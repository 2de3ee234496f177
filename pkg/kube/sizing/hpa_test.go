package sizing

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

func scaler(apiVersion, kind, name string, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hpa"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}, Metrics: metrics}}
}

func on(name corev1.ResourceName, of autoscalingv2.MetricTargetType) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: autoscalingv2.MetricTarget{Type: of}}}
}

func onContainer(container string, name corev1.ResourceName, of autoscalingv2.MetricTargetType) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType,
		ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: name, Container: container, Target: autoscalingv2.MetricTarget{Type: of}}}
}

func TestUtilizationResources_OnlyMetricsRelativeToRequests(t *testing.T) {
	external := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{}}
	onlyMemory := policy.Rules{Entries: []policy.Entry{{Container: policy.Wildcard, Rule: policy.Rule{Controlled: [resources.Kinds]bool{resources.Memory: true}}}}}
	for _, tc := range []struct {
		name    string
		metrics []autoscalingv2.MetricSpec
		rules   policy.Rules
		want    [resources.Kinds]bool
	}{
		{name: "utilization", metrics: []autoscalingv2.MetricSpec{on("cpu", autoscalingv2.UtilizationMetricType)}, want: [resources.Kinds]bool{resources.CPU: true}},
		{name: "a type that is not known", metrics: []autoscalingv2.MetricSpec{on("cpu", "")}, want: [resources.Kinds]bool{resources.CPU: true}},
		{name: "an amount", metrics: []autoscalingv2.MetricSpec{on("cpu", autoscalingv2.AverageValueMetricType)}},
		{name: "an amount of one and a part of the other", metrics: []autoscalingv2.MetricSpec{on("cpu", autoscalingv2.AverageValueMetricType), on("memory", autoscalingv2.UtilizationMetricType)},
			want: [resources.Kinds]bool{resources.Memory: true}},
		{name: "external metrics", metrics: []autoscalingv2.MetricSpec{external}},
		{name: "no metrics", want: [resources.Kinds]bool{resources.CPU: true}},
		{name: "the resource that the VPA leaves alone", metrics: []autoscalingv2.MetricSpec{on("cpu", autoscalingv2.UtilizationMetricType)}, rules: onlyMemory},
		{name: "a container", metrics: []autoscalingv2.MetricSpec{onContainer("app", "cpu", autoscalingv2.UtilizationMetricType)}, want: [resources.Kinds]bool{resources.CPU: true}},
		{name: "an amount of a container", metrics: []autoscalingv2.MetricSpec{onContainer("app", "cpu", autoscalingv2.AverageValueMetricType)}},
		{name: "a container that the VPA leaves alone", metrics: []autoscalingv2.MetricSpec{onContainer("app", "cpu", autoscalingv2.UtilizationMetricType)},
			rules: policy.Rules{Entries: []policy.Entry{{Container: "app", Rule: policy.Rule{Off: true}}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := scaler("apps/v1", "Deployment", "web", tc.metrics...)
			require.Equal(t, tc.want, UtilizationResources(h).Conflicts(tc.rules))
			trimmed, err := client.Trim(h)
			require.NoError(t, err)
			require.Equal(t, tc.want, UtilizationResources(trimmed.(*autoscalingv2.HorizontalPodAutoscaler)).Conflicts(tc.rules), "as the caches hold it")
		})
	}
}

func watchedHPAs(ctx context.Context, t *testing.T, h *autoscalingv2.HorizontalPodAutoscaler) *HorizontalPodAutoscalers {
	t.Helper()
	owned := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "App", Name: "shop", Controller: new(true)}}}}
	kube := fake.NewClientset(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, owned, h)
	f := client.Factory(kube, "", time.Hour, "")
	targets := target.New(f, nil)
	known, err := WatchHPAs(f, targets.OwnerChain, "")
	require.NoError(t, err)
	require.NotNil(t, known.Resources(target.Key{Namespace: "shop", Kind: "Deployment", Name: "other"}), "before they are read, one may look at anything")
	f.Start(ctx.Done())
	require.NoError(t, client.Sync(ctx, targets.Synced()))
	f.WaitForCacheSync(ctx.Done())
	return known
}

func TestHPAs_MatchReferencesLikeAPIServer(t *testing.T) {
	key := func(group, kind, name string) target.Key {
		return target.Key{Namespace: "shop", Group: group, Kind: kind, Name: name}
	}
	web, rollout := key("", "Deployment", "web"), key("argoproj.io", "Rollout", "web")
	for _, tc := range []struct {
		name, apiVersion, kind, named string
		of                            target.Key
		want                          bool
	}{
		{name: "the same", apiVersion: "apps/v1", kind: "Deployment", named: "web", of: web, want: true},
		{name: "an old version", apiVersion: "extensions/v1beta1", kind: "Deployment", named: "web", of: web, want: true},
		{name: "no version", kind: "Deployment", named: "web", of: web, want: true},
		{name: "a kind in lower case", apiVersion: "apps/v1", kind: "deployment", named: "web", of: web},
		{name: "another name", apiVersion: "apps/v1", kind: "Deployment", named: "api", of: web},
		{name: "the kind of another group", apiVersion: "example.com/v1", kind: "Deployment", named: "web", of: web},
		{name: "a custom resource", apiVersion: "argoproj.io/v1alpha1", kind: "Rollout", named: "web", of: rollout, want: true},
		{name: "another version of it", apiVersion: "argoproj.io/v2", kind: "Rollout", named: "web", of: rollout, want: true},
		{name: "that kind of another group", apiVersion: "example.com/v1", kind: "Rollout", named: "web", of: rollout},
		{name: "a group that cannot be right", apiVersion: "apps/v1", kind: "Rollout", named: "web", of: rollout, want: true},
		{name: "no group", kind: "Rollout", named: "web", of: rollout, want: true},
		{name: "a workload that the target owns", apiVersion: "apps/v1", kind: "Deployment", named: "owned", of: key("example.com", "App", "shop"), want: true},
		{name: "one that another owns", apiVersion: "apps/v1", kind: "Deployment", named: "owned", of: key("example.com", "App", "other")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				h := scaler(tc.apiVersion, tc.kind, tc.named, on("cpu", autoscalingv2.UtilizationMetricType))
				known := watchedHPAs(ctx, t, h)
				synctest.Wait()
				require.Equal(t, tc.want, known.Resources(tc.of) != nil)
				looked, first := FindHPAResources([]autoscalingv2.HorizontalPodAutoscaler{*h}, tc.of, known.owners)
				require.Equal(t, tc.want, looked != nil)
				require.Equal(t, tc.want, first != nil)
			})
		})
	}
}

// The status of an HPA changes every 15 s, and a namespace can have many HPAs.
func TestHPAs_StatusUpdatesCauseNoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		known := watchedHPAs(ctx, t, scaler("apps/v1", "Deployment", "web", on("cpu", autoscalingv2.UtilizationMetricType)))
		synctest.Wait()
		web, read, release := target.Key{Namespace: "shop", Kind: "Deployment", Name: "web"}, 0, make(chan struct{})
		close(release)
		owners := known.owners
		known.owners = func(key target.Key) iter.Seq[target.Key] {
			read++
			<-release
			return owners(key)
		}
		require.NotNil(t, known.Resources(web))
		all := known.informer.GetStore().List()
		updated := all[0].(*autoscalingv2.HorizontalPodAutoscaler).DeepCopy()
		updated.Status.CurrentReplicas++
		update := func() {
			if !sameSpec(all[0], updated) {
				known.invalidate(updated)
			}
		}
		update()
		require.NotNil(t, known.Resources(web))
		require.Equal(t, 1, read)
		updated.Spec.Metrics = nil
		update()
		require.NotNil(t, known.Resources(web))
		require.Equal(t, 2, read)

		// A slow namespace does not delay others.
		time.Sleep(ownersTTL)
		known.invalidate(updated)
		release = make(chan struct{})
		go known.Resources(web)
		synctest.Wait()
		require.Nil(t, known.Resources(target.Key{Namespace: "pay", Kind: "Deployment", Name: "web"}))
		close(release)
	})
}

func TestHPAs_LimitReadsOnChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		known := watchedHPAs(ctx, t, scaler("apps/v1", "Deployment", "web", on("cpu", autoscalingv2.UtilizationMetricType)))
		synctest.Wait()
		web, read := target.Key{Namespace: "shop", Kind: "Deployment", Name: "web"}, 0
		owners := known.owners
		known.owners = func(key target.Key) iter.Seq[target.Key] {
			read++
			return owners(key)
		}
		current := known.informer.GetStore().List()[0].(*autoscalingv2.HorizontalPodAutoscaler)
		change := func(metric corev1.ResourceName) {
			current = current.DeepCopy()
			current.Spec.Metrics = scaler("", "", "", on(metric, autoscalingv2.UtilizationMetricType)).Spec.Metrics
			require.NoError(t, known.informer.GetStore().Update(current))
			known.invalidate(current)
		}
		looksAt := func(k resources.Kind) bool { return known.Resources(web).For("app")[k] }
		require.True(t, looksAt(resources.CPU))
		change("memory")
		require.True(t, looksAt(resources.Memory), "the first change takes effect at once")
		change("cpu")
		require.True(t, looksAt(resources.Memory))
		time.Sleep(ownersTTL)
		require.True(t, looksAt(resources.CPU), "and later ones within ten seconds")
		read = 0
		for range 600 {
			change("memory")
			looksAt(resources.Memory)
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, read, 2*6+1)
		require.True(t, looksAt(resources.Memory))
	})
}
