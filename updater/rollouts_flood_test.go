package updater

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

func forgedNotes(namespace string, pods int) (objects []runtime.Object) {
	for i := range pods {
		name := fmt.Sprintf("forged-%d", i)
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Annotations: map[string]string{
			convert.ResizedAtAnnotation: time.Now().UTC().Format(time.RFC3339),
			convert.OriginalAnnotation:  `{"app":{"requests":{"cpu":"64"},"limits":{},"target":{}}}`,
		}}})
	}
	return objects
}

// The revert comes within seconds. The observer runs in a process that did not make the change.
func TestRevert_ForgedNotesDoNotDelay(t *testing.T) {
	const forged = 300
	for _, tc := range []struct {
		name      string
		namespace string // of the flood
		behind    bool   // the cache of records lags behind that of pods
	}{
		{name: "in another namespace", namespace: "attacker"},
		{name: "in the same namespace, with a cache that is behind", namespace: "shop", behind: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling(t, 2, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), forgedNotes(tc.namespace, forged)...)
			late := watch.NewFake()
			if tc.behind {
				r.vpa.PrependWatchReactor("sizingrecords", func(ktesting.Action) (bool, watch.Interface, error) { return true, late, nil })
			}
			other := r.secondLeader()
			r.runOnce(time.Now().UTC())
			r.settled("web-1-0")
			require.Equal(t, "50m 50Mi", r.requests("web-1-0"))
			r.restarted("web-1-0", 2)
			other.await("the note and the harm", func(p *corev1.Pod) bool { return convert.HasNotedChange(p) && len(p.Status.ContainerStatuses) > 0 }, "web-1-0")

			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { other.observer.Run(ctx) })
			defer running.Wait()
			defer stop()
			if tc.behind {
				time.Sleep(500 * time.Millisecond)
				record, err := r.vpa.LoadlineV1alpha1().SizingRecords("shop").Get(ctx, "deployment-web", metav1.GetOptions{})
				require.NoError(t, err)
				late.Add(record)
			}
			require.Eventually(t, func() bool { return r.requests("web-1-0") == "100m 100Mi" }, 10*time.Second, 10*time.Millisecond)
			all, err := r.kube.CoreV1().Pods(tc.namespace).List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			left := 0
			for i := range all.Items {
				if all.Items[i].Name != "web-1-0" && convert.HasNotedChange(&all.Items[i]) {
					left++
				}
			}
			require.Greater(t, left, forged/2, "the flood goes on")
		})
	}
}
