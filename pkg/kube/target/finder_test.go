package target

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

type cluster struct {
	failures int   // number of calls of Topmost that fail first
	err      error // error of these calls, nil for a missing owner
	calls    int

	selectors int // number of selectors created
}

func (c *cluster) Topmost(_ context.Context, start Key) (Key, bool, error) {
	c.calls++
	if c.calls <= c.failures && c.err != nil {
		return Key{}, false, c.err
	}
	if c.calls <= c.failures {
		return Key{}, false, errors.New("ReplicaSet web-1 does not exist")
	}
	return Key{Namespace: start.Namespace, Kind: "Deployment", Name: "web"}, true, nil
}

func (c *cluster) Select(_ context.Context, _ string, _ *autoscalingv1.CrossVersionObjectReference, before *Selection) (*Selection, error) {
	if before != nil {
		return before, nil
	}
	c.selectors++
	return &Selection{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, nil
}

func TestFind_FollowsVPAChanges(t *testing.T) {
	pod := testkit.Pod("p")
	known := &cluster{}
	f := NewFinder(t.Context(), known)
	h := f.Handler(func(Key) { t.Error("a Deployment needs no reading") })
	vpa := testkit.VPA("v")
	h.OnAdd(vpa, true)
	got, err := f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.Same(t, vpa, got)
	_, err = f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.Equal(t, 1, known.selectors, "the selector is made once")

	newer := testkit.VPA("v", testkit.Recommend("c", "cpu=1"))
	h.OnUpdate(vpa, newer)
	got, err = f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.Same(t, newer, got)

	h.OnUpdate(newer, testkit.VPA("v", testkit.Mode(vpav1.UpdateModeOff)))
	got, err = f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.Nil(t, got, "mode Off gives new pods nothing")

	h.OnAdd(vpa, false)
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "default/v", Obj: vpa})
	h.OnDelete(vpa)
	got, err = f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.Nil(t, got)
	require.Empty(t, f.namespaces)
}

func TestFind_ReturnsControllingVPA(t *testing.T) {
	for _, c := range testkit.AllRivals() {
		f := NewFinder(t.Context(), &cluster{})
		for _, vpa := range c.VPAs {
			f.Put(vpa)
		}
		got, err := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
		require.NoError(t, err, c.Name)
		if got == nil {
			got = &vpav1.VerticalPodAutoscaler{}
		}
		require.Equal(t, c.Webhook, got.Name, c.Name)
	}
}

func TestFind_NextVPAControlsAfterRemoval(t *testing.T) {
	f := NewFinder(t.Context(), &cluster{})
	first, second := testkit.VPA("a"), testkit.VPA("b")
	f.Put(first)
	f.Put(second)
	got, err := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
	require.NoError(t, err)
	gone, left := first, second
	if got == second {
		gone, left = second, first
	}
	f.Remove(cache.MetaObjectToName(gone))
	got, err = f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
	require.NoError(t, err)
	require.Same(t, left, got)
	require.True(t, f.Serves(testkit.Namespace, false))
	f.Remove(cache.MetaObjectToName(left))
	require.False(t, f.Serves(testkit.Namespace, false))
}

// The pods of a VPA in mode Off need no decision.
func TestFinder_DoesNotReadTargetsOfIdleVPAs(t *testing.T) {
	var wanted []Key
	h := NewFinder(t.Context(), &cluster{}).Handler(func(key Key) { wanted = append(wanted, key) })
	rollout := func(v *vpav1.VerticalPodAutoscaler) {
		v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: v.Name}
	}
	h.OnAdd(testkit.VPA("idle", rollout, testkit.Mode(vpav1.UpdateModeOff)), true)
	h.OnAdd(testkit.VPA("acting", rollout), true)
	require.Equal(t, []Key{{Namespace: testkit.Namespace, Group: "argoproj.io", Kind: "Rollout", Name: "acting"}}, wanted)
}

