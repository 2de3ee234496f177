package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	logtesting "k8s.io/klog/v2/ktesting"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
)

func withMode(m loadlinev1alpha1.RolloutMode) func(*loadlinev1alpha1.SizingPolicy) {
	return func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Rollout.Mode = &m }
}

func record(name string, change func(*loadlinev1alpha1.SizingRecordStatus)) *loadlinev1alpha1.SizingRecord {
	r := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-" + name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: types.UID("uid-" + name)}}}}
	change(&r.Status)
	return r
}

// round returns a round whose last change is the given minutes after the start.
func round(minutes int, pods int32, o loadlinev1alpha1.RoundOutcome) loadlinev1alpha1.Round {
	sizes := []loadlinev1alpha1.ContainerSizes{{Name: "app", Requests: loadlinev1alpha1.Sizes(amounts("1", "1Gi"))}}
	r := loadlinev1alpha1.Round{Time: at(minutes - 1), Pods: pods, Outcome: o, From: sizes, To: sizes}
	if pods > 0 {
		r.LastChange = new(at(minutes))
	}
	return r
}

// at returns the time the given minutes after the start of a bubble.
func at(minutes int) metav1.Time {
	return metav1.NewTime(time.Date(2000, 1, 1, 0, minutes, 0, 0, time.UTC))
}

func degraded(s *loadlinev1alpha1.SizingRecordStatus) {
	s.Conditions = []metav1.Condition{{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "HighRevertRate", LastTransitionTime: at(0)}}
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func replicaSetPod(name, of, cpu, memory string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: controlledBy("apps/v1", "ReplicaSet", of)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: amounts(cpu, memory)}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func controlledBy(version, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}}
}

func deploymentWithReplicaSet(name string) []runtime.Object {
	return []runtime.Object{deployment(name), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: controlledBy("apps/v1", "Deployment", name)}}}
}

func withPodCondition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
	}
}

// recommend sets the recommendation of container app. With provided false the condition
// RecommendationProvided is missing.
func (c *cluster) recommend(vpa, cpu, memory string, provided ...bool) {
	v, found := c.vpasByName()[vpa]
	require.True(c.t, found, vpa)
	v.Status = recommended(cpu, memory)
	if slices.Contains(provided, false) {
		v.Status.Conditions = nil
	}
	_, err := c.vpas.AutoscalingV1().VerticalPodAutoscalers("shop").Update(c.t.Context(), v, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	synctest.Wait()
}

func recommended(cpu, memory string) vpav1.VerticalPodAutoscalerStatus {
	return vpav1.VerticalPodAutoscalerStatus{
		Conditions:     []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue}},
		Recommendation: &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{ContainerName: "app", Target: amounts(cpu, memory)}}},
	}
}

func (c *cluster) statuses(policy string) map[string]loadlinev1alpha1.WorkloadStatus {
	all := map[string]loadlinev1alpha1.WorkloadStatus{}
	for _, w := range c.policy(policy).Status.Workloads {
		all[w.Ref.Name] = w
	}
	return all
}

func formatSizes(s loadlinev1alpha1.Sizes) string {
	cpu, memory := s[corev1.ResourceCPU], s[corev1.ResourceMemory]
	return cpu.String() + " " + memory.String()
}

// Labels that are not cached may exclude the workload from the policy.
func TestStatus_ReportsWorkloadsWithUnknownLabels(t *testing.T) {
	many := func(d *appsv1.Deployment) {
		d.Labels = map[string]string{"sizing": "off"}
		for i := range 100 {
			d.Labels[fmt.Sprint("label-", i)] = "x"
		}
	}
	optOut := func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.Workloads[0].Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "sizing", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"}}}}
	}
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.Equal(t, []string{"Deployment web in namespace shop is held: its labels exceed 100 labels or 8 KiB"}, c.policy("shop").Status.Errors)
		require.Len(t, c.statuses("shop"), 2)
	}, shopPolicy(optOut), deployment("web", many), deployment("api"))
}

