package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// createVPAWithTarget creates a VPA with a fixed recommendation that no recommender updates.
func createVPAWithTarget(t *testing.T, w harness.Workload, mode vpav1.UpdateMode, target corev1.ResourceList, change ...func(*vpav1.VerticalPodAutoscaler)) {
	t.Helper()
	require.NoError(t, cluster.CreateVPA(t.Context(), w, mode, append(change, withRecommender("nobody"))...))
	setTarget(t, w, target)
}

func setTarget(t *testing.T, w harness.Workload, target corev1.ResourceList) {
	t.Helper()
	vpa := getVPA(t, w)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: target, Target: target, UpperBound: target}}}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func newWorkload(t *testing.T, name string, replicas int32) harness.Workload {
	t.Helper()
	return harness.Workload{
		Namespace: namespace(t, name), Name: "web", Replicas: replicas,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}},
		Annotations: harness.Uses("app", "50m", "50Mi"),
	}
}

func startWorkload(t *testing.T, w harness.Workload) []corev1.Pod {
	t.Helper()
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	return awaitRunning(t, w)
}

var larger = resourceList("300m", "200Mi")

func awaitSized(t *testing.T, w harness.Workload, cpu string) {
	t.Helper()
	eventually(t, "pods of "+w.Namespace+" request "+cpu, func() error {
		found := pods(t, w)
		if len(found) != int(w.Replicas) {
			return fmt.Errorf("%d pods", len(found))
		}
		for _, pod := range found {
			if has := pod.Spec.Containers[0].Resources.Requests.Cpu(); has.Cmp(*quantity(cpu)) != 0 {
				return fmt.Errorf("%s requests %s", pod.Name, has)
			}
		}
		return nil
	})
}

// awaitSkipped waits until the updater skips a pod of a namespace for this reason.
func awaitSkipped(t *testing.T, namespace, reason string) {
	t.Helper()
	awaitSkippedBy(t, updater, namespace, reason)
}

// awaitSkippedBy is awaitSkipped for another updater than the shared one.
func awaitSkippedBy(t *testing.T, by *harness.Daemon, namespace, reason string) {
	t.Helper()
	eventually(t, "a pod of "+namespace+" is left alone: "+reason, func() error {
		log, err := os.ReadFile(by.Log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "Skipping pod") && strings.Contains(line, `pod="`+namespace+"/") && strings.Contains(line, `reason="`+reason+`"`) {
				return nil
			}
		}
		return errors.New("the log does not say so")
	})
}

// requireUnchanged requires for ten seconds that the pods were not replaced or resized.
func requireUnchanged(t *testing.T, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	during(t, 10*time.Second, func() {
		after := pods(t, w)
		require.Len(t, after, len(before))
		for i := range after {
			require.Equal(t, before[i].UID, after[i].UID, "a pod was replaced")
			require.Equal(t, before[i].Spec.Containers[0].Resources.Requests.Cpu().String(), after[i].Spec.Containers[0].Resources.Requests.Cpu().String())
		}
	})
}

func withTargetRef(apiVersion, kind string) func(*vpav1.VerticalPodAutoscaler) {
	return func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.TargetRef.APIVersion, vpa.Spec.TargetRef.Kind = apiVersion, kind
	}
}