// A generated VPA has mode Off, and its policy determines its effect. A user VPA takes precedence,
// even in mode Off.
func TestFind_UserVPAOverridesGeneratedVPA(t *testing.T) {
	c := &cluster{}
	f := NewFinder(t.Context(), c)
	made := testkit.VPA(fleet.GeneratedVPAName("Deployment", "apps", "web"), testkit.Mode(vpav1.UpdateModeOff), func(v *vpav1.VerticalPodAutoscaler) {
		v.Labels = map[string]string{fleet.PolicyLabel: "fleet"}
	})
	off := testkit.VPA("off", testkit.Mode(vpav1.UpdateModeOff))
	find := func() *vpav1.VerticalPodAutoscaler {
		got, err := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
		require.NoError(t, err)
		return got
	}
	f.Put(off)
	require.Nil(t, find())
	require.Zero(t, c.calls+c.selectors, "for a VPA that is Off nobody reads anything")
	require.False(t, f.Serves(testkit.Namespace, true))
	require.Empty(t, f.Namespaces())
	f.Put(made)
	require.Nil(t, find())
	require.False(t, f.Serves(testkit.Namespace, false))
	require.True(t, f.Serves(testkit.Namespace, true))
	require.Equal(t, []string{testkit.Namespace}, f.Namespaces())
	old := testkit.VPA("off", testkit.Mode(vpav1.UpdateModeOff))
	old.Spec.TargetRef.APIVersion = "apps/v1beta2"
	f.Put(old)
	require.Nil(t, find(), "whichever version the target is of")
	f.Remove(cache.MetaObjectToName(off))
	require.Same(t, made, find())
	writes := testkit.VPA("writes")
	f.Put(writes)
	f.Put(off)
	require.Same(t, writes, find())
	for _, vpa := range []*vpav1.VerticalPodAutoscaler{made, writes, off} {
		f.Remove(cache.MetaObjectToName(vpa))
	}
	require.Empty(t, f.namespaces)
}

func TestFind_StaticPodsHaveNoVPA(t *testing.T) {
	f := NewFinder(t.Context(), &cluster{})
	f.Put(testkit.VPA("v", func(v *vpav1.VerticalPodAutoscaler) {
		v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"}
	}))
	pod := testkit.Pod("p")
	pod.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", Controller: new(true)}
	got, err := f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestFind_NamespaceWithoutVPAMakesNoCalls(t *testing.T) {
	c := &cluster{}
	f := NewFinder(t.Context(), c)
	f.Put(testkit.VPA("v"))
	got, err := f.Find(t.Context(), "elsewhere", testkit.Pod("p"))
	require.NoError(t, err)
	require.Nil(t, got)
	orphan := testkit.Pod("p")
	orphan.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "no controller field"}}
	got, err = f.Find(t.Context(), testkit.Namespace, orphan)
	require.NoError(t, err, "an owner that is no controller counts as none")
	require.Nil(t, got)
	require.Zero(t, c.calls)
}

func TestFind_RetriesUnknownOwner(t *testing.T) {
	late := &cluster{failures: 2}
	f := NewFinder(t.Context(), late)
	f.Put(testkit.VPA("v"))
	got, err := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Equal(t, 3, late.calls, "and no more once it is known")

	f = NewFinder(t.Context(), &cluster{failures: 100})
	f.Put(testkit.VPA("v"))
	_, err = f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
	require.ErrorContains(t, err, "find the topmost controller above ReplicaSet web-1: ReplicaSet web-1 does not exist")
}

func TestFind_WaitsForJustAdmittedVPA(t *testing.T) {
	never := time.Hour
	for _, tc := range []struct {
		name          string
		shown, arrive time.Duration // when the informer shows the VPA and when the pod arrives, relative to the admission
		idle, found   bool
		waits         time.Duration
	}{
		{name: "shown before the pod", arrive: time.Millisecond, found: true},
		{name: "shown a moment later", shown: 50 * time.Millisecond, arrive: time.Millisecond, found: true, waits: 80 * time.Millisecond},
		{name: "refused after its admission", shown: never, arrive: time.Millisecond, waits: 200 * time.Millisecond},
		{name: "refused some time ago", shown: never, arrive: admittedLifetime},
		{name: "of mode Off", idle: true, shown: never, arrive: time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFinder(t.Context(), &cluster{})
				vpa := testkit.VPA("v")
				if tc.idle {
					vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
				}
				f.RecordAdmission(vpa, time.Now())
				if tc.shown != never {
					time.AfterFunc(tc.shown, func() { f.Put(vpa) })
				}
				time.Sleep(tc.arrive)
				began := time.Now()
				got, err := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
				require.NoError(t, err)
				require.Equal(t, tc.found, got != nil)
				require.Equal(t, tc.waits, time.Since(began))
				f.RecordAdmission(testkit.VPA("another"), time.Now().Add(admittedLifetime))
				require.Len(t, f.admitted[testkit.Namespace], 1, "the notes of VPAs that did not come end")
			})
		})
	}
}

func TestRecordAdmission_IsBoundedPerNamespace(t *testing.T) {
	f := NewFinder(t.Context(), &cluster{})
	for i := range 1000 {
		f.RecordAdmission(testkit.VPA(fmt.Sprint("v", i)), time.Now())
	}
	require.Len(t, f.admitted[testkit.Namespace], maxAdmitted)
	other := testkit.VPA("known")
	other.Namespace = "other"
	f.Put(other)
	f.RecordAdmission(other, time.Now())
	require.False(t, f.hasPendingVPA("other"))
}

