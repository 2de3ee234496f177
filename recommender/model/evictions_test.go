package model

import (
	"context"
	"errors"
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

func TestReplayedEventsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		opened := 0
		kube.PrependWatchReactor("events", func(clienttesting.Action) (bool, watch.Interface, error) {
			opened++
			if opened == 2 {
				return true, nil, errors.New("forbidden for a moment")
			}
			w := watch.NewFakeWithChanSize(3, false)
			w.Add(evicted("one")) // each watch begins with what the server still has
			if opened > 2 {
				w.Add(evicted("two"))
			}
			if opened < 4 {
				w.Stop()
			}
			return true, w, nil
		})
		ooms := &OOMs{}
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

func TestOtherEventTypesAreIgnored(t *testing.T) {
	kube := fake.NewClientset()
	w := watch.NewFakeWithChanSize(3, false)
	w.Modify(evicted("one"))
	w.Delete(evicted("two"))
	w.Action(watch.Error, runtime.Object(&metav1.Status{}))
	kube.PrependWatchReactor("events", clienttesting.DefaultWatchReactor(w, nil))
	ooms := &OOMs{}
	NewEvictions(kube, "", ooms).once(t.Context())
	got, _ := ooms.Drain()
	require.Empty(t, got)
}

// Anybody who may write events can write many.
func TestManyEventsTakeABoundedMemory(t *testing.T) {
	ooms := &OOMs{}
	e := NewEvictions(fake.NewClientset(), "", ooms)
	for i := range 5 * rememberedEvents {
		e.take(evicted(strconv.Itoa(i)))
		harmless := evicted("harmless-" + strconv.Itoa(i))
		harmless.Annotations = nil
		e.take(harmless)
	}
	require.LessOrEqual(t, len(e.seen.young)+len(e.seen.old), 2*rememberedEvents)
	ooms.Drain()
	for i := range rememberedEvents { // the latest are known, though others come between them
		e.take(evicted(strconv.Itoa(5*rememberedEvents - 1 - i)))
	}
	again, dropped := ooms.Drain()
	require.Empty(t, again)
	require.Zero(t, dropped)
	e.take(evicted("0"))
	again, _ = ooms.Drain()
	require.Len(t, again, 1, "it was forgotten")
}
