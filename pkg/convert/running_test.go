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
	for name, c := range map[string]struct {
		all   []condition
		state disruption.ResizeState
		since time.Time
		ready bool
	}{
		"none":                   {nil, disruption.NotResizing, time.Time{}, false},
		"ready":                  {[]condition{{Type: ready, Status: yes}}, disruption.NotResizing, time.Time{}, true},
		"not ready":              {[]condition{{Type: ready, Status: no}}, disruption.NotResizing, time.Time{}, false},
		"deferred":               {[]condition{{Type: pending, Status: yes, Reason: "Deferred", LastTransitionTime: noon}}, disruption.ResizeDeferred, noon.Time, false},
		"infeasible":             {[]condition{{Type: pending, Status: yes, Reason: "Infeasible"}}, disruption.ResizeInfeasible, time.Time{}, false},
		"unknown reason":         {[]condition{{Type: pending, Status: yes, Reason: "New"}}, disruption.ResizeUnclear, time.Time{}, false},
		"over":                   {[]condition{{Type: pending, Status: no, Reason: "Infeasible"}}, disruption.NotResizing, time.Time{}, false},
		"in progress":            {[]condition{{Type: progress, Status: yes}}, disruption.ResizeInProgress, time.Time{}, false},
		"error":                  {[]condition{{Type: progress, Status: yes, Reason: "Error", Message: "m"}}, disruption.ResizeError, time.Time{}, false},
		"unknown progress":       {[]condition{{Type: progress, Status: yes, Message: "m"}}, disruption.ResizeUnclear, time.Time{}, false},
		"one after the other":    {[]condition{{Type: progress, Status: yes, LastTransitionTime: earlier}, {Type: pending, Status: yes, Reason: "Deferred", LastTransitionTime: noon}}, disruption.ResizeDeferred, noon.Time, false},
		"one before the other":   {[]condition{{Type: pending, Status: yes, Reason: "Deferred", LastTransitionTime: noon}, {Type: progress, Status: yes, LastTransitionTime: earlier}}, disruption.ResizeDeferred, noon.Time, false},
		"another kind of status": {[]condition{{Type: pending, Status: "", Reason: "Deferred"}}, disruption.NotResizing, time.Time{}, false},
	} {
		p := &corev1.Pod{}
		p.Status.Conditions = c.all
		ready, state, since := conditions(p)
		require.Equal(t, c.state, state, name)
		require.Equal(t, c.since, since, name)
		require.Equal(t, c.ready, ready, name)
	}
}
