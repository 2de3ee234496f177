package updater

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	logtesting "k8s.io/klog/v2/ktesting"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/report"
)

func TestResize_InPlaceWithinBudget(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 2)...)
	w.runOnce(noon)

	require.Equal(t, []string{"patch pods resize", "patch pods "}, w.writes(), "one of two may be away at once")
	pod := w.pod("web-1-0")
	resources := pod.Spec.Containers[0].Resources
	require.Equal(t, "200m", resources.Requests.Cpu().String())
	require.Equal(t, "200Mi", resources.Requests.Memory().String())
	require.Equal(t, "400Mi", resources.Limits.Memory().String(), "the limit keeps its proportion")
	require.NotContains(t, resources.Limits, corev1.ResourceCPU)
	require.Equal(t, "true", pod.Annotations["vpaInPlaceUpdated"])
	events := w.drainEvents()
	require.Len(t, events, 1)
	require.True(t, strings.HasPrefix(events[0], "Normal InPlaceResizedByVPA Resized in place to the recommendation of VPA web-vpa (OutOfBounds): cpu up, memory up "), events[0])
	require.Contains(t, events[0], "app cpu 100m -> 200m, app memory 100Mi -> 200Mi, app limit memory 200Mi -> 400Mi")

	labels := []string{"vpa_size_log2", "1", "vpa_name", "web-vpa", "vpa_namespace", "shop"}
	require.EqualValues(t, 1, w.value("vpa_updater_in_place_updated_pods_total", labels...))
	require.EqualValues(t, 2, w.value("vpa_updater_in_place_updatable_pods_total", "vpa_size_log2", "1"))
	require.EqualValues(t, 2, w.value("vpa_updater_controlled_pods_total", "update_mode", "InPlaceOrRecreate"))
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "BudgetSpent"))

	w.await("the resize", func(p *corev1.Pod) bool { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() == 200 }, "web-1-0")
	w.kube.ClearActions()
	w.runOnce(noon.Add(time.Minute))
	require.Equal(t, "200m", w.pod("web-1-1").Spec.Containers[0].Resources.Requests.Cpu().String())
	w.kube.ClearActions()
	w.await("the resize", func(p *corev1.Pod) bool { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() == 200 }, "web-1-1")
	w.runOnce(noon.Add(2 * time.Minute))
	require.Empty(t, w.writes(), "nothing is left to do")
	require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "Unchanged"))
	w.runOnce(noon.Add(3 * time.Minute))
	events = w.drainEvents()
	require.Len(t, events, 2)
	require.Equal(t, "Normal Resized Resized 2 pods in place: OutOfBounds 2", events[1], "one event for the round")
}

func TestEviction_SendsUIDPrecondition(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeAuto, 4)...)
	w.runOnce(noon)
	require.Equal(t, []string{"web-1-0", "web-1-1"}, w.evictions())
	require.EqualValues(t, "uid-0", *w.evicted[0].DeleteOptions.Preconditions.UID)
	events := map[string]int{}
	for _, e := range w.drainEvents() {
		text, _, _ := strings.Cut(e, " map[")
		events[text]++
	}
	require.Equal(t, map[string]int{
		"Normal EvictedByVPA Evicted to apply the recommendation of VPA web-vpa (OutOfBounds): cpu up, memory up": 2,
		"Normal EvictedPod Evicted a pod (OutOfBounds): cpu up, memory up":                                        2,
	}, events, "the text is the same for each pod, so that events are counted up")
	require.EqualValues(t, 2, w.value("vpa_updater_evicted_pods_total", "update_mode", "Auto", "vpa_size_log2", "2"))
	require.EqualValues(t, 4, w.value("vpa_updater_evictable_pods_total", "update_mode", "Auto"))
	require.EqualValues(t, 1, w.value("vpa_updater_vpas_with_evicted_pods_total", "update_mode", "Auto"))
}

func invalid(name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
}

func TestResize_RefusalEvictsInSameIteration(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 2)...)
	w.refuse("patch", "pods", invalid("web-1-0"))
	w.runOnce(noon)
	require.Equal(t, []string{"web-1-0"}, w.evictions(), "the budget is for one")
	require.EqualValues(t, 1, w.value("vpa_updater_failed_in_place_update_attempts_total", "reason", "InPlaceUpdateError"))
}