func TestStatus_ReportsEachWorkload(t *testing.T) {
	web := record("web", func(s *loadlinev1alpha1.SizingRecordStatus) {
		s.Phase, s.CooldownUntil = "Canary", new(at(60))
		s.Rounds = []loadlinev1alpha1.Round{round(9, 0, ""), round(7, 0, "Failed"), round(5, 2, "Success"), round(1, 1, "Reverted")}
	})
	api := record("api", func(s *loadlinev1alpha1.SizingRecordStatus) {
		degraded(s)
		s.Phase, s.CooldownUntil = "Halted", new(at(-1))
	})
	old := record("old", func(s *loadlinev1alpha1.SizingRecordStatus) { s.Phase, s.Rounds = "FullRollout", web.Status.Rounds })
	old.OwnerReferences[0].UID = "of one that had the name before"
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		all := c.statuses("shop")
		require.Equal(t, loadlinev1alpha1.RolloutPhaseCanary, all["web"].Phase)
		require.Equal(t, at(5).Unix(), all["web"].LastChange.Unix(), "the rounds after that changed nothing")
		require.Equal(t, at(60).Unix(), all["web"].Next.Unix())
		require.False(t, all["web"].Degraded)
		require.Equal(t, loadlinev1alpha1.RolloutPhaseHalted, all["api"].Phase)
		require.True(t, all["api"].Degraded)
		require.Nil(t, all["api"].Next, "that is over")
		require.Nil(t, all["api"].LastChange)
		require.Equal(t, loadlinev1alpha1.WorkloadStatus{Ref: all["old"].Ref, Mode: "Canary"}, all["old"])
		require.Equal(t, 1.0, testutil.ToFloat64(c.keeper.Metrics.Workloads.WithLabelValues("shop", "Canary", "Halted")))
		require.Equal(t, 1.0, testutil.ToFloat64(c.keeper.Metrics.Workloads.WithLabelValues("shop", "Canary", "Canary")))
		require.Equal(t, 1.0, testutil.ToFloat64(c.keeper.Metrics.Workloads.WithLabelValues("shop", "Canary", "")))
		require.Equal(t, 1.0, testutil.ToFloat64(c.keeper.Metrics.Degraded.WithLabelValues("shop")))

		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) {
			s.Rollout.Mode = new(loadlinev1alpha1.RolloutModeRecommend)
		})
		c.runOnce(time.Minute)
		got := c.statuses("shop")["web"]
		require.Empty(t, got.Phase, "the mode has none")
		require.Nil(t, got.Next, "nothing is changed")
		require.Equal(t, at(5).Unix(), got.LastChange.Unix(), "it was changed all the same")
	}, shopPolicy(withMode("Canary"), percentage), deployment("web"), deployment("api"), deployment("old"), web, api, old)
}

func percentage(p *loadlinev1alpha1.SizingPolicy) {
	p.Spec.Rollout.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(10))}
}

// A restored backup has records without owners.
func TestStatus_MatchesRecordWithoutOwner(t *testing.T) {
	web := record("web", degraded)
	web.OwnerReferences = nil
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.True(t, c.statuses("shop")["web"].Degraded)
	}, shopPolicy(withMode("Auto")), deployment("web"), web)
}

