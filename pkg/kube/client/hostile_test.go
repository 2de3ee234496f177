package client

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/cachesize"
	"loadline.dev/loadline/pkg/testkit"
)

func TestTrim_BoundsEveryField(t *testing.T) {
	for _, tc := range []struct {
		object any
		limit  int64 // KiB
	}{
		{object: &corev1.Pod{}, limit: 3 << 10}, // 600 containers with two amounts of CPU and memory each
		{object: &appsv1.Deployment{}, limit: 64},
		{object: &appsv1.ReplicaSet{}, limit: 64},
		{object: &appsv1.StatefulSet{}, limit: 64},
		{object: &appsv1.DaemonSet{}, limit: 64},
		{object: &corev1.ReplicationController{}, limit: 64},
		{object: &batchv1.Job{}, limit: 256}, // 20 rules of 255 exit codes
		{object: &batchv1.CronJob{}, limit: 64},
		{object: &corev1.Namespace{}, limit: 64},
		{object: &corev1.Node{}, limit: 64},
		{object: &corev1.LimitRange{}, limit: 64},
		{object: &corev1.ResourceQuota{}, limit: 64},
		{object: &autoscalingv2.HorizontalPodAutoscaler{}, limit: 128},
		{object: &vpav1.VerticalPodAutoscaler{}, limit: 2 << 10}, // 300 recommendations, 32 messages
	} {
		for shape, object := range filledObjects(tc.object) {
			t.Run(fmt.Sprintf("%T/%s", tc.object, shape), func(t *testing.T) {
				kept, err := new(Trimmer).Trim(object)
				require.NoError(t, err)
				again, err := new(Trimmer).Trim(kept)
				require.NoError(t, err)
				for _, o := range []any{kept, again} {
					require.LessOrEqual(t, cachesize.EstimateSize(o)>>10, tc.limit)
					require.Empty(t, longStrings(reflect.ValueOf(o), "", map[any]bool{}))
				}
				t.Logf("%d KiB", cachesize.EstimateSize(kept)>>10)
			})
		}
	}
}

func longStrings(v reflect.Value, path string, met map[any]bool) (found []string) {
	switch v.Kind() {
	case reflect.String:
		if v.Len() > convert.MaxConditionMessage+1 {
			found = append(found, fmt.Sprintf("%s: %d bytes", path, v.Len()))
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Kind() == reflect.Pointer && met[v.UnsafePointer()] {
			return nil
		}
		if v.Kind() == reflect.Pointer {
			met[v.UnsafePointer()] = true
		}
		return longStrings(v.Elem(), path, met)
	case reflect.Struct:
		for i := range v.NumField() {
			found = append(found, longStrings(v.Field(i), path+"."+v.Type().Field(i).Name, met)...)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			found = append(found, longStrings(v.Index(i), path, met)...)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			found = append(found, longStrings(entries.Key(), path, met)...)
			found = append(found, longStrings(entries.Value(), path, met)...)
		}
	}
	return found
}

func amountsOf(n int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(n), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(n), resource.BinarySI)}
}

// ordinaryVPA returns a VPA with amounts that no other VPA has.
func ordinaryVPA(namespace string, i, containers int) *vpav1.VerticalPodAutoscaler {
	list := func(k int) corev1.ResourceList { return amountsOf(20*i + k) }
	mode := vpav1.UpdateModeRecreate
	v := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("deployment-web-%04d", i), UID: "7a8f0d0e-95fb-4a0c-a54d-0c8e3f1f5f0e", ResourceVersion: "123456789",
			Annotations: map[string]string{"example.com/team": "shop"}},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:      &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprintf("web-%04d", i)},
			UpdatePolicy:   &vpav1.PodUpdatePolicy{UpdateMode: &mode},
			ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MinAllowed: list(-1)}}},
		},
		Status: vpav1.VerticalPodAutoscalerStatus{Recommendation: &vpav1.RecommendedPodResources{}, Conditions: []vpav1.VerticalPodAutoscalerCondition{
			{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue},
			{Type: convert.SufficientHistory, Status: corev1.ConditionTrue, Message: "the usage seen of every container covers at least 8 days"},
		}},
	}
	for c := range containers {
		v.Status.Recommendation.ContainerRecommendations = append(v.Status.Recommendation.ContainerRecommendations, vpav1.RecommendedContainerResources{
			ContainerName: fmt.Sprint("container-", c), Target: list(4 * c), LowerBound: list(4*c + 1), UpperBound: list(4*c + 2), UncappedTarget: list(4 * c)})
	}
	return v
}

