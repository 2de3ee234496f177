package updater

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/updater/report"
)

// count returns the number of events of a reason since the last call, which must contain the text.
func (r *rolling) count(reason, text string) (n int) {
	for _, line := range r.drainEvents() {
		if strings.Contains(line, " "+reason+" ") {
			require.Contains(r.t, line, text)
			n++
		}
	}
	return n
}

// The names decide between policies with equal priority, which may be unintended.
func TestEvents_ReportEqualPriorityPolicies(t *testing.T) {
	rival := func(priority int32) *loadlinev1alpha1.SizingPolicy {
		p := sizingPolicy(loadlinev1alpha1.RolloutModeRecommend, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Priority = &priority })
		p.Name = "zulu"
		return p
	}
	const said = "SizingPolicies fleet and zulu select the workload and have the same priority: fleet applies because its name sorts first"
	r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), rival(100))
	r.at(0)
	require.Equal(t, 1, r.count("PolicyConflict", said))
	r.at(59 * time.Minute)
	require.Zero(t, r.count("PolicyConflict", said))
	r.at(time.Hour)
	require.Equal(t, 1, r.count("PolicyConflict", said))
	require.Contains(t, newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), rival(100)).dryRunOutput(), "would emit event on VPA shop/deployment-web: PolicyConflict: "+said)

	for _, priority := range []int32{1, 99} {
		r = newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), rival(priority))
		r.at(0)
		require.Zero(t, r.count("PolicyConflict", ""), "its priority says who is responsible")
	}
}

func TestEvents_ReportOptOutOnce(t *testing.T) {
	r := roll(t, Default(), append(annotated(deployment(2, nil), fleet.SkipAnnotation, "true"), lowering(generatedVPA()), sizingPolicy(loadlinev1alpha1.RolloutModeAuto), healthy("n1"))...)
	require.Empty(t, r.at(0))
	require.Equal(t, 1, r.count("WorkloadOptOut", "Normal WorkloadOptOut No SizingPolicy changes the pods: an annotation excludes the workload"))
	r.at(2 * time.Hour)
	require.Zero(t, r.count("WorkloadOptOut", ""), "it is no news")
}

func TestEvents_ReportBlockedResizeOnce(t *testing.T) {
	pressure := healthy("n1")
	pressure.Status.Conditions = append(pressure.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
	full := healthy("n1")
	full.Status.Allocatable = list("150m", "64Gi")
	for why, node := range map[string]*corev1.Node{"NodePressure": pressure, "TooLargeForNode": full} {
		r := roll(t, Default(), append(deployment(2, nil), generatedVPA(), sizingPolicy(loadlinev1alpha1.RolloutModeAuto), node)...)
		require.Empty(t, r.at(0), why)
		require.Equal(t, 2, r.skipped(why))
		require.Equal(t, 1, r.count("ResizeSkipped", "Warning ResizeSkipped Skipped pods that SizingPolicy fleet would resize, such as web-1-"), why)
		for _, after := range []time.Duration{5 * time.Minute, 15 * time.Minute} {
			r.at(after)
			require.Empty(t, r.drainEvents(), why)
		}
	}

	w := newWorld(t, Default(), append(deployment(2, nil), autoscaler(vpav1.UpdateModeInPlaceOrRecreate), full)...)
	w.runOnce(noon)
	require.NotContains(t, strings.Join(w.drainEvents(), "\n"), "ResizeSkipped", "without a policy it is as before")
}

// Everything is new after a start. No Reverted event must be lost among others, and conflicts
// continue in the next iteration.
func TestEvents_BoundedPerIteration(t *testing.T) {
	const vpas = report.MaxEvents + 5
	said := func(reason string, annotations map[string]string, passes int) (n int) {
		rival := sizingPolicy(loadlinev1alpha1.RolloutModeAuto)
		rival.Name = "zulu"
		objects := []runtime.Object{healthy("n1")}
		for _, p := range []*loadlinev1alpha1.SizingPolicy{sizingPolicy(loadlinev1alpha1.RolloutModeAuto), rival} {
			p.Spec.Namespaces.Names = []string{"*"}
			objects = append(objects, p)
		}
		for i := range vpas {
			for _, o := range append(deployment(1, nil), generatedVPA()) {
				m := o.(metav1.Object)
				m.SetNamespace(fmt.Sprintf("team-%02d", i))
				m.SetUID(types.UID(m.GetNamespace() + string(m.GetUID())))
				if _, is := o.(*appsv1.Deployment); is {
					m.SetAnnotations(annotations)
				}
				objects = append(objects, o)
			}
		}
		r := roll(t, Default(), objects...)
		for pass := range passes {
			r.runOnce(noon.Add(time.Duration(pass) * time.Minute))
			n += r.count(reason, "")
		}
		return n
	}
	require.Equal(t, report.MaxEvents, said("PolicyConflict", nil, 1))
	require.Equal(t, vpas, said("PolicyConflict", nil, 3))
	require.Equal(t, report.MaxEvents, said("WorkloadOptOut", map[string]string{fleet.SkipAnnotation: "true"}, 1))
}