// Pods of every kind except Jobs are evicted and replaced with their target. Jobs count evictions
// as failures, so their pods stay.
func TestEviction_EveryWorkloadKind(t *testing.T) {
	parallelTest(t)
	create := map[string]func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, selector *metav1.LabelSelector) (string, error){
		"ReplicaSet": func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, selector *metav1.LabelSelector) (string, error) {
			_, err := cluster.Kube.AppsV1().ReplicaSets(w.Namespace).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: meta,
				Spec: appsv1.ReplicaSetSpec{Replicas: &w.Replicas, Selector: selector, Template: template}}, metav1.CreateOptions{})
			return "apps/v1", err
		},
		"StatefulSet": func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, selector *metav1.LabelSelector) (string, error) {
			_, err := cluster.Kube.AppsV1().StatefulSets(w.Namespace).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta,
				Spec: appsv1.StatefulSetSpec{Replicas: &w.Replicas, Selector: selector, Template: template}}, metav1.CreateOptions{})
			return "apps/v1", err
		},
		"ReplicationController": func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, selector *metav1.LabelSelector) (string, error) {
			_, err := cluster.Kube.CoreV1().ReplicationControllers(w.Namespace).Create(t.Context(), &corev1.ReplicationController{ObjectMeta: meta,
				Spec: corev1.ReplicationControllerSpec{Replicas: &w.Replicas, Selector: selector.MatchLabels, Template: &template}}, metav1.CreateOptions{})
			return "v1", err
		},
		"DaemonSet": func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, selector *metav1.LabelSelector) (string, error) {
			_, err := cluster.Kube.AppsV1().DaemonSets(w.Namespace).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta,
				Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
			return "apps/v1", err
		},
		"Job": func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, _ *metav1.LabelSelector) (string, error) {
			template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			_, err := cluster.Kube.BatchV1().Jobs(w.Namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: meta,
				Spec: batchv1.JobSpec{Parallelism: &w.Replicas, Completions: &w.Replicas, BackoffLimit: new(int32(50)), Template: template}}, metav1.CreateOptions{})
			return "batch/v1", err
		},
		"CronJob": func(t *testing.T, w harness.Workload, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, _ *metav1.LabelSelector) (string, error) {
			template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			spec := batchv1.JobSpec{Parallelism: &w.Replicas, Completions: &w.Replicas, BackoffLimit: new(int32(50)), Template: template}
			if _, err := cluster.Kube.BatchV1().CronJobs(w.Namespace).Create(t.Context(), &batchv1.CronJob{ObjectMeta: meta,
				Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: spec}}}, metav1.CreateOptions{}); err != nil {
				return "", err
			}
			return "batch/v1", cluster.Kubectl(t.Context(), "-n", w.Namespace, "create", "job", "now", "--from=cronjob/"+w.Name)
		},
	}
	for kind, f := range create {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorkload(t, "kind-"+strings.ToLower(kind), 2)
			template := w.Template()
			if kind == "DaemonSet" {
				w.Replicas = simulatedNodes // one on each
				onCommonNodes(&template)
			}
			version, err := f(t, w, metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}, template, &metav1.LabelSelector{MatchLabels: template.Labels})
			require.NoError(t, err)
			before := awaitRunning(t, w)
			createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger, withTargetRef(version, kind))
			if version == "batch/v1" {
				awaitSkipped(t, w.Namespace, "CountsAsFailure")
				requireUnchanged(t, w, before)
				return
			}
			awaitSized(t, w, "300m")
			for _, pod := range pods(t, w) {
				for _, old := range before {
					require.NotEqual(t, old.UID, pod.UID)
				}
			}
		})
	}
}

func TestEviction_RespectsMinReplicas(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "one-replica", 1)
	before := startWorkload(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
	awaitSkipped(t, w.Namespace, "BelowMinReplicas")
	requireUnchanged(t, w, before)
	vpa := getVPA(t, w)
	vpa.Spec.UpdatePolicy.MinReplicas = new(int32(1))
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Update(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	awaitSized(t, w, "300m")
}

func createBudget(t *testing.T, w harness.Workload, minAvailable int) {
	t.Helper()
	least := intstr.FromInt32(int32(minAvailable))
	_, err := cluster.Kube.PolicyV1().PodDisruptionBudgets(w.Namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: w.Template().Labels}}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestEviction_RespectsPodDisruptionBudget(t *testing.T) {
	parallelTest(t)
	t.Run("none may go", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "pdb-zero", 3)
		createBudget(t, w, 3)
		before := startWorkload(t, w)
		createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
		awaitSkipped(t, w.Namespace, "EvictionRefused")
		requireUnchanged(t, w, before)
	})
	t.Run("seven of ten stay", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "pdb-seven", 10)
		createBudget(t, w, 7)
		startWorkload(t, w)
		watch := watchReady(t, w)
		createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
		awaitSized(t, w, "300m")
		require.GreaterOrEqual(t, watch.minReady(), 7)
	})
}

func createLimits(t *testing.T, ns string, item corev1.LimitRangeItem) {
	t.Helper()
	_, err := cluster.Kube.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "range"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// LimitRanges bound the new resources, both in place and after an eviction. Changes that they would
// reject are not tried.
func TestLimitRange_BoundsResources(t *testing.T) {
	parallelTest(t)
	cpu := func(text string) corev1.ResourceList { return corev1.ResourceList{corev1.ResourceCPU: *quantity(text)} }
	for name, c := range map[string]struct {
		item   corev1.LimitRangeItem
		target string
		want   string
	}{
		"container-max": {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpu("400m")}, "300m", "200m"}, // the limit is twice the request
		"container-min": {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("90m")}, "20m", "90m"},
		"pod-max":       {corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpu("400m")}, "300m", "200m"},
		"pod-min":       {corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: cpu("90m")}, "20m", "90m"},
	} {
		for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate} {
			t.Run(name+"-"+strings.ToLower(string(mode)), func(t *testing.T) {
				t.Parallel()
				w := newWorkload(t, "range-"+name+"-"+strings.ToLower(string(mode)), 2)
				w.Containers[0].CPULimit = "200m"
				createLimits(t, w.Namespace, c.item)
				startWorkload(t, w)
				createVPAWithTarget(t, w, mode, resourceList(c.target, "200Mi"))
				awaitSized(t, w, c.want)
			})
		}
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "range-refused", 2)
		w.Containers[0].CPULimit = "200m"
		before := startWorkload(t, w)
		createLimits(t, w.Namespace, corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpu("150m")})
		createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger, withContainerPolicies(vpav1.ContainerResourcePolicy{ContainerName: "app", MinAllowed: cpu("500m")}))
		awaitSkipped(t, w.Namespace, "OutsideLimitRange")
		requireUnchanged(t, w, before)
	})
}