func TestStatus_CountsRolloutProgress(t *testing.T) {
	objects := []runtime.Object{shopPolicy(withMode("Auto")),
		replicaSetPod("applied-1", "applied", "1050m", "1Gi",
			withPodCondition(corev1.PodResizePending, "False", "Deferred"), withPodCondition(corev1.PodResizeInProgress, "True", "Infeasible")),
		replicaSetPod("applied-2", "applied", "950m", "1Gi"),
		replicaSetPod("some-1", "some", "1", "1Gi"), replicaSetPod("some-2", "some", "2", "1Gi"),
		replicaSetPod("deferred-1", "deferred", "2", "1Gi", withPodCondition(corev1.PodResizePending, "True", "Deferred")),
		replicaSetPod("infeasible-1", "infeasible", "2", "1Gi", withPodCondition(corev1.PodResizePending, "True", "Infeasible")),
		replicaSetPod("blocked-1", "blocked", "2", "1Gi"),
		replicaSetPod("unsized-1", "unsized", "1", "1Gi", func(p *corev1.Pod) { delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU) }),
		// The resize in the spec is not actuated yet.
		replicaSetPod("asked-1", "asked", "1", "1Gi", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &corev1.ResourceRequirements{Requests: amounts("2", "1Gi")}}}
		}),
		replicaSetPod("bare-1", "bare", "2", "1Gi"),
		replicaSetPod("over-1", "over", "2", "1Gi", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		replicaSetPod("over-2", "over", "2", "1Gi", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(at(0)), []string{"example.com/wait"}
		}),
		replicaSetPod("alone", "alone", "2", "1Gi", func(p *corev1.Pod) { p.OwnerReferences = nil }),
		replicaSetPod("strange", "strange", "2", "1Gi", func(p *corev1.Pod) { p.OwnerReferences = controlledBy("example.com/v1", "Thing", "some") }),
		record("blocked", func(s *loadlinev1alpha1.SizingRecordStatus) {
			s.Conditions = []metav1.Condition{{Type: "ResizeBlocked", Status: metav1.ConditionTrue, Reason: "PodsDeferredAndInfeasible"}}
		}),
		record("some", func(s *loadlinev1alpha1.SizingRecordStatus) {
			s.Rounds = []loadlinev1alpha1.Round{round(9, 1, ""), round(5, 0, "Reverted"), round(3, 2, "Success")}
		}),
		record("applied", func(s *loadlinev1alpha1.SizingRecordStatus) {
			s.Rounds = []loadlinev1alpha1.Round{round(9, 1, "Success"), round(5, 1, "Reverted")}
		}),
	}
	names := []string{"applied", "some", "deferred", "infeasible", "blocked", "unsized", "asked", "over", "bare"}
	for _, name := range names {
		objects = append(objects, deploymentWithReplicaSet(name)...)
	}
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		for _, name := range names {
			c.recommend("deployment-"+name, "1", "1Gi", name != "bare")
		}
		c.runOnce(time.Minute)
		require.Equal(t, &loadlinev1alpha1.PolicyCounts{
			Selected: 9, WithRecommendation: 8, Applied: 1, Pending: 6, Deferred: 1, Infeasible: 2, Reverted: 1,
		}, c.policy("shop").Status.Counts)

		c.change("shop", func(s *loadlinev1alpha1.SizingPolicySpec) { s.Paused = new(true) })
		c.runOnce(time.Minute)
		require.Zero(t, c.policy("shop").Status.Counts.Pending, "no pod is changed")
		require.Equal(t, int32(1), c.policy("shop").Status.Counts.Applied)
	}, objects...)
}

// Pods of Jobs are never resized, but their requests count as possible savings.
func TestStatus_CronJobPodsAreNeverPending(t *testing.T) {
	policy := shopPolicy(withMode("Auto"), func(p *loadlinev1alpha1.SizingPolicy) {
		p.Spec.Workloads = []loadlinev1alpha1.WorkloadSelection{{APIVersion: "batch/v1", Kind: "CronJob"}}
	})
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		c.recommend("cronjob-report", "1", "1Gi")
		c.runOnce(time.Minute)
		status := c.policy("shop").Status
		require.Equal(t, &loadlinev1alpha1.PolicyCounts{Selected: 1, WithRecommendation: 1}, status.Counts)
		require.Equal(t, "2 0", formatSizes(status.Savings))
	}, policy, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report"}},
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report-1", OwnerReferences: controlledBy("batch/v1", "CronJob", "report")}},
		replicaSetPod("report-1-x", "", "3", "1Gi", func(p *corev1.Pod) { p.OwnerReferences = controlledBy("batch/v1", "Job", "report-1") }))
}

func TestStatus_ReportsSavingsAndIncreases(t *testing.T) {
	objects := []runtime.Object{shopPolicy(), replicaSetPod("web-1", "web", "2", "1Gi"), replicaSetPod("web-2", "web", "1500m", "1Gi"), replicaSetPod("api-1", "api", "100m", "4Gi"), replicaSetPod("same-1", "same", "1", "1Gi")}
	for _, name := range []string{"api", "same", "web"} {
		objects = append(objects, deploymentWithReplicaSet(name)...)
	}
	sidecar := func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: amounts("5", "5Gi")}})
	}
	sidecar(objects[1].(*corev1.Pod))
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.Empty(t, c.policy("shop").Status.Savings)
		c.recommend("deployment-web", "1", "1536Mi")
		c.recommend("deployment-api", "200m", "1Gi")
		c.recommend("deployment-same", "1", "1Gi")
		c.runOnce(time.Minute)
		status := c.policy("shop").Status
		require.Equal(t, "1500m 3Gi", formatSizes(status.Savings), "nothing is recommended for the sidecar")
		require.Equal(t, "100m 1Gi", formatSizes(status.Increases), "what one needs more does not hide what others save")
		all := c.statuses("shop")
		require.Equal(t, "1500m 0", formatSizes(all["web"].Savings))
		require.Equal(t, "0 1Gi", formatSizes(all["web"].Increases))
		require.Empty(t, all["same"].Savings)
		require.Empty(t, all["same"].Increases)
		var order []string
		for _, w := range status.Workloads {
			order = append(order, w.Ref.Name)
		}
		require.Equal(t, []string{"api", "web", "same"}, order, "100% more CPU, 50% more memory, nothing")
		require.Equal(t, 1.5, testutil.ToFloat64(c.keeper.Metrics.Cores.WithLabelValues("shop")))
		require.Equal(t, float64(3<<30), testutil.ToFloat64(c.keeper.Metrics.Bytes.WithLabelValues("shop")))

		c.vpas.ClearActions()
		c.runOnce(time.Hour)
		for _, a := range c.vpas.Actions() {
			require.NotEqual(t, "patch", a.GetVerb(), "nothing has changed")
		}
		require.NoError(t, c.vpas.LoadlineV1alpha1().SizingPolicies().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		c.runOnce(time.Minute)
		require.Zero(t, testutil.CollectAndCount(c.keeper.Metrics.Cores))
	}, objects...)
}

