package updater

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/updater/actuate"
)

var podResource = schema.GroupResource{Resource: "pods"}

// denial returns the error of the API server for a request denied by admission.
func denial(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Name: "web-1-x7k2p", Kind: "pods"},
	}}
}

func deniedByPolicy(string) error {
	return denial(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
		`pods "web-1-x7k2p" is forbidden: ValidatingAdmissionPolicy 'house' with binding 'house' denied request: memory is reserved in full`)
}

func onlyTemplates(deny func(string) error) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if pod.Spec.Containers[0].Resources.Requests.Memory().String() == "100Mi" {
			return nil
		}
		return deny(pod.GenerateName)
	}
}

func TestEvict_BlockedIfReplacementIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mode   vpav1.UpdateMode
		denied func(string) error
	}{
		{"policy, Recreate", vpav1.UpdateModeRecreate, deniedByPolicy},
		{"policy, Auto", vpav1.UpdateModeAuto, deniedByPolicy},
		{"policy, resize invalid", vpav1.UpdateModeInPlaceOrRecreate, deniedByPolicy},
		{"webhook with 400", vpav1.UpdateModeRecreate, func(string) error {
			return denial(http.StatusBadRequest, "", `admission webhook "rules.example" denied the request: too small`)
		}},
		{"webhook with 500", vpav1.UpdateModeRecreate, func(string) error {
			return denial(http.StatusInternalServerError, "", `admission webhook "rules.example" denied the request: too small`)
		}},
		{"pod security", vpav1.UpdateModeRecreate, func(name string) error {
			return apierrors.NewForbidden(podResource, name, errors.New(`violates PodSecurity "restricted:latest"`))
		}},
		{"validation", vpav1.UpdateModeRecreate, func(name string) error { return invalid(name) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), web(tc.mode, 4)...)
			if tc.mode == vpav1.UpdateModeInPlaceOrRecreate {
				w.refuse("patch", "pods", invalid("web-1-0"))
			}
			w.admit = onlyTemplates(tc.denied)
			held := 0.0
			for minute := range 60 {
				w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
				held += w.value("loadline_updater_skipped_pods", "reason", "ReplacementRefused")
			}
			require.Empty(t, w.evictions())
			require.NotZero(t, held)
			require.LessOrEqual(t, len(w.replaced), 12, "checks of a refused replacement are paused for longer each time")
			told := w.drainEvents()
			require.Contains(t, strings.Join(told, "\n"), "Warning ReplacementRefused ")
			require.Contains(t, strings.Join(told, "\n"), strings.ReplaceAll(tc.denied("web-1-").Error(), "web-1-x7k2p", "web-1-"), "the cause of the API server")

			w.admit = nil
			w.runOnce(noon.Add(3 * time.Hour))
			require.NotEmpty(t, w.evictions(), "the policy is gone")
		})
	}
}

// Another webhook or policy may set the resources of each new pod after Loadline's webhook.
func TestEvict_BlockedIfAdmissionRevertsResources(t *testing.T) {
	for _, tc := range []struct {
		name        string
		cpu, memory string // of each new pod
		evicts      bool
	}{
		{name: "both as before", cpu: "100m", memory: "100Mi"},
		{name: "both lower", cpu: "50m", memory: "50Mi"},
		{name: "memory alone as before", cpu: "200m", memory: "100Mi", evicts: true},
		{name: "a part of the increase", cpu: "100m", memory: "150Mi", evicts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
			w.admit = func(pod *corev1.Pod) error {
				pod.Spec.Containers[0].Resources.Requests = list(tc.cpu, tc.memory)
				return nil
			}
			w.runOnce(noon)
			if tc.evicts {
				require.NotEmpty(t, w.evictions())
				return
			}
			require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "ReplacementUnchanged"))
			for minute := range 60 {
				w.runOnce(noon.Add(time.Duration(minute) * time.Minute))
			}
			require.Empty(t, w.evictions())
			require.Contains(t, strings.Join(w.drainEvents(), "\n"), "Warning ReplacementUnchanged ")
			require.LessOrEqual(t, len(w.replaced), 12, "the checks are paused for longer each time")
		})
	}
}

