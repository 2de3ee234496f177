package actuate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/updater/snapshot"
)

// checkerFixture is a Checker for a Deployment with one ready pod.
type checkerFixture struct {
	*Checker
	kube    *fake.Clientset
	pod     *corev1.Pod
	vpa     *vpav1.VerticalPodAutoscaler
	now     time.Time
	created []*corev1.Pod // by dry runs
	refusal error
}

func newCheckerFixture(t *testing.T, others ...runtime.Object) *checkerFixture {
	t.Helper()
	live := livePod("ReplicaSet", "apps/v1")
	live.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	owner := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "owner",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: new(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()},
	}
	c := &checkerFixture{kube: fake.NewClientset(append(others, live, owner)...), pod: live, now: time.Unix(1e9, 0), vpa: &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{UID: "vpa", Generation: 1}}}
	c.kube.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		pod := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
		c.created = append(c.created, pod)
		return true, pod, c.refusal
	})
	c.Checker = &Checker{Kube: c.kube, Config: &disruption.Config{MinReplicas: 1, Tolerance: 0.5}, Clock: clockFunc(func() time.Time { return c.now })}
	return c
}

func (c *checkerFixture) scale(t *testing.T, n int32) {
	t.Helper()
	owner, err := c.kube.AppsV1().ReplicaSets("shop").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	owner.Spec.Replicas = &n
	_, err = c.kube.AppsV1().ReplicaSets("shop").Update(t.Context(), owner, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (c *checkerFixture) change() Change {
	return Change{
		Action: disruption.Action{Subject: disruption.Subject{Namespace: "shop", Pod: c.pod.Name, UID: string(c.pod.UID)}},
		Object: c.pod, Autoscaler: snapshot.NewVPA(c.vpa, &convert.LimitRanges{}),
	}
}

func (c *checkerFixture) requireBlocked(t *testing.T, err error) *BlockedError {
	t.Helper()
	var held *BlockedError
	require.ErrorAs(t, err, &held)
	return held
}

// Admission may name thousands of containers in a refusal, and events and logs repeat the text.
func TestCheck_TruncatesRefusals(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewForbidden(corev1.Resource("pods"), "web-", errors.New(strings.Repeat("container ", 1e5))),
		apierrors.NewInternalError(errors.New(strings.Repeat("container ", 1e5))),
	} {
		c := newCheckerFixture(t)
		c.refusal = refusal
		held := c.requireBlocked(t, c.Check(t.Context(), c.change()))
		require.Less(t, len(held.Error()), 1200)
		require.Contains(t, held.Error(), "container container")
	}
}

func TestPaused_VPAChangeEndsPauseAfterOneMinute(t *testing.T) {
	c := newCheckerFixture(t)
	c.refusal = apierrors.NewForbidden(corev1.Resource("pods"), "web-", errors.New("house rule"))
	for generation := range 200 {
		c.vpa.Generation = int64(generation)
		require.NoError(t, c.Paused(c.change()))
		require.Equal(t, reason.ReplacementRefused, c.requireBlocked(t, c.Check(t.Context(), c.change())).Reason)
		c.vpa.Generation++
		c.now = c.now.Add(30 * time.Second)
		require.Error(t, c.Paused(c.change()), "a VPA that changes all the time is checked once a minute")
		c.now = c.now.Add(30 * time.Second)
		require.NoError(t, c.Paused(c.change()))
	}
	require.Len(t, c.pauses.byKey, 1, "the generations of a VPA have one pause")
}

// A turn is shorter while other namespaces wait.
func TestPaused_IgnoresCheckCutByTurnEnd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		turn   time.Duration
		pauses bool
	}{
		{name: "turn shorter than a check", turn: 6 * time.Second},
		{name: "turn longer than a check", turn: time.Minute, pauses: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCheckerFixture(t)
				c.refusal = context.DeadlineExceeded
				c.kube.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
					time.Sleep(checkTimeout)
					return false, nil, nil
				})
				err := c.Check(fairwork.Turn(t.Context(), tc.turn), c.change())
				require.Equal(t, tc.pauses, c.Paused(c.change()) != nil)
				if tc.pauses {
					require.Equal(t, reason.ReplacementUnknown, c.requireBlocked(t, err).Reason)
				} else {
					require.ErrorIs(t, err, ErrTurnEnded)
				}
			})
		})
	}
}

