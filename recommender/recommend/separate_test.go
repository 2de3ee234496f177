package recommend

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

func mebibytes(request, protected string) status.Recommended {
	list := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse(text)}
	}
	return status.Recommended{Target: list(request), LowerBound: list(request), UpperBound: list(protected), UncappedTarget: list(request)}
}

func memoryOf(c status.Recommended) []string {
	return []string{c.Target.Memory().String(), c.UpperBound.Memory().String(), c.UncappedTarget.Memory().String()}
}

func TestConvertPublished_KeepsProtectedMemory(t *testing.T) {
	before := mebibytes("60Mi", "120Mi")
	require.Equal(t, []string{"60Mi", "60Mi", "60Mi"}, memoryOf(convertPublished(before, false, true)), "a limit followed the target, whatever the bound was")
	require.Equal(t, []string{"120Mi", "120Mi", "120Mi"}, memoryOf(convertPublished(before, true, false)))
	require.Equal(t, []string{"60Mi", "120Mi", "60Mi"}, memoryOf(convertPublished(before, true, true)))
	require.Equal(t, []string{"60Mi", "120Mi", "60Mi"}, memoryOf(before), "the object of the cache is not touched")
}

func TestHoldLowered_HoldsProtectedMemorySeparately(t *testing.T) {
	for _, tc := range []struct {
		name string
		now  status.Recommended
		held bool
		want []string
	}{
		{name: "both lower", now: mebibytes("50Mi", "100Mi"), held: true, want: []string{"60Mi", "120Mi", "60Mi"}},
		{name: "lower protected memory", now: mebibytes("70Mi", "100Mi"), held: true, want: []string{"70Mi", "120Mi", "70Mi"}},
		{name: "lower request after a kill", now: mebibytes("50Mi", "200Mi"), held: true, want: []string{"60Mi", "200Mi", "60Mi"}},
		{name: "both higher", now: mebibytes("70Mi", "130Mi"), want: []string{"70Mi", "130Mi", "70Mi"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known, doubt := [resources.Kinds]bool{true, true}, [resources.Kinds]bool{resources.Memory: true}
			before := raiseHeldMemory(mebibytes("60Mi", "120Mi"), tc.now, true)
			kinds := holdLowered(&known, doubt, tc.now, before, true)
			require.Equal(t, tc.held, kinds != nil)
			keepPublished(&tc.now, before, known)
			require.Equal(t, tc.want, memoryOf(tc.now))
		})
	}
	require.Equal(t, []string{"60Mi", "120Mi", "60Mi"}, memoryOf(raiseHeldMemory(mebibytes("60Mi", "120Mi"), mebibytes("70Mi", "130Mi"), false)))
}

func TestPublish_DoesNotDeferProtectedMemory(t *testing.T) {
	estimate := func(protected resources.Amount) []model.Estimate {
		r := resources.NewList(1000, 1<<30)
		return []model.Estimate{{Container: "a", Bounds: resources.Bounds{Lower: r, Target: r, Upper: r.With(resources.Memory, protected)}}}
	}
	p := newScriptedPublisher()
	p.Tolerance = 0.1
	require.False(t, p.differsEnough(p.vpa, estimate(2<<30), estimate(2<<30+1)))
	p.vpa.Recipe.SeparateMemoryLimit = true
	require.True(t, p.differsEnough(p.vpa, estimate(2<<30), estimate(2<<30+1)))
	p.vpa.Published.BoundsTimeUp = true
	require.True(t, p.differsEnough(p.vpa, estimate(2<<30), estimate(2<<30+1)), "also where no bound has time")

	list := mebibytes("60Mi", "120Mi")
	statusOf := func(separate string, c status.Recommended) status.Outcome {
		return status.Outcome{Recommendation: []status.Recommended{c}, Pods: 1, MemoryLimits: separate}
	}
	for _, tc := range []struct {
		name     string
		separate string
		same     bool
	}{
		{name: "one limit", same: true},
		{name: "separate limit", separate: "because"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := status.Compose(p.vpa.Object, statusOf(tc.separate, list), now())
			b := status.Compose(p.vpa.Object, statusOf(tc.separate, mebibytes("60Mi", "121Mi")), now())
			require.Equal(t, tc.separate != "", convert.HasSeparateMemoryLimit(&a))
			require.Equal(t, tc.same, status.SameButBounds(&a, &b))
		})
	}
}