func TestEvict_BlockedWhileReplacementIsUnchecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"internal error", apierrors.NewInternalError(errors.New("failed calling webhook"))},
		{"server timeout", apierrors.NewServerTimeout(podResource, "create", 1)},
		{"timeout", apierrors.NewTimeoutError("slow", 1)},
		{"too many requests", apierrors.NewTooManyRequests("later", 1)},
		{"no answer", errors.New("connection refused")},
		{"no permission", apierrors.NewForbidden(podResource, "", errors.New(`User "updater" cannot create resource "pods" in API group "" in the namespace "shop"`))},
		{"webhook with side effects", apierrors.NewBadRequest(`admission webhook "w" does not support dry run`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
			w.admit = func(*corev1.Pod) error { return tc.err }
			w.runOnce(noon)
			require.Empty(t, w.evictions())
			require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "ReplacementUnknown"))
			require.Contains(t, strings.Join(w.drainEvents(), "\n"), tc.err.Error())
			w.admit = nil
			w.runOnce(noon.Add(time.Minute))
			require.NotEmpty(t, w.evictions())
		})
	}
}

// A dry run counts both the evicted pod and its replacement.
func TestEvict_QuotaCountsOnlyReplacement(t *testing.T) {
	for _, tc := range []struct {
		name, excess string
		evicts       bool
	}{
		{"full count of pods", "requested: pods=1, used: pods=4, limited: pods=4", true},
		{"room once the pod is gone", "requested: requests.memory=200Mi, used: requests.memory=400Mi, limited: requests.memory=500Mi", true},
		{"too little room", "requested: pods=1,requests.memory=200Mi, used: pods=4,requests.memory=400Mi, limited: pods=9,requests.memory=450Mi", false},
		{"unreadable", "requested: pods=x, used: pods=4, limited: pods=4", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
			w.admit = func(pod *corev1.Pod) error {
				return apierrors.NewForbidden(podResource, pod.GenerateName, errors.New("exceeded quota: team, "+tc.excess))
			}
			w.runOnce(noon)
			require.Equal(t, tc.evicts, len(w.evictions()) > 0)
		})
	}
}

// The API server names only one of the quotas that a dry run exceeds.
func TestEvict_ChecksEveryQuotaForReplacement(t *testing.T) {
	quota := func(name string, scopes []corev1.ResourceQuotaScope, resourceName, used, hard string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ResourceQuotaSpec{Scopes: scopes},
			Status: corev1.ResourceQuotaStatus{
				Hard: corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(hard)},
				Used: corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(used)},
			},
		}
	}
	count := quota("count", nil, "pods", "4", "4")
	terminating := []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	for _, tc := range []struct {
		name   string
		second *corev1.ResourceQuota
		evicts bool
	}{
		{name: "both quotas have room after the eviction", second: quota("memory", nil, "requests.memory", "400Mi", "900Mi"), evicts: true},
		{name: "second quota is below its usage", second: quota("lowered", nil, "pods", "4", "3"), evicts: false},
		{name: "second quota covers other pods", second: quota("other", terminating, "pods", "4", "3"), evicts: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(web(vpav1.UpdateModeRecreate, 4), count, tc.second)...)
			w.admit = func(pod *corev1.Pod) error {
				return apierrors.NewForbidden(podResource, pod.GenerateName, errors.New("exceeded quota: count, requested: pods=1, used: pods=4, limited: pods=4"))
			}
			w.runOnce(noon)
			require.Equal(t, tc.evicts, len(w.evictions()) > 0)
			if !tc.evicts {
				require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "ReplacementRefused"))
			}
		})
	}
}

// The caches show four ready pods, the API server two.
func TestEvict_CountsPodsOfAPIServer(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
	now := &corev1.PodList{}
	for i := range 4 {
		pod := w.pod(fmt.Sprintf("web-1-%d", i)).DeepCopy()
		if i >= 2 {
			pod.Status.Conditions = nil
		}
		now.Items = append(now.Items, *pod)
	}
	w.kube.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, now, nil })
	w.runOnce(noon)
	for _, name := range w.evictions() {
		require.NotContains(t, []string{"web-1-0", "web-1-1"}, name, "the last ready pods")
	}
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "NoBudget"))
}