func TestResize_ServerErrorDoesNotEvict(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 2)...)
	w.refuse("patch", "pods", apierrors.NewInternalError(errors.New("etcd is away")))
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "ResizeRefused"))
}

func TestInPlaceMode_NeverEvicts(t *testing.T) {
	config := Default()
	config.Gates.InPlace = true
	w := newWorld(t, config, web(vpav1.UpdateModeInPlace, 2)...)
	full := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1-0", errors.New("node n1 is too small"))
	full.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NodeCapacity"}}
	w.refuse("patch", "pods", full)
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.EqualValues(t, 1, w.value("vpa_updater_failed_in_place_update_attempts_total", "reason", "InPlaceUpdateInfeasible"))

	w.kube.ClearActions()
	w.runOnce(noon.Add(time.Minute))
	require.Equal(t, []string{"patch pods resize"}, w.writes(), "the first pod is not asked for again, the second is")
	require.EqualValues(t, 1, w.value("vpa_updater_in_place_infeasible_skip_pods_total", "vpa_name", "web-vpa"))
	require.Contains(t, w.drainEvents()[0], "Normal InPlaceResizeSkipped ")
}

func TestResize_InfeasibleFallsBackToEviction(t *testing.T) {
	config := Default()
	config.Disruption.MinReplicas = 1
	w := newWorld(t, config, web(vpav1.UpdateModeInPlaceOrRecreate, 1)...)
	full := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-1-0", errors.New("node n1 is too small"))
	full.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NodeCapacity"}}
	w.refuse("patch", "pods", full)
	w.refuse("create", "pods/eviction", apierrors.NewTooManyRequestsError("budget"))
	w.runOnce(noon)
	w.kube.ClearActions()
	w.runOnce(noon.Add(time.Minute))
	require.Equal(t, []string{"create pods eviction"}, w.writes(), "the resize is known to be refused")
}

func TestEviction_RetriesWhenBlockedByBudget(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	w.refuse("create", "pods/eviction", apierrors.NewTooManyRequestsError("Cannot evict pod as it would violate the pod's disruption budget."))
	w.runOnce(noon)
	require.EqualValues(t, 2, w.value("vpa_updater_failed_eviction_attempts_total", "reason", "EvictionError"), "the pod that waits for the other counts, too")
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "EvictionRefused"))
	require.Empty(t, w.drainEvents())

	w.kube.ReactionChain = w.kube.ReactionChain[1:]
	w.runOnce(noon.Add(time.Minute))
	require.Equal(t, []string{"web-1-0"}, w.evictions())
}

func TestLoop_RequiresAdmissionController(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	beat := lease.Heartbeat{Client: w.kube.CoordinationV1(), Namespace: "kube-system", Name: "vpa-admission-controller"}
	pulse := lease.Monitor{Heartbeat: &beat, Timeout: time.Minute}
	w.loop.alive = pulse.Alive
	w.runOnce(noon)
	require.EqualValues(t, 1, w.value("vpa_updater_admission_controller_status_invalid_total", "reason", "error"))

	stale := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-admission-controller", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: noon.Add(-time.Minute)}}}
	require.NoError(t, w.kube.Tracker().Add(stale))
	w.runOnce(noon)
	require.EqualValues(t, 1, w.value("vpa_updater_admission_controller_status_invalid_total", "reason", "invalid"))
	require.Empty(t, w.evictions())

	stale.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-50 * time.Minute)}
	require.NoError(t, w.kube.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), stale, "kube-system"))
	w.runOnce(noon.Add(time.Minute))
	require.Len(t, w.evictions(), 1, "it beats, only its clock is wrong")
}

