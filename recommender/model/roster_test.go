package model

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/target"
)

type fakeTargets func(namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error)

func (f fakeTargets) Resolve(_ context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	return f(namespace, ref)
}

func (fakeTargets) Recheck(string, *autoscalingv1.CrossVersionObjectReference) {}

// Backfill runs once and needs all selectors. The wait is bounded.
func TestObserveRead_WaitsForTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		readAfter := map[string]time.Duration{"at-once": 0, "late": 70 * time.Second}
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		add := func(name string) {
			require.NoError(t, indexer.Add(&vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
				Spec: vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Name: name}}}))
		}
		add("at-once")
		add("late")
		r := Roster{Name: DefaultRecommender, VPAs: listers.NewVerticalPodAutoscalerLister(indexer),
			Targets: fakeTargets(func(_ string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
				if ref.Name == "hanging" {
					return nil, fmt.Errorf("read it: %w", target.ErrHangs)
				}
				if after, known := readAfter[ref.Name]; !known || time.Since(began) < after {
					return nil, fmt.Errorf("read it: %w", target.ErrNotRead)
				}
				return labels.Everything(), nil
			})}
		observed, err := r.ObserveRead(t.Context())
		require.NoError(t, err)
		for _, o := range observed {
			require.NoError(t, o.Err, o.Object.Name)
		}
		require.Less(t, time.Since(began), 80*time.Second)

		add("hanging")
		began = time.Now()
		_, err = r.ObserveRead(t.Context())
		require.NoError(t, err)
		require.InDelta(t, maxHangWait, time.Since(began), float64(2*unreadRetryInterval), "a kind may hang for days")

		add("never")
		began = time.Now()
		observed, err = r.ObserveRead(t.Context())
		require.NoError(t, err)
		require.Len(t, observed, 4)
		require.ErrorIs(t, observed[3].Err, target.ErrNotRead)
		require.InDelta(t, maxUnreadWait, time.Since(began), float64(2*unreadRetryInterval), "others need not wait for ever")
	})
}

// Targets of a tenant may change all the time.
func TestObserveRead_LimitsDelayByOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		for _, namespace := range []string{"greedy", "shop"} {
			require.NoError(t, indexer.Add(&vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
				Spec: vpav1.VerticalPodAutoscalerSpec{TargetRef: &autoscalingv1.CrossVersionObjectReference{Name: "web"}}}))
		}
		r := Roster{Name: DefaultRecommender, VPAs: listers.NewVerticalPodAutoscalerLister(indexer),
			Targets: fakeTargets(func(namespace string, _ *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
				if namespace == "greedy" || time.Since(began) < time.Minute {
					return nil, target.ErrNotRead
				}
				return labels.Everything(), nil
			})}
		observed, err := r.ObserveRead(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, observed[0].Err, target.ErrNotRead)
		require.NoError(t, observed[1].Err)
		require.LessOrEqual(t, time.Since(began), time.Minute+10*time.Second)
	})
}