func TestStatus_PrefersUserVPA(t *testing.T) {
	mine := newUserVPA("mine", "web")
	mine.Status = recommended("500m", "1Gi")
	made := newUserVPA("deployment-web", "web")
	made.Labels, made.Status = map[string]string{fleet.PolicyLabel: "shop"}, recommended("100m", "1Gi")
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		require.Equal(t, "500m 0", formatSizes(c.policy("shop").Status.Savings))
	}, append(deploymentWithReplicaSet("web"), shopPolicy(), mine, made, replicaSetPod("web-1", "web", "1", "1Gi"))...)
}

func TestStatus_ListsLargestChanges(t *testing.T) {
	objects := []runtime.Object{shopPolicy()}
	for i := range 120 {
		name := fmt.Sprintf("web%03d", i)
		vpa := newUserVPA(name, name)
		vpa.Status = recommended(fmt.Sprintf("%dm", 1000+10*i), "1Gi")
		objects = append(append(objects, deploymentWithReplicaSet(name)...), vpa, replicaSetPod(name+"-1", name, "1", "1Gi"))
	}
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		status := c.policy("shop").Status
		require.Equal(t, int32(120), status.Counts.Selected)
		require.Len(t, status.Workloads, 100)
		require.Equal(t, "web119", status.Workloads[0].Ref.Name)
		require.Equal(t, "web020", status.Workloads[99].Ref.Name)
	}, objects...)
}

func TestStatus_ReportsMissingPrometheus(t *testing.T) {
	blind := func(s *loadlinev1alpha1.SizingRecordStatus) {
		s.Conditions = []metav1.Condition{{Type: "EvidenceMissing", Status: metav1.ConditionTrue, Reason: "NoPrometheus", LastTransitionTime: at(0)}}
	}
	for m, says := range map[loadlinev1alpha1.RolloutMode]bool{"Auto": true, "OneShot": true, "Recommend": false} {
		runInCluster(t, func(c *cluster) {
			c.runOnce(0)
			ready := c.ready("shop")
			require.Equal(t, metav1.ConditionTrue, ready.Status)
			require.Equal(t, "Served", ready.Reason)
			require.Equal(t, says, strings.Contains(ready.Message, "set the updater flag --prometheus-address"), "%s: %s", m, ready.Message)
			require.NoError(t, c.vpas.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), "deployment-b", metav1.DeleteOptions{}))
			c.runFor(time.Minute + interval)
			require.Empty(t, c.ready("shop").Message)
		}, shopPolicy(withMode(m)), deployment("a"), deployment("b"), record("b", blind))
	}
}