func TestRateLimit_EndsIteration(t *testing.T) {
	config := Default()
	config.Disruption.Rate, config.Disruption.Burst = 0.0001, 1
	w := newWorld(t, config, web(vpav1.UpdateModeRecreate, 8)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.loop.RunOnce(ctx, noon)
	require.Equal(t, []string{"web-1-0"}, w.evictions())
	require.EqualValues(t, 3, w.value("loadline_updater_skipped_pods", "reason", "RateLimited"))
	require.EqualValues(t, 1, w.value("vpa_updater_failed_eviction_attempts_total", "reason", "EvictionRateLimiterWaitFailed"))
}

func TestDryRun_WritesNothing(t *testing.T) {
	var out strings.Builder
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 2)...)
	w.loop.setExecutor(&actuate.DryRun{Out: &out})
	w.loop.skips = report.Skips{}
	w.runOnce(noon)
	require.Empty(t, w.writes())
	require.Empty(t, w.drainEvents())
	require.Equal(t, "evictions wait for a node with free capacity, because no node autoscaler was detected\nwould resize pod shop/web-1-0 (VPA web-vpa, OutOfBounds): app cpu 100m -> 200m, app memory 100Mi -> 200Mi, app limit memory 200Mi -> 400Mi\nwould skip pod shop/web-1-1 (VPA web-vpa): BudgetSpent\n", out.String())
	w.runOnce(noon.Add(time.Minute))
	require.Equal(t, 1, strings.Count(out.String(), "would skip"), "what was said is not said again")
	require.Zero(t, w.value("vpa_updater_in_place_updated_pods_total", "vpa_name", "web-vpa"))
}

// The skipped pods are counted, and the log has the stack trace.
func TestPlan_ReportsPanicOfVPA(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	it, err := w.loop.read(t.Context(), noon, func(string) {})
	require.NoError(t, err)
	logger := logtesting.NewLogger(t, logtesting.NewConfig(logtesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), logger)
	it.plan = disruption.Result{
		Problems: []disruption.Problem{{Namespace: "shop", VPA: "web-vpa", Panic: "panic: a bug\nits stack"}},
		Skipped:  []disruption.Skip{{Subject: disruption.Subject{Namespace: "shop", VPA: "web-vpa", Pod: "web-1-0"}, Reason: reason.InternalError}},
	}
	it.logProblems(ctx)
	it.scores = w.loop.newScores(it)
	w.loop.publish(ctx, it, nil, noon)
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "InternalError"))
	log := logger.GetSink().(logtesting.Underlier).GetBuffer().String()
	require.Regexp(t, `(?s)Skipping the pods of a VPA: recovered from a panic.*vpa="shop/web-vpa"`, log)
	require.Contains(t, log, "a bug")
	require.Contains(t, log, "its stack")
}

func TestEviction_NotFoundIsNoFailure(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	w.refuse("create", "pods/eviction", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1-0"))
	w.runOnce(noon)
	require.Zero(t, w.value("vpa_updater_failed_eviction_attempts_total", "reason", "EvictionError"))
	require.Empty(t, w.drainEvents())
}

type panickingExecutor struct{ actuate.Executor }

func (c panickingExecutor) Evict(ctx context.Context, change actuate.Change) error {
	if change.Pod == "web-1-0" {
		panic("a bug")
	}
	return c.Executor.Evict(ctx, change)
}

func TestRun_ContinuesAfterPanic(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
	w.loop.setExecutor(panickingExecutor{w.loop.runner.Executor})
	w.runOnce(noon)
	require.Equal(t, []string{"web-1-1"}, w.evictions())
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "InternalError"))
}

func TestMetrics_RemoveCountersOfDeletedVPAs(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 2)...)
	w.runOnce(noon)
	require.EqualValues(t, 1, w.value("vpa_updater_evicted_pods_total", "vpa_name", "web-vpa"))
	require.NoError(t, w.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Delete(t.Context(), "web-vpa", metav1.DeleteOptions{}))
	lister := w.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister()
	require.Eventually(t, func() bool {
		_, err := lister.VerticalPodAutoscalers("shop").Get("web-vpa")
		return apierrors.IsNotFound(err)
	}, time.Minute, 5*time.Millisecond)
	w.runOnce(noon)
	require.Zero(t, w.value("vpa_updater_evicted_pods_total", "vpa_name", "web-vpa"))
	require.Zero(t, w.value("vpa_updater_controlled_pods_total", "update_mode", "Recreate"))
}

type stoppingExecutor struct {
	actuate.Executor
	stop func()
}

func (s stoppingExecutor) Evict(ctx context.Context, c actuate.Change) error {
	s.stop()
	return s.Executor.Evict(ctx, c)
}

