package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// randomWorkload is a Deployment with random pods, a PodDisruptionBudget and an admission policy.
type randomWorkload struct {
	*world
	random    *rand.Rand
	replicas  int
	least     int             // ready pods that the PodDisruptionBudget demands
	refuses   bool            // the admission policy refuses replacements
	protected map[string]bool // pods that must not be evicted
	ready     atomic.Int32
	away      []*corev1.Pod // evicted and not replaced yet
	seen      int           // evictions so far
	fresh     int           // replacements so far
}

func newRandomWorkload(t *testing.T, seed uint64) *randomWorkload {
	r := &randomWorkload{random: rand.New(rand.NewPCG(seed, 37)), protected: map[string]bool{}}
	r.replicas = 2 + r.random.IntN(5)
	r.least, r.refuses = r.random.IntN(r.replicas+1), r.random.IntN(4) == 0
	modes := []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate}
	objects := append(deployment(r.replicas, func(p *corev1.Pod) {
		switch r.random.IntN(6) {
		case 0:
			p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		case 1:
			p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		default:
			return
		}
		r.protected[p.Name] = true
	}), autoscaler(modes[r.random.IntN(len(modes))]))
	r.world = newWorld(t, Default(), objects...)
	r.ready.Store(int32(r.replicas))
	if r.random.IntN(2) == 0 {
		r.refuse("patch", "pods", apierrors.NewBadRequest("not this one"))
	}
	r.kube.PrependReactor("create", "pods/eviction", func(a ktesting.Action) (bool, runtime.Object, error) {
		eviction := a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction)
		switch {
		case r.ready.Load() <= int32(r.least):
			return true, nil, apierrors.NewTooManyRequestsError("budget")
		case eviction.DeleteOptions == nil || len(eviction.DeleteOptions.DryRun) == 0:
			r.ready.Add(-1)
		}
		return false, nil, nil
	})
	r.kube.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		create, is := a.(ktesting.CreateActionImpl)
		if is && r.refuses && a.GetSubresource() == "" && len(create.CreateOptions.DryRun) > 0 {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", fmt.Errorf("denied by a policy"))
		}
		return false, nil, nil
	})
	return r
}

// iterate makes one loop iteration, checks what was evicted, and lets some replacements become ready.
func (r *randomWorkload) iterate(now time.Time) {
	r.pass(now)
	evicted := r.evictions()[r.seen:]
	r.seen += len(evicted)
	pods := r.kube.CoreV1().Pods("shop")
	for _, name := range evicted {
		require.False(r.t, r.protected[name], "%s is protected", name)
		require.False(r.t, r.refuses, "the replacement of %s is refused", name)
		r.away = append(r.away, r.pod(name))
		require.NoError(r.t, pods.Delete(r.t.Context(), name, metav1.DeleteOptions{}))
		require.Eventually(r.t, func() bool {
			_, err := r.caches.pods.Core().V1().Pods().Lister().Pods("shop").Get(name)
			return apierrors.IsNotFound(err)
		}, time.Minute, time.Millisecond)
	}
	require.GreaterOrEqual(r.t, int(r.ready.Load()), r.replicas-r.replicas/2, "ready pods")
	if len(evicted) > 0 {
		require.GreaterOrEqual(r.t, int(r.ready.Load()), r.least, "PodDisruptionBudget")
	}
	r.away = slices.DeleteFunc(r.away, func(gone *corev1.Pod) bool {
		if r.random.IntN(2) == 0 {
			return false
		}
		fresh := gone.DeepCopy()
		r.fresh++
		fresh.Name = fmt.Sprintf("new-%d", r.fresh)
		fresh.UID, fresh.ResourceVersion, fresh.CreationTimestamp = types.UID(fresh.Name), "", metav1.NewTime(now)
		fresh.Spec.Containers[0].Resources.Requests = list("200m", "200Mi")
		_, err := pods.Create(r.t.Context(), fresh, metav1.CreateOptions{})
		require.NoError(r.t, err)
		r.await("the new pod", func(*corev1.Pod) bool { return true }, fresh.Name)
		r.ready.Add(1)
		return true
	})
}

// Whatever pods, budgets and admission policies there are, no workload has fewer ready pods than its
// tolerance and its PodDisruptionBudget allow, and every replacement is admitted.
func TestUpdater_KeepsWorkloadsReady(t *testing.T) {
	evicted := 0
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRandomWorkload(t, seed)
			for minute := range 6 {
				r.iterate(noon.Add(time.Duration(minute) * time.Minute))
			}
			evicted += r.seen
		})
	}
	require.Greater(t, evicted, 10, "the worlds are not all at rest")
}