// Eviction requirements do not apply to resizes without a restart.
func TestEvictionRequirements_HoldEvictionsOnly(t *testing.T) {
	parallelTest(t)
	higher := func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.UpdatePolicy.EvictionRequirements = []*vpav1.EvictionRequirement{{
			Resources: []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, ChangeRequirement: vpav1.TargetHigherThanRequests}}
	}
	t.Run("evicted", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "requirements", 2)
		before := startWorkload(t, w)
		createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, resourceList("50m", "60Mi"), higher)
		awaitSkipped(t, w.Namespace, "RequirementsNotMet")
		requireUnchanged(t, w, before)
		setTarget(t, w, larger)
		awaitSized(t, w, "300m")
	})
	t.Run("in place", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, "requirements-in-place", 2)
		startWorkload(t, w)
		createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, resourceList("50m", "60Mi"), higher)
		awaitSized(t, w, "50m")
	})
}

func TestQuota_FullQuotaDelaysChange(t *testing.T) {
	parallelTest(t)
	for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorkload(t, "quota-"+strings.ToLower(string(mode)), 2)
			quotas := cluster.Kube.CoreV1().ResourceQuotas(w.Namespace)
			_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "cpu"},
				Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": *quantity("250m")}}}, metav1.CreateOptions{})
			require.NoError(t, err)
			before := startWorkload(t, w)
			createVPAWithTarget(t, w, mode, larger)
			awaitSkipped(t, w.Namespace, "QuotaFull")
			requireUnchanged(t, w, before)
			quota, err := quotas.Get(t.Context(), "cpu", metav1.GetOptions{})
			require.NoError(t, err)
			quota.Spec.Hard["requests.cpu"] = *quantity("1")
			_, err = quotas.Update(t.Context(), quota, metav1.UpdateOptions{})
			require.NoError(t, err)
			awaitSized(t, w, "300m")
		})
	}
}

func TestUpdater_SkipsTargetsTooLargeForNodes(t *testing.T) {
	parallelTest(t)
	for _, mode := range []vpav1.UpdateMode{vpav1.UpdateModeRecreate, vpav1.UpdateModeInPlaceOrRecreate} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorkload(t, "huge-"+strings.ToLower(string(mode)), 2)
			before := startWorkload(t, w)
			createVPAWithTarget(t, w, mode, resourceList("5000", "200Mi"))
			awaitSkipped(t, w.Namespace, "TooLargeForNode")
			requireUnchanged(t, w, before)
		})
	}
}

func TestUpdater_SkipsInjectedSidecar(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "sidecar", 2)
	w.Containers = append(w.Containers, harness.Container{Name: "injected", CPU: "100m", Memory: "100Mi"})
	w.Annotations = harness.Merge(w.Annotations, harness.Uses("injected", "50m", "50Mi"))
	before := startWorkload(t, w)
	annotate(t, w, map[string]string{"vpaObservedContainers": "app"})
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, withRecommender("nobody")))
	vpa := getVPA(t, w)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{}
	for _, name := range []string{"app", "injected"} {
		vpa.Status.Recommendation.ContainerRecommendations = append(vpa.Status.Recommendation.ContainerRecommendations,
			vpav1.RecommendedContainerResources{ContainerName: name, LowerBound: larger, Target: larger, UpperBound: larger})
	}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	awaitSized(t, w, "300m")
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID)
		require.Equal(t, "100m", pod.Spec.Containers[1].Resources.Requests.Cpu().String())
	}
}

// Replacing a scheduled pod that has not started is not a disruption.
func TestEviction_ReplacesPendingPods(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "pending", 2)
	w.Annotations = harness.With(w.Annotations, "sim.loadline.dev/ready-after", "1h")
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	eventually(t, "both pods have a node", func() error {
		found := pods(t, w)
		for _, pod := range found {
			if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending {
				return fmt.Errorf("%s is %s on %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
			}
		}
		if len(found) != 2 {
			return fmt.Errorf("%d pods", len(found))
		}
		return nil
	})
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger)
	awaitSized(t, w, "300m")
}