// Any user can create pods with nonexistent owners. While they wait, they occupy answers that pods
// of other namespaces need.
func TestFind_BoundsPodsWaitingForOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFinder(t.Context(), absent{})
		f.Put(testkit.VPA("v"))
		other := testkit.VPA("v")
		other.Namespace = "other"
		f.Put(other)
		var waited, refused atomic.Int32
		search := func(namespace string) {
			began := time.Now()
			_, err := f.Find(t.Context(), namespace, testkit.Pod("p"))
			assert.ErrorContains(t, err, "does not exist")
			if time.Since(began) > 0 {
				waited.Add(1)
			} else {
				refused.Add(1)
				assert.ErrorContains(t, err, "20 other pods of namespace default already wait for their owners")
			}
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { search(testkit.Namespace) })
		}
		synctest.Wait()
		require.EqualValues(t, 80, refused.Load())
		all.Go(func() { search("other") })
		all.Wait()
		require.EqualValues(t, 21, waited.Load())
		require.Empty(t, f.waiting)
		search(testkit.Namespace)
		require.EqualValues(t, 22, waited.Load())
	})
}

type absent struct{ TopmostResolver }

func (absent) Topmost(context.Context, Key) (Key, bool, error) {
	return Key{}, false, errors.New("ReplicaSet web-1 does not exist")
}

// The API server would repeat such an error, so the pod must not wait for a retry.
func TestFind_DoesNotRetryPermanentErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
	}{
		{name: "forbidden", err: apierrors.NewForbidden(schema.GroupResource{Resource: "rollouts"}, "web", nil)},
		{name: "no such kind", err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Rollout"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &cluster{failures: 100, err: fmt.Errorf("read the scale subresource of Rollout web: %w", tc.err)}
			f := NewFinder(t.Context(), c)
			f.Put(testkit.VPA("v"))
			_, got := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
			require.ErrorIs(t, got, tc.err)
			require.Equal(t, 1, c.calls)
		})
	}
}

func TestFind_IgnoresVPAWithoutTarget(t *testing.T) {
	f := NewFinder(t.Context(), &cluster{})
	f.Put(testkit.VPA("v", func(v *vpav1.VerticalPodAutoscaler) { v.Spec.TargetRef = nil }))
	got, err := f.Find(t.Context(), testkit.Namespace, testkit.Pod("p"))
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestFind_IgnoresOwnerWithoutControllerField(t *testing.T) {
	f := NewFinder(t.Context(), &cluster{})
	f.Put(testkit.VPA("v"))
	pod := testkit.Pod("p")
	pod.OwnerReferences = append([]metav1.OwnerReference{{Kind: "ReplicaSet", Name: "before the true one"}}, pod.OwnerReferences...)
	got, err := f.Find(t.Context(), testkit.Namespace, pod)
	require.NoError(t, err)
	require.NotNil(t, got)
}

// The caches of updater and recommender drop the labels of such pods, so no VPA controls them. The
// webhook must not size them either.
func TestFind_SkipsPodsThatCachesCannotHold(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		found  bool
	}{
		{"100 labels", func(p *corev1.Pod) { addLabels(p, 99, "") }, true},
		{"101 labels", func(p *corev1.Pod) { addLabels(p, 100, "") }, false},
		{"labels above 8 KiB", func(p *corev1.Pod) { addLabels(p, 90, strings.Repeat("x", 100)) }, false},
		{"301 containers", func(p *corev1.Pod) { p.Spec.Containers = make([]corev1.Container, 301) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := testkit.Pod("p")
			tc.change(pod)
			f := NewFinder(t.Context(), &cluster{})
			f.Put(testkit.VPA("v"))
			vpa, err := f.Find(t.Context(), testkit.Namespace, pod)
			require.NoError(t, err)
			require.Equal(t, tc.found, vpa != nil)

			stored, err := client.Trim(pod)
			require.NoError(t, err)
			cached, ok := client.PodOf(stored)
			require.True(t, ok)
			_, controlled := f.index.Controlling(Key{Namespace: testkit.Namespace, Kind: "Deployment", Name: "web"}, cached.Labels)
			require.Equal(t, tc.found, controlled, "as in the caches")
		})
	}
}

func addLabels(pod *corev1.Pod, n int, value string) {
	for i := range n {
		pod.Labels[fmt.Sprintf("label-%d", i)] = value
	}
}
