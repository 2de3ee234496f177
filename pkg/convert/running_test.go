package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

func TestConditions_ReadResizeState(t *testing.T) {
	type condition = corev1.PodCondition
	const pending, progress, ready = corev1.PodResizePending, corev1.PodResizeInProgress, corev1.PodReady
	noon := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	yes, no := corev1.ConditionTrue, corev1.ConditionFalse
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	for _, tc := range []struct {
		name  string
		all   []condition
		state disruption.ResizeState
		since time.Time
		ready bool
	}{
		{name: "no conditions", state: disruption.NotResizing},
		{name: "ready", all: []condition{{Type: ready, Status: yes}}, state: disruption.NotResizing, ready: true},
		{name: "not ready", all: []condition{{Type: ready, Status: no}}, state: disruption.NotResizing},
		{
			name: "deferred resize", all: []condition{{Type: pending, Status: yes, Reason: "Deferred", LastTransitionTime: noon}},
			state: disruption.ResizeDeferred, since: noon.Time,
		},
		{
			name: "infeasible resize", all: []condition{{Type: pending, Status: yes, Reason: "Infeasible"}},
			state: disruption.ResizeInfeasible,
		},
		{
			name: "pending for an unknown reason", all: []condition{{Type: pending, Status: yes, Reason: "New"}},
			state: disruption.ResizeUnclear,
		},
		{name: "pending is false", all: []condition{{Type: pending, Status: no, Reason: "Infeasible"}}, state: disruption.NotResizing},
		{name: "resize in progress", all: []condition{{Type: progress, Status: yes}}, state: disruption.ResizeInProgress},
		{
			name: "resize error", all: []condition{{Type: progress, Status: yes, Reason: "Error", Message: "m"}},
			state: disruption.ResizeError,
		},
		{
			name: "in progress with an unknown reason", all: []condition{{Type: progress, Status: yes, Message: "m"}},
			state: disruption.ResizeUnclear,
		},
		{
			name: "deferred after in progress",
			all: []condition{
				{Type: progress, Status: yes, LastTransitionTime: earlier},
				{Type: pending, Status: yes, Reason: "Deferred", LastTransitionTime: noon},
			},
			state: disruption.ResizeDeferred, since: noon.Time,
		},
		{
			name: "deferred before in progress",
			all: []condition{
				{Type: pending, Status: yes, Reason: "Deferred", LastTransitionTime: noon},
				{Type: progress, Status: yes, LastTransitionTime: earlier},
			},
			state: disruption.ResizeDeferred, since: noon.Time,
		},
		{
			name: "pending without a status", all: []condition{{Type: pending, Status: "", Reason: "Deferred"}},
			state: disruption.NotResizing,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{}
			p.Status.Conditions = tc.all
			ready, state, since := conditions(p)
			require.Equal(t, tc.state, state)
			require.Equal(t, tc.since, since)
			require.Equal(t, tc.ready, ready)
		})
	}
}