func TestStatus_DegradedWithWorkloads(t *testing.T) {
	objects := []runtime.Object{shopPolicy(withMode("Auto"))}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		objects = append(objects, deployment(name), record(name, degraded))
	}
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		condition := meta.FindStatusCondition(c.policy("shop").Status.Conditions, "Degraded")
		require.Equal(t, metav1.ConditionTrue, condition.Status)
		require.Equal(t, "HighRevertRate", condition.Reason)
		require.Equal(t, "at least three of the last five rounds were reverted: Deployment a in namespace shop, "+
			"Deployment b in namespace shop, Deployment c in namespace shop and 2 others", condition.Message)
		require.Equal(t, 5.0, testutil.ToFloat64(c.keeper.Metrics.Degraded.WithLabelValues("shop")))
		require.Equal(t, metav1.ConditionTrue, c.ready("shop").Status, "it is used")

		for _, name := range []string{"a", "b", "d", "e"} {
			require.NoError(t, c.vpas.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), "deployment-"+name, metav1.DeleteOptions{}))
		}
		c.runOnce(time.Minute)
		condition = meta.FindStatusCondition(c.policy("shop").Status.Conditions, "Degraded")
		require.True(t, strings.HasSuffix(condition.Message, "were reverted: Deployment c in namespace shop"), condition.Message)
		require.NoError(t, c.vpas.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), "deployment-c", metav1.DeleteOptions{}))
		c.runOnce(time.Minute)
		condition = meta.FindStatusCondition(c.policy("shop").Status.Conditions, "Degraded")
		require.Equal(t, metav1.ConditionFalse, condition.Status)
		require.Empty(t, condition.Message)
		require.Equal(t, time.Now().Unix(), condition.LastTransitionTime.Unix())
		require.Zero(t, testutil.ToFloat64(c.keeper.Metrics.Degraded.WithLabelValues("shop")))
	}, objects...)
}

func TestStatus_UnknownWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, shopPolicy(withMode("Auto")), deployment("web"), record("web", degraded))
		var there atomic.Bool
		c.vpas.PrependReactor("list", "sizingrecords", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !there.Load(), nil, apierrors.NewNotFound(schema.GroupResource{Resource: "sizingrecords"}, "")
		})
		c.start()
		c.runOnce(0)
		require.Contains(t, c.vpasByName(), "deployment-web")
		condition := meta.FindStatusCondition(c.policy("shop").Status.Conditions, "Degraded")
		require.Equal(t, metav1.ConditionUnknown, condition.Status)
		require.Contains(t, condition.Message, "sizingrecords")
		there.Store(true)
		c.runOnce(6 * time.Minute)
		condition = meta.FindStatusCondition(c.policy("shop").Status.Conditions, "Degraded")
		require.Equal(t, metav1.ConditionTrue, condition.Status)
	})
}

// A fleet has thousands of records, each with twenty rounds.
func TestTrimRecord_KeepsNeededFields(t *testing.T) {
	full := record("web", func(s *loadlinev1alpha1.SizingRecordStatus) {
		degraded(s)
		s.Conditions[0].Message = "long"
		s.Conditions = append(s.Conditions, metav1.Condition{Type: "ScheduleBlocked", Status: metav1.ConditionTrue, Reason: "OutsideWindow"})
		s.CanaryMembers = []loadlinev1alpha1.CanaryMember{{UID: "u"}}
		s.Rounds = []loadlinev1alpha1.Round{round(10, 0, ""), round(9, 1, ""), round(8, 1, ""), round(7, 0, "Failed")}
		for i := range 16 {
			s.Rounds = append(s.Rounds, round(-i, 3, "Success"))
		}
		s.Kept = s.Rounds[0].From
	})
	full.Annotations = map[string]string{"any": "thing"}
	runInCluster(t, func(c *cluster) {
		kept, err := c.keeper.Records.lister.SizingRecords("shop").Get("deployment-web")
		require.NoError(t, err)
		require.Empty(t, kept.Annotations)
		require.Equal(t, loadlinev1alpha1.SizingRecordStatus{
			Rounds:     []loadlinev1alpha1.Round{{Time: at(8), LastChange: new(at(9)), Pods: 1}, {Time: at(6), Outcome: "Failed"}},
			Conditions: []metav1.Condition{{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "HighRevertRate"}},
		}, kept.Status)
	}, full)
}

func TestStatus_WrittenAtOnceForNewPolicy(t *testing.T) {
	selected := func(c *cluster, name string) int32 { return c.policy(name).Status.Counts.Selected }
	runInCluster(t, func(c *cluster) {
		create := func(name string) {
			_, err := c.vpas.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) { p.Name = name }), metav1.CreateOptions{})
			require.NoError(t, err)
		}
		c.runOnce(0)
		create("shop")
		c.runOnce(interval)
		require.Equal(t, int32(1), selected(c, "shop"))
		_, err := c.kube.AppsV1().Deployments("shop").Create(t.Context(), deployment("api"), metav1.CreateOptions{})
		require.NoError(t, err)
		c.runOnce(interval)
		require.Equal(t, 1.0, testutil.ToFloat64(c.keeper.Metrics.Workloads.WithLabelValues("shop", "Recommend", "")), "pods are not gone over in each pass")
		create("weaker")
		c.runOnce(interval)
		require.Equal(t, int32(2), c.policy("weaker").Status.Counts.Yielded)
		require.Equal(t, int32(1), selected(c, "shop"), "it was written less than a minute ago")
		c.runOnce(time.Minute)
		require.Equal(t, int32(2), selected(c, "shop"))

		pause := func(paused bool) {
			p := c.policy("shop")
			p.Spec.Paused, p.Generation = &paused, p.Generation+1
			_, err = c.vpas.LoadlineV1alpha1().SizingPolicies().Update(t.Context(), p, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		c.runFor(2*time.Minute + interval) // nothing is written
		pause(true)
		c.runOnce(interval)
		require.Equal(t, "Paused", c.ready("shop").Reason)
		pause(false)
		c.runOnce(interval)
		require.Equal(t, "Paused", c.ready("shop").Reason)
		c.runOnce(time.Minute - interval)
		require.Equal(t, "Served", c.ready("shop").Reason)
	}, deployment("web"))
}