// The plan may be a minute old when its last pod is evicted.
func TestCheck_ReadsCurrentEvictionProtection(t *testing.T) {
	c := newCheckerFixture(t)
	require.NoError(t, c.Check(t.Context(), c.change()))
	live := c.pod.DeepCopy()
	live.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
	_, err := c.kube.CoreV1().Pods("shop").Update(t.Context(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.now = c.now.Add(time.Minute)
	require.Equal(t, reason.ProtectedFromEviction, c.requireBlocked(t, c.Check(t.Context(), c.change())).Reason)
}

// Admission errors may quote user text with the same words.
func TestPaused_MissingPermissionPausesNamespace(t *testing.T) {
	pods := corev1.Resource("pods")
	for _, tc := range []struct {
		name    string
		refusal error
		paused  bool
	}{
		{name: "authorizer", refusal: apierrors.NewForbidden(pods, "", errors.New(`User "updater" cannot create resource "pods" in API group ""`)), paused: true},
		{name: "Pod Security", refusal: apierrors.NewForbidden(pods, "web-1", errors.New(`violates PodSecurity "baseline:latest": non-default capabilities (container "app" must not include "User "updater" cannot create resource "pods"" in securityContext.capabilities.add)`))},
		{name: "Pod Security, without name", refusal: apierrors.NewForbidden(pods, "", errors.New(`violates PodSecurity "baseline:latest": non-default capabilities (container "app" must not include "cannot create resource "pods"")`))},
		{name: "webhook", refusal: apierrors.NewForbidden(pods, "", errors.New(`admission webhook "images.example" denied the request: User "a" cannot create resource "pods"`))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCheckerFixture(t)
			c.refusal = tc.refusal
			require.Error(t, c.Check(t.Context(), c.change()))
			other := c.change()
			other.Object = c.pod.DeepCopy()
			other.Object.OwnerReferences[0].UID = "other"
			if !tc.paused {
				require.NoError(t, c.Paused(other))
				return
			}
			require.ErrorContains(t, c.Paused(other), "its role lacks the verb create on pods")
			elsewhere := other
			elsewhere.Object = other.Object.DeepCopy()
			elsewhere.Object.Namespace = "elsewhere"
			require.NoError(t, c.Paused(elsewhere))
			c.now = c.now.Add(forbiddenPause)
			require.NoError(t, c.Paused(other))
		})
	}
}

// A workload selector may match pods of other owners.
func TestCheck_ListsPodsInPages(t *testing.T) {
	for _, tc := range []struct {
		name          string
		pages         int
		ready, checks bool // last page has another ready pod of the owner
		lists         int
	}{
		{name: "few", pages: 2, ready: true, checks: true, lists: 3},
		{name: "few, none ready", pages: 2, lists: 3},
		{name: "more than are read", pages: 100, checks: true, lists: 11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCheckerFixture(t)
			c.Config.MinReplicas = 2
			var lists []metav1.ListOptions
			c.kube.PrependReactor("list", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				options := a.(ktesting.ListActionImpl).ListOptions
				lists = append(lists, options)
				if options.Limit == 0 {
					return true, &corev1.PodList{Items: []corev1.Pod{*c.pod}}, nil
				}
				require.EqualValues(t, podsPage, options.Limit)
				page := &corev1.PodList{}
				for range podsPage {
					page.Items = append(page.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}})
				}
				if options.Continue == "" {
					page.Items[0] = *c.pod
				}
				if len(lists) < tc.pages {
					page.Continue = fmt.Sprint(len(lists))
				} else if tc.ready {
					sibling := c.pod.DeepCopy()
					sibling.UID = "sibling"
					page.Items[1] = *sibling
				}
				return true, page, nil
			})
			err := c.Check(t.Context(), c.change())
			require.Len(t, lists, tc.lists)
			require.Equal(t, tc.checks, err == nil, err)
		})
	}
}

// Evicted pods are subtracted from the shared list.
func TestCheck_ConsecutiveEvictionsShareOnePodList(t *testing.T) {
	var others []runtime.Object
	for i := range 3 {
		pod := livePod("ReplicaSet", "apps/v1")
		pod.Name, pod.UID = fmt.Sprint("other-", i), types.UID(fmt.Sprint("other-", i))
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		others = append(others, pod)
	}
	c := newCheckerFixture(t, others...)
	c.scale(t, 4)
	lists := 0
	c.kube.PrependReactor("list", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.(ktesting.ListActionImpl).ListOptions.Limit > 0 {
			lists++
		}
		return false, nil, nil
	})
	for i, pod := range append(others, c.pod)[:3] {
		c.pod = pod.(*corev1.Pod)
		err := c.Check(t.Context(), c.change())
		if i < 2 {
			require.NoError(t, err)
			c.Evicted(c.pod)
			continue
		}
		require.Equal(t, reason.NoBudget, c.requireBlocked(t, err).Reason)
		require.ErrorContains(t, err, "ReplicaSet web has 2 live pods now, 2 of them ready")
	}
	require.Equal(t, 1, lists)
	c.now = c.now.Add(siblingAge)
	require.NoError(t, c.Check(t.Context(), c.change()), "the evicted pods are there")
	require.Equal(t, 2, lists)
}

// A boosted replacement has more CPU than the evicted pod, and less once the boost is over.
func TestCheck_AcceptsBoostedReplacement(t *testing.T) {
	for _, boosted := range []bool{true, false} {
		c := newCheckerFixture(t)
		c.pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		c.kube.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
			pod := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
			pod.Annotations = map[string]string{convert.ObservedAnnotation: pod.Spec.Containers[0].Name}
			if boosted {
				pod.Annotations[convert.BoostAnnotationPrefix+pod.Spec.Containers[0].Name] = "{}"
			}
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("800m")}
			return true, pod, nil
		})
		_, err := c.kube.CoreV1().Pods("shop").Update(t.Context(), c.pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		change := c.change()
		change.Containers = []policy.ContainerTarget{{Name: c.pod.Spec.Containers[0].Name, Requests: resources.List{}.With(resources.CPU, 200)}}
		if err = c.Check(t.Context(), change); boosted {
			require.NoError(t, err)
		} else {
			require.Equal(t, reason.ReplacementUnchanged, c.requireBlocked(t, err).Reason)
		}
	}
}

// Owner references of cached pods have no UID.
func TestCheck_ReadsOwnerUIDFromAPIServer(t *testing.T) {
	c := newCheckerFixture(t)
	cached := c.pod.DeepCopy()
	cached.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
	change := c.change()
	change.Object = cached
	require.NoError(t, c.Check(t.Context(), change))
	require.NotEmpty(t, c.created, "the replacement was checked")
	require.Equal(t, "owner", string(c.created[0].OwnerReferences[0].UID))
}

type clockFunc func() time.Time

func (f clockFunc) Now() time.Time { return f() }