// largeVPA returns a VPA with the maximum number of amounts.
func largeVPA(namespace string, i int) *vpav1.VerticalPodAutoscaler {
	v := ordinaryVPA(namespace, i, 2)
	v.Spec.ResourcePolicy.ContainerPolicies = make([]vpav1.ContainerResourcePolicy, maxVPAContainers)
	for c := range v.Spec.ResourcePolicy.ContainerPolicies {
		n := 2 * (i*maxVPAContainers + c)
		v.Spec.ResourcePolicy.ContainerPolicies[c] = vpav1.ContainerResourcePolicy{ContainerName: fmt.Sprint(c), MinAllowed: amountsOf(n), MaxAllowed: amountsOf(n + 1)}
	}
	return v
}

// keepVPAs trims VPAs of a namespace and returns the number of usable ones.
func keepVPAs(t *testing.T, trimmer *Trimmer, n int, one func(i int) *vpav1.VerticalPodAutoscaler) (kept []*vpav1.VerticalPodAutoscaler, usable int) {
	t.Helper()
	for i := range n {
		object, err := trimmer.Trim(one(i))
		require.NoError(t, err)
		v := object.(*vpav1.VerticalPodAutoscaler)
		if kept = append(kept, v); convert.UnreadableReason(v) == "" {
			usable++
			continue
		}
		require.Equal(t, NamespaceFull, convert.UnreadableReason(v))
		require.Equal(t, vpav1.UpdateModeOff, *v.Spec.UpdatePolicy.UpdateMode)
		require.Nil(t, v.Spec.ResourcePolicy)
	}
	return kept, usable
}

func TestTrimmer_KeepsVPAsOfLargeNamespaces(t *testing.T) {
	for _, containers := range []int{2, 3} {
		t.Run(fmt.Sprint(containers, " containers"), func(t *testing.T) {
			before, trimmer := testkit.LiveHeap(), &Trimmer{}
			kept, usable := keepVPAs(t, trimmer, 5200, func(i int) *vpav1.VerticalPodAutoscaler { return ordinaryVPA("shop", i, containers) })
			require.Equal(t, 5200, usable)
			heap, size := testkit.LiveHeap()-before, int64(0)
			for _, v := range kept {
				size += sizeOfVPA(v)
			}
			t.Logf("%d B in memory for each VPA, estimated %d, charged %d", heap/5200, size/5200, trimmer.vpas["shop"].bytes/5200)
			require.InEpsilon(t, heap, size, 0.15)
			require.GreaterOrEqual(t, trimmer.vpas["shop"].bytes, size)
			runtime.KeepAlive(kept)
		})
	}
}

// Tenants of six namespaces must not fill the memory of the webhook, which has a GOMEMLIMIT of 450
// MiB.
func TestTrimmer_BoundsVPAsOfNamespaces(t *testing.T) {
	before, trimmer := testkit.LiveHeap(), &Trimmer{}
	var all [][]*vpav1.VerticalPodAutoscaler
	const namespaces, each = 2, 200
	for n := range namespaces {
		namespace := fmt.Sprint("tenant-", n)
		kept, usable := keepVPAs(t, trimmer, each, func(i int) *vpav1.VerticalPodAutoscaler { return largeVPA(namespace, n*each+i) })
		require.Less(t, usable, each)
		all = append(all, kept)
	}
	heap := testkit.LiveHeap() - before
	t.Logf("%d MiB for each namespace", heap/namespaces>>20)
	require.Less(t, heap/namespaces, int64(66<<20))
	runtime.KeepAlive(all)
}