// The rate limit may stretch an iteration.
func TestRun_StopsWhenVPAIsDisabled(t *testing.T) {
	update := func(w *world, vpa *vpav1.VerticalPodAutoscaler) error {
		_, err := w.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Update(t.Context(), vpa, metav1.UpdateOptions{})
		return err
	}
	for _, tc := range []struct {
		name   string
		stop   func(w *world) error
		reason string
	}{
		{name: "mode Off", stop: func(w *world) error { return update(w, autoscaler(vpav1.UpdateModeOff)) }, reason: "ModeOff"},
		{name: "deleted", stop: func(w *world) error {
			return w.vpa.AutoscalingV1().VerticalPodAutoscalers("shop").Delete(t.Context(), "web-vpa", metav1.DeleteOptions{})
		}, reason: "ModeOff"},
		{name: "another target", stop: func(w *world) error {
			return update(w, withTarget(autoscaler(vpav1.UpdateModeRecreate), "other", 2, 2))
		}, reason: "StatusOutdated"},
		{name: "no target", stop: func(w *world) error {
			vpa := autoscaler(vpav1.UpdateModeRecreate)
			vpa.Spec.TargetRef = nil
			return update(w, vpa)
		}, reason: "StatusOutdated"},
		{name: "unreadable", stop: func(w *world) error { return update(w, unreadableVPA(vpav1.UpdateModeRecreate)) },
			reason: "VPAUnreadable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), web(vpav1.UpdateModeRecreate, 4)...)
			lister := w.caches.vpas.Autoscaling().V1().VerticalPodAutoscalers().Lister()
			w.loop.runner.Executor = stoppingExecutor{w.loop.runner.Executor, func() {
				before, err := lister.VerticalPodAutoscalers("shop").Get("web-vpa")
				require.NoError(t, err)
				require.NoError(t, tc.stop(w))
				require.Eventually(t, func() bool {
					vpa, err := lister.VerticalPodAutoscalers("shop").Get("web-vpa")
					return err != nil || vpa != before
				}, time.Minute, time.Millisecond)
			}}
			w.runOnce(noon)
			require.Equal(t, []string{"web-1-0"}, w.evictions())
			require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", tc.reason))
		})
	}
}

func unreadableVPA(mode vpav1.UpdateMode) *vpav1.VerticalPodAutoscaler {
	vpa := autoscaler(mode)
	vpa.Annotations = map[string]string{vpav1.UnreadableAnnotation: "spec.resourcePolicy: quantity"}
	return vpa
}

// A younger VPA must not take over the pods.
func TestUnreadableVPA_KeepsPodsUnchanged(t *testing.T) {
	younger := autoscaler(vpav1.UpdateModeRecreate)
	younger.Name, younger.CreationTimestamp = "younger", metav1.NewTime(noon)
	for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate} {
		w := newWorld(t, Default(), append(deployment(2, nil), unreadableVPA(mode), younger)...)
		w.runOnce(noon)
		require.Empty(t, w.writes())
		require.EqualValues(t, 2, w.value("loadline_updater_skipped_pods", "reason", "VPAUnreadable"))
	}
}

// An event on the VPA reports the unreadable target. Pods without a VPA appear only in the metric.
func TestSkips_ReportPodsOutsidePlans(t *testing.T) {
	objects := web(vpav1.UpdateModeRecreate, 3)
	for _, o := range objects {
		if d, ok := o.(*appsv1.Deployment); ok {
			d.Spec.Selector = &metav1.LabelSelector{}
		}
	}
	var out strings.Builder
	config := Default()
	config.EvictionRoom = roomOff
	w := newWorld(t, config, append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alone", UID: "alone"}})...)
	w.runOnce(noon)
	w.runOnce(noon.Add(config.SkipEventDelay))
	require.EqualValues(t, 3, w.value("loadline_updater_skipped_pods", "reason", "TargetUnreadable"))
	require.EqualValues(t, 1, w.value("loadline_updater_skipped_pods", "reason", "NoVPA"))
	require.Equal(t, []string{"Normal TargetUnreadable Skipped pods: 3, such as web-1-0: the target of its VPA cannot be read, has no label selector of its own, or one of more than 100 requirements or 8 KiB"}, w.drainEvents())
	w.loop.setExecutor(&actuate.DryRun{Out: &out})
	w.loop.skips = report.Skips{After: config.SkipEventDelay}
	w.runOnce(noon.Add(2 * config.SkipEventDelay))
	require.Contains(t, out.String(), "would skip pod shop/web-1-0 (VPA web-vpa): TargetUnreadable\n")
}

func TestResize_PatchTestsPodIdentity(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 2)...)
	w.runOnce(noon)
	at := slices.IndexFunc(w.kube.Actions(), func(a ktesting.Action) bool { return a.GetVerb() == "patch" })
	patch := string(w.kube.Actions()[at].(ktesting.PatchAction).GetPatch())
	require.Contains(t, patch, `{"op":"test","path":"/metadata/uid","value":"uid-0"}`)
	require.Contains(t, patch, `{"op":"test","path":"/spec/containers/0/name","value":"app"}`)
}