// Most clusters have no policies.
func TestRunOnce_FewAllocationsWithoutPolicies(t *testing.T) {
	objects := deploymentWithReplicaSet("web")
	for i := range 200 {
		objects = append(objects, replicaSetPod(fmt.Sprint("web-", i), "web", "1", "1Gi"), record(fmt.Sprint("web", i), degraded))
	}
	runInCluster(t, func(c *cluster) {
		now := time.Now()
		allocations := testing.AllocsPerRun(100, func() {
			now = now.Add(interval)
			c.keeper.RunOnce(c.t.Context(), now)
		})
		require.LessOrEqual(t, allocations, 16.0)
	}, objects...)
}

// A conflicting status write is not an error. The next status keeps the concurrent change.
func TestStatus_KeepsConcurrentWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, shopPolicy(func(p *loadlinev1alpha1.SizingPolicy) {
			p.ResourceVersion = "7"
			p.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionTrue, Reason: "Shares"}}
		}), deployment("web"))
		stored := "8" // updater write not yet cached
		refused := 0
		c.vpas.PrependReactor("patch", "sizingpolicies", func(a clienttesting.Action) (bool, runtime.Object, error) {
			var steps []struct {
				Path  string `json:"path"`
				Value any    `json:"value"`
			}
			patch, _ := a.(clienttesting.PatchAction)
			require.NoError(t, json.Unmarshal(patch.GetPatch(), &steps))
			for _, s := range steps {
				if s.Path == "/metadata/resourceVersion" && s.Value != stored {
					refused++
					return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "sizingpolicies"}, "shop", errors.New("it was modified"))
				}
			}
			return false, nil, nil
		})
		c.start()
		logger := logtesting.NewLogger(t, logtesting.NewConfig(logtesting.BufferLogs(true)))
		c.keeper.RunOnce(klog.NewContext(t.Context(), logger), time.Now())
		require.Equal(t, 1, refused)
		require.Empty(t, c.policy("shop").Status.Counts, "nothing is written")
		underlier, _ := logger.GetSink().(logtesting.Underlier)
		for _, e := range underlier.GetBuffer().Data() {
			require.NoError(t, e.Err)
		}

		p := c.policy("shop")
		p.ResourceVersion, p.Status.Conditions[0].Status = stored, metav1.ConditionFalse
		_, err := c.vpas.LoadlineV1alpha1().SizingPolicies().Update(t.Context(), p, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		c.runOnce(time.Minute)
		require.Equal(t, 1, refused)
		require.True(t, meta.IsStatusConditionFalse(c.policy("shop").Status.Conditions, "Sharing"))
		require.Equal(t, int32(1), c.policy("shop").Status.Counts.Selected)
	})
}

func TestStatus_IgnoresStartupBoosts(t *testing.T) {
	boosted := replicaSetPod("web-1", "web", "3", "1Gi", func(p *corev1.Pod) {
		p.Annotations = map[string]string{convert.BoostAnnotationPrefix + p.Spec.Containers[0].Name: `{"requests":{"cpu":"500m","memory":"1Gi"},"limits":{}}`}
	})
	runInCluster(t, func(c *cluster) {
		c.runOnce(0)
		c.recommend("deployment-web", "1", "1Gi")
		c.runOnce(time.Minute)
		status := c.policy("shop").Status
		require.Empty(t, status.Savings)
		require.Empty(t, status.Increases)
		require.Equal(t, int32(1), status.Counts.Applied)
	}, append(deploymentWithReplicaSet("web"), shopPolicy(), boosted)...)
}