func TestTrimmer_ReadmitsVPAsWithFreeBudget(t *testing.T) {
	trimmer := &Trimmer{}
	kept, usable := keepVPAs(t, trimmer, 200, func(i int) *vpav1.VerticalPodAutoscaler { return largeVPA("shop", i) })
	require.Less(t, usable, 200)
	last := func() string {
		object, err := trimmer.Trim(largeVPA("shop", 199))
		require.NoError(t, err)
		return convert.UnreadableReason(object.(*vpav1.VerticalPodAutoscaler))
	}
	unchanged, err := trimmer.Trim(largeVPA("shop", 0))
	require.NoError(t, err)
	require.Empty(t, convert.UnreadableReason(unchanged.(*vpav1.VerticalPodAutoscaler)), "an update of a cached VPA does not lose its spec")
	require.NotEmpty(t, last())
	other, err := trimmer.Trim(largeVPA("pay", 0))
	require.NoError(t, err)
	require.Empty(t, convert.UnreadableReason(other.(*vpav1.VerticalPodAutoscaler)), "other namespaces are not affected")

	clear(kept[:len(kept)/2])
	require.Eventually(t, func() bool {
		runtime.GC()
		return last() == ""
	}, 10*time.Second, 50*time.Millisecond)
	runtime.KeepAlive(kept)
}

func TestTrim_BoundsNamesInRefusedSpecs(t *testing.T) {
	v := ordinaryVPA("shop", 1, 2)
	v.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: strings.Repeat("r", 1<<20)}}
	kept := trimOne(t, v)
	require.NotEmpty(t, convert.UnreadableReason(kept))
	require.Len(t, kept.Spec.Recommenders[0].Name, maxReference)
}

func TestTrim_KeepsEffectiveFieldsOfVPAs(t *testing.T) {
	v := ordinaryVPA("shop", 1, 2)
	v.Spec.ResourcePolicy.ContainerPolicies[0].MaxAllowed = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	for i := range 4000 {
		v.Spec.ResourcePolicy.ContainerPolicies[0].MaxAllowed[corev1.ResourceName(fmt.Sprint("example.com/", i))] = resource.MustParse("1")
	}
	kept := trimOne(t, v.DeepCopy())
	require.Empty(t, convert.UnreadableReason(kept))
	require.Equal(t, convert.Rules(v), convert.Rules(kept))
	require.Equal(t, v.Status, kept.Status)
}

// Recommendations in a full namespace still change a little.
func TestTrimmer_KeepsCachedVPAsThatGrowWithinCharge(t *testing.T) {
	trimmer := &Trimmer{}
	kept, usable := keepVPAs(t, trimmer, 200, func(i int) *vpav1.VerticalPodAutoscaler { return largeVPA("shop", i) })
	require.Less(t, usable, 200)
	grown := largeVPA("shop", 0)
	grown.Annotations["example.com/team"] += "s"
	object, err := trimmer.Trim(grown)
	require.NoError(t, err)
	require.Empty(t, convert.UnreadableReason(object.(*vpav1.VerticalPodAutoscaler)))
	runtime.KeepAlive(kept)
}

// A tenant with a full namespace must not fill the caches with refused VPAs.
func TestTrimmer_BoundsRefusedVPAs(t *testing.T) {
	trimmer := &Trimmer{}
	kept, _ := keepVPAs(t, trimmer, 200, func(i int) *vpav1.VerticalPodAutoscaler { return largeVPA("shop", i) })
	v := ordinaryVPA("shop", 1000, maxVPAContainers)
	v.Annotations = map[string]string{fleet.UnselectedAnnotation: "2026-03-02T08:00:00Z"}
	v.Labels = map[string]string{fleet.PolicyLabel: "shop"}
	v.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "1"}}
	for i := range 60 {
		v.Annotations[fmt.Sprint("vpa-", i)], v.Labels[fmt.Sprint("label-", i)] = strings.Repeat("a", 1000), strings.Repeat("a", 60)
		v.Status.Conditions = append(v.Status.Conditions, vpav1.VerticalPodAutoscalerCondition{Message: strings.Repeat("m", convert.MaxConditionMessage)})
	}
	object, err := trimmer.Trim(v)
	require.NoError(t, err)
	again, err := trimmer.Trim(object)
	require.NoError(t, err)
	for _, o := range []any{object, again} {
		refused := o.(*vpav1.VerticalPodAutoscaler)
		require.True(t, VPARefused(refused))
		require.Less(t, sizeOfVPA(refused), int64(48<<10))
		require.Equal(t, "2026-03-02T08:00:00Z", refused.Annotations[fleet.UnselectedAnnotation])
		require.Equal(t, "shop", refused.Labels[fleet.PolicyLabel])
		require.Equal(t, v.OwnerReferences, refused.OwnerReferences)
		require.True(t, Dropped(refused.Annotations))
	}
	runtime.KeepAlive(kept)
}
