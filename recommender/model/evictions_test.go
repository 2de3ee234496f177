package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func evicted(uid string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid), Annotations: map[string]string{"offending_containers": "a", "offending_containers_usage": "1Mi", "starved_resource": "memory"}},
		Reason:         "Evicted",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"},
	}
}

func TestEvictions_CountsReplayedEventsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		opened := 0
		kube.PrependWatchReactor("events", func(clienttesting.Action) (bool, watch.Interface, error) {
			opened++
			if opened == 2 {
				return true, nil, errors.New("forbidden for a moment")
			}
			w := watch.NewFakeWithChanSize(3, false)
			w.Add(evicted("one")) // each watch replays the stored events
			if opened > 2 {
				w.Add(evicted("two"))
			}
			if opened < 4 {
				w.Stop()
			}
			return true, w, nil
		})
		ooms := &KillQueue{}
		ooms.confirm(evictedPod("p", ""))
		ctx, stop := context.WithCancel(t.Context())
		go NewEvictions(kube, "", ooms).Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 4, opened)
		got, _ := ooms.Drain()
		require.Len(t, got, 2)
		stop()
		synctest.Wait()
	})
}

func TestEvictions_IgnoresOtherEventTypes(t *testing.T) {
	kube := fake.NewClientset()
	w := watch.NewFakeWithChanSize(3, false)
	w.Modify(evicted("one"))
	w.Delete(evicted("two"))
	w.Action(watch.Error, runtime.Object(&metav1.Status{}))
	kube.PrependWatchReactor("events", clienttesting.DefaultWatchReactor(w, nil))
	ooms := &KillQueue{}
	ooms.confirm(evictedPod("p", ""))
	NewEvictions(kube, "", ooms).watchOnce(t.Context())
	got, _ := ooms.Drain()
	require.Empty(t, got)
}

// Any user with permission to create events can create many.
func TestEvictions_BoundsRememberedEvents(t *testing.T) {
	ooms := &KillQueue{}
	ooms.confirm(evictedPod("p", ""))
	e := NewEvictions(fake.NewClientset(), "", ooms)
	for i := range 5 * rememberedEvents {
		e.handle(evicted(strconv.Itoa(i)))
		harmless := evicted("harmless-" + strconv.Itoa(i))
		harmless.Annotations = nil
		e.handle(harmless)
	}
	require.LessOrEqual(t, len(e.seen.young)+len(e.seen.old), 2*rememberedEvents)
	ooms.Drain()
	for i := range rememberedEvents { // the latest are remembered
		e.handle(evicted(strconv.Itoa(5*rememberedEvents - 1 - i)))
	}
	again, dropped := ooms.Drain()
	require.Empty(t, again)
	require.Zero(t, dropped)
	e.handle(evicted("0"))
	again, _ = ooms.Drain()
	require.Len(t, again, 1, "it was forgotten")
}

func evictedPod(name string, uid types.UID) *corev1.Pod {
	p := aQueuedPod(name)
	p.UID, p.Status = uid, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	return p
}

// Any user may be able to create such events. An event counts only if the pod was evicted by the
// kubelet.
func TestEvictions_CountsEventsOfEvictedPodsOnly(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pod   func(*corev1.Pod)
		event func(*corev1.Event)
		want  int
	}{
		{name: "evicted", want: 1},
		{name: "event without the UID of the pod", event: func(e *corev1.Event) { e.InvolvedObject.UID = "" }, want: 1},
		{name: "event of the kubelet", event: func(e *corev1.Event) { e.Source.Component = "kubelet" }, want: 1},
		{name: "event of another program", event: func(e *corev1.Event) { e.Source.Component = "node-autoscaler" }},
		{name: "event in another namespace", event: func(e *corev1.Event) { e.Namespace = "other" }},
		{name: "event of an earlier pod of the name", event: func(e *corev1.Event) { e.InvolvedObject.UID = "earlier" }},
		{name: "running pod", pod: func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodRunning} }},
		{name: "running pod with the reason", pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
		{name: "failed for another reason", pod: func(p *corev1.Pod) { p.Status.Reason = "DeadlineExceeded" }},
		{name: "finished", pod: func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded} }},
	} {
		for _, eventFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, event first %t", tc.name, eventFirst), func(t *testing.T) {
				pod, event := evictedPod("p", "u1"), evicted("one")
				event.InvolvedObject.UID = "u1"
				if tc.pod != nil {
					tc.pod(pod)
				}
				if tc.event != nil {
					tc.event(event)
				}
				ooms := &KillQueue{}
				changes, events := NewChanges(ooms), NewEvictions(fake.NewClientset(), "", ooms)
				running := aQueuedPod("p")
				running.UID, running.ResourceVersion, pod.ResourceVersion = "u1", "1", "2"
				changes.OnAdd(running, true)
				steps := []func(){func() { events.handle(event) }, func() { changes.OnUpdate(running, pod) }}
				if !eventFirst {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					step()
				}
				events.handle(event)           // replayed by a new watch
				changes.OnUpdate(running, pod) // replayed by a new list
				changes.OnDelete(pod)          // the controller replaces it
				changes.OnAdd(running, false)  // under the same name
				got, dropped := ooms.Drain()
				require.Len(t, got, tc.want)
				require.Zero(t, dropped)
			})
		}
	}
}

// Several events may report the same eviction.
func TestEvictionOOMs_IdentifiesEvictionByPod(t *testing.T) {
	id := func(uid, pod, used string) string {
		e := evicted(uid)
		e.InvolvedObject.UID, e.Annotations[offendingUsageAnnotation] = types.UID(pod), used
		return EvictionOOMs(e)[0].ID
	}
	require.Equal(t, id("e1", "p1", "1Mi"), id("e2", "p1", "1Mi"))
	require.NotEqual(t, id("e1", "p1", "1Mi"), id("e2", "p2", "1Mi"))
	require.NotEqual(t, id("e1", "p1", "1Mi"), id("e2", "p1", "2Mi"))
}

func TestEvictions_BoundsPendingEvents(t *testing.T) {
	ooms := &KillQueue{}
	e := NewEvictions(fake.NewClientset(), "", ooms)
	for i := range 10 * maxClaims {
		e.handle(evicted(strconv.Itoa(i)))
	}
	ooms.confirm(evictedPod("p", "u"))
	got, _ := ooms.Drain()
	require.Len(t, got, maxClaims)
}