func TestResize_RestartCountsPodsOfAPIServer(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(4, restartsForMemory), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	now := &corev1.PodList{}
	for i := range 4 {
		pod := w.pod(fmt.Sprintf("web-1-%d", i)).DeepCopy()
		if i >= 2 {
			pod.Status.Conditions = nil
		}
		now.Items = append(now.Items, *pod)
	}
	w.kube.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, now, nil })
	w.runOnce(noon)
	for _, name := range []string{"web-1-0", "web-1-1"} {
		require.Equal(t, "100Mi", w.pod(name).Spec.Containers[0].Resources.Requests.Memory().String(), "one of the last ready pods")
	}
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "NoBudget"))
}

// A quota that also counts the evicted pod may answer before the webhook has set the resources.
func TestEvict_QuotaDoesNotHideRefusedResources(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
	w.admit = func(pod *corev1.Pod) error {
		if pod.Spec.Containers[0].Resources.Requests.Memory().String() != "100Mi" {
			return deniedByPolicy("")
		}
		return apierrors.NewForbidden(podResource, pod.GenerateName, errors.New("exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4"))
	}
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "ReplacementRefused"))
}

func TestEvict_BlockedIfOwnerIsGone(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
	w.kube.PrependReactor("list", "replicasets", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, &appsv1.ReplicaSetList{}, nil
	})
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "NoOwner"))
}

// The replacement would be refused as well. The API server accepts it here, to show that no
// eviction is attempted.
func TestResize_AdmissionRefusalDoesNotEvict(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"policy with 422", deniedByPolicy("")},
		{"webhook with 422", denial(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `admission webhook "w" denied the request: no`)},
		{"webhook with 400", denial(http.StatusBadRequest, "", `admission webhook "w" denied the request: no`)},
		{"webhook with 404", denial(http.StatusNotFound, metav1.StatusReasonNotFound, `admission webhook "w" denied the request: no`)},
		{"failed test of the patch", apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", podResource, "web-1-0", "testing value failed", 0, false)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 4)...)
			w.refuse("patch", "pods", tc.err)
			w.runOnce(noon)
			require.Empty(t, w.evictions())
			require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "ResizeRefused"))
		})
	}
}

func TestOversizedBudget_BlocksOnlyDisruptions(t *testing.T) {
	restarting := func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "large"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
	for i := range 101 {
		budget.Spec.Selector.MatchExpressions = append(budget.Spec.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: fmt.Sprint("key-", i), Operator: metav1.LabelSelectorOpExists})
	}
	for _, tc := range []struct {
		name   string
		mode   vpav1.UpdateMode
		change func(*corev1.Pod)
		held   bool
	}{
		{name: "eviction", mode: vpav1.UpdateModeRecreate, held: true},
		{name: "resize with restart", mode: vpav1.UpdateModeInPlaceOrRecreate, change: restarting, held: true},
		{name: "resize", mode: vpav1.UpdateModeInPlaceOrRecreate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(4, tc.change), autoscaler(tc.mode), budget)...)
			require.Eventually(t, func() bool { return w.caches.constraints.Policy().V1().PodDisruptionBudgets().Informer().HasSynced() }, 5*time.Second, time.Millisecond)
			w.runOnce(noon)
			require.Equal(t, tc.held, len(w.writes()) == 0)
			require.Equal(t, tc.held, w.value("loadline_updater_skipped_pods", "reason", "BudgetTooLarge") > 0)
		})
	}
}

func TestStaleCache_BlocksOnlyDisruptions(t *testing.T) {
	restarting := func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}
	for _, tc := range []struct {
		name   string
		mode   vpav1.UpdateMode
		change func(*corev1.Pod)
		held   bool
	}{
		{"eviction", vpav1.UpdateModeRecreate, nil, true},
		{"resize with restart", vpav1.UpdateModeInPlaceOrRecreate, restarting, true},
		{"resize", vpav1.UpdateModeInPlaceOrRecreate, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(4, tc.change), autoscaler(tc.mode))...)
			stale := errors.New("the watch of pods has received nothing for 4m0s")
			w.loop.stale = func() error { return stale }
			w.loop.runner.Executor.(*actuate.Cluster).Caches = staleWhen(w.loop.stale)
			w.runOnce(noon)
			require.Equal(t, tc.held, len(w.writes()) == 0)
			require.Equal(t, tc.held, w.value("loadline_updater_skipped_pods", "reason", "StaleCache") > 0)
			stale = nil
			w.runOnce(noon.Add(time.Minute))
			require.NotEmpty(t, w.writes())
		})
	}
}