// A throttled client has sent no request, so no pod failed.
func TestRun_ClientThrottlingEndsIteration(t *testing.T) {
	w := newWorld(t, Default(), web(vpav1.UpdateModeInPlaceOrRecreate, 4)...)
	w.refuse("patch", "pods", fmt.Errorf("client rate limiter Wait returned an error: %w", client.ErrThrottled))
	w.runOnce(noon)
	require.Empty(t, w.evictions())
	require.Zero(t, w.value("vpa_updater_failed_in_place_update_attempts_total", "reason", "InPlaceUpdateError"))
	require.NotZero(t, w.value("loadline_updater_skipped_pods", "reason", "RateLimited"))
}

func TestRefused_ClassifiesErrors(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(cause metav1.CauseType) error {
		err := apierrors.NewForbidden(pods, "p", errors.New("no"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause}}
		return err
	}
	for err, want := range map[error]bool{
		invalid("p"):                     true,
		forbidden("NodeCapacity"):        true,
		forbidden("UnsupportedPlatform"): true,
		// A missing permission, a quota or a LimitRange would also refuse a new pod.
		apierrors.NewForbidden(pods, "p", nil):   false,
		apierrors.NewNotFound(pods, "p"):         true,
		apierrors.NewBadRequest("no"):            false,
		apierrors.NewConflict(pods, "p", nil):    false,
		apierrors.NewTooManyRequests("later", 1): false,
		apierrors.NewTimeoutError("slow", 1):     false,
		context.DeadlineExceeded:                 false,
		apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", pods, "p", "", 0, false): false,
	} {
		require.Equal(t, want, actuate.Refused(err), "%v", err)
	}
}

// Late writes of an interrupted iteration are made after the early one, not a minute later.
func TestRunEarly_RepeatsInterruptedIteration(t *testing.T) {
	w := newWorld(t, Default(), append(deployment(2, nil), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
	w.loop.RunEarly(t.Context(), noon, raisedVPAs)
	require.Empty(t, w.writes(), "no pod was killed")
	w.loop.interrupted = true
	w.loop.RunEarly(t.Context(), noon, raisedVPAs)
	require.NotEmpty(t, w.writes())
}

// A slow API server may apply a resize after the request has timed out.
func TestResize_CountsUnconfirmedResize(t *testing.T) {
	noAnswer := fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	for _, tc := range []struct {
		name  string
		err   error
		makes string // pod CPU after the request, empty: unchanged
		count float64
	}{
		{name: "made, no answer", err: noAnswer, makes: "200m", count: 1},
		{name: "made, timeout of the API server", err: apierrors.NewTimeoutError("slow", 0), makes: "200m", count: 1},
		{name: "not made", err: noAnswer},
		{name: "another change", err: noAnswer, makes: "150m"},
		{name: "refused, as somebody else made it", err: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web-1-0", nil), makes: "200m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Default(), append(deployment(2, nil), autoscaler(vpav1.UpdateModeInPlaceOrRecreate))...)
			w.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				if a.GetSubresource() != "resize" {
					return false, nil, nil
				}
				if tc.makes != "" {
					_, pod, err := ktesting.ObjectReaction(w.kube.Tracker())(a)
					require.NoError(t, err)
					changed := pod.(*corev1.Pod).DeepCopy()
					changed.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(tc.makes)
					require.NoError(t, w.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), changed, "shop"))
				}
				return true, nil, tc.err
			})
			w.runOnce(noon)
			require.Equal(t, tc.count, w.value("vpa_updater_in_place_updated_pods_total", "vpa_name", "web-vpa"))
			require.Equal(t, tc.count > 0, w.pod("web-1-0").Annotations[convert.ResizedAnnotation] != "")
			require.Equal(t, tc.count > 0, strings.Contains(strings.Join(w.drainEvents(), "\n"), "Resized in place"))
		})
	}
}
