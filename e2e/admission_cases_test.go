package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/admission-controller/mutate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// sizeCase is a pod created with a server-side dry run, which runs the webhook and the API server's
// validation.
type sizeCase struct {
	containers []harness.Container
	policy     []vpav1.ContainerResourcePolicy
	limits     []corev1.LimitRangeItem
	quota      corev1.ResourceList
	target     corev1.ResourceList // of the first container, nil: no recommendation
	change     func(*corev1.Pod)

	requests, requestLimits corev1.ResourceList // expected of the first container
	others                  []corev1.ResourceList
	warning                 string
	check                   func(*testing.T, *corev1.Pod)
}

func appContainer(cpu, memory, cpuLimit, memoryLimit string) harness.Container {
	return harness.Container{Name: "app", CPU: cpu, Memory: memory, CPULimit: cpuLimit, MemoryLimit: memoryLimit}
}

func limitRange(kind corev1.LimitType, least, most, limit corev1.ResourceList) []corev1.LimitRangeItem {
	return []corev1.LimitRangeItem{{Type: kind, Min: least, Max: most, Default: limit}}
}

var (
	only       = vpav1.ContainerControlledValuesRequestsOnly
	offMode    = vpav1.ContainerScalingModeOff
	alwaysOn   = corev1.ContainerRestartPolicyAlways
	guaranteed = appContainer("100m", "100Mi", "100m", "100Mi")
)

var sizeCases = map[string]sizeCase{
	"requests and limits in proportion": {
		containers: []harness.Container{appContainer("100m", "100Mi", "150m", "200Mi")}, target: resourceList("250m", "200Mi"),
		requests: resourceList("250m", "200Mi"), requestLimits: resourceList("375m", "400Mi"),
	},
	"guaranteed pods stay so": {
		containers: []harness.Container{guaranteed}, target: resourceList("251m", "200Mi"), requests: resourceList("251m", "200Mi"), requestLimits: resourceList("251m", "200Mi"),
		check: func(t *testing.T, pod *corev1.Pod) { require.Equal(t, corev1.PodQOSGuaranteed, pod.Status.QOSClass) },
	},
	"requests only": {
		containers: []harness.Container{appContainer("100m", "100Mi", "300m", "150Mi")}, target: resourceList("250m", "200Mi"),
		policy:   []vpav1.ContainerResourcePolicy{{ContainerName: "app", ControlledValues: &only}},
		requests: resourceList("250m", "150Mi"), requestLimits: resourceList("300m", "150Mi"),
		warning: "memory cut from 200Mi to 150Mi to fit the limit of the container",
	},
	"a container more than was recommended for": {
		containers: []harness.Container{guaranteed, {Name: "injected", CPU: "30m", Memory: "30Mi"}}, target: resourceList("250m", "200Mi"),
		requests: resourceList("250m", "200Mi"), requestLimits: resourceList("250m", "200Mi"), others: []corev1.ResourceList{resourceList("30m", "30Mi")},
		check: func(t *testing.T, pod *corev1.Pod) {
			require.Equal(t, "app, injected", pod.Annotations["vpaObservedContainers"])
			require.Contains(t, pod.Annotations["vpaUpdates"], "container 0: ")
			require.NotContains(t, pod.Annotations["vpaUpdates"], "container 1")
		},
	},
	"a container less than was recommended for": {
		containers: []harness.Container{{Name: "other", CPU: "30m", Memory: "30Mi"}}, target: resourceList("250m", "200Mi"), requests: resourceList("30m", "30Mi"),
		change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Name = "renamed" },
		check:  func(t *testing.T, pod *corev1.Pod) { require.NotContains(t, pod.Annotations, "vpaUpdates") },
	},
	"nothing recommended": {
		containers: []harness.Container{guaranteed}, requests: resourceList("100m", "100Mi"), requestLimits: resourceList("100m", "100Mi"),
		check: func(t *testing.T, pod *corev1.Pod) { require.Equal(t, "app", pod.Annotations["vpaObservedContainers"]) },
	},
	"mode Off for the container": {
		containers: []harness.Container{guaranteed}, target: resourceList("250m", "200Mi"), policy: []vpav1.ContainerResourcePolicy{{ContainerName: "*", Mode: &offMode}},
		requests: resourceList("100m", "100Mi"), requestLimits: resourceList("100m", "100Mi"),
	},
	"minAllowed": {
		containers: []harness.Container{guaranteed}, target: resourceList("50m", "50Mi"), policy: []vpav1.ContainerResourcePolicy{{ContainerName: "app", MinAllowed: resourceList("80m", "90Mi")}},
		requests: resourceList("80m", "90Mi"), requestLimits: resourceList("80m", "90Mi"),
	},
	"maxAllowed": {
		containers: []harness.Container{guaranteed}, target: resourceList("2", "2Gi"), policy: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: resourceList("233m", "150Mi")}},
		requests: resourceList("233m", "150Mi"), requestLimits: resourceList("233m", "150Mi"), warning: "cpu cut from 2 to 233m to fit maxAllowed",
	},
	"container maximum of a LimitRange": {
		containers: []harness.Container{appContainer("100m", "100Mi", "300m", "150Mi")}, target: resourceList("250m", "200Mi"), limits: limitRange(corev1.LimitTypeContainer, nil, resourceList("500m", "225Mi"), nil),
		requests: resourceList("166m", "150Mi"), requestLimits: resourceList("498m", "225Mi"), warning: "cpu cut from 250m to 166m to fit the LimitRanges of namespace",
	},
	"container minimum of a LimitRange": {
		containers: []harness.Container{appContainer("100m", "100Mi", "150m", "200Mi")}, target: resourceList("50m", "60Mi"), limits: limitRange(corev1.LimitTypeContainer, resourceList("100m", "100Mi"), nil, nil),
		requests: resourceList("100m", "100Mi"), requestLimits: resourceList("150m", "200Mi"),
	},
	"default limit of a LimitRange": {
		containers: []harness.Container{appContainer("100m", "100Mi", "", "")}, target: resourceList("250m", "200Mi"), limits: limitRange(corev1.LimitTypeContainer, nil, nil, resourceList("300m", "200Mi")),
		requests: resourceList("250m", "200Mi"), requestLimits: resourceList("750m", "400Mi"),
	},
	"pod maximum of a LimitRange": {
		containers: []harness.Container{guaranteed, {Name: "b", CPU: "100m", Memory: "100Mi", CPULimit: "100m", MemoryLimit: "100Mi"}}, target: resourceList("900m", "900Mi"),
		limits:   limitRange(corev1.LimitTypePod, nil, resourceList("500m", "500Mi"), nil),
		requests: resourceList("400m", "400Mi"), requestLimits: resourceList("400m", "400Mi"), others: []corev1.ResourceList{resourceList("100m", "100Mi")},
		warning: "cpu cut from 900m to 400m to fit the LimitRanges of namespace",
	},
	"pod minimum of a LimitRange": {
		containers: []harness.Container{guaranteed}, target: resourceList("50m", "50Mi"), limits: limitRange(corev1.LimitTypePod, resourceList("75m", "99999999"), nil, nil),
		requests: resourceList("75m", "99999999"), requestLimits: resourceList("75m", "99999999"),
	},
	"what a quota leaves": {
		containers: []harness.Container{guaranteed}, target: resourceList("2", "200Mi"), quota: corev1.ResourceList{"requests.cpu": *quantity("700m"), "limits.cpu": *quantity("600m"), "pods": *quantity("5")},
		requests: resourceList("600m", "200Mi"), requestLimits: resourceList("600m", "200Mi"), warning: "cpu cut from 2 to 600m to fit the ResourceQuotas of namespace",
	},
	"init containers and sidecars stay as they are": {
		containers: []harness.Container{guaranteed}, target: resourceList("250m", "200Mi"), requests: resourceList("250m", "200Mi"), requestLimits: resourceList("250m", "200Mi"),
		change: func(pod *corev1.Pod) {
			small := corev1.ResourceRequirements{Requests: resourceList("10m", "10Mi")}
			pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "simulated", Resources: small}, {Name: "side", Image: "simulated", Resources: small, RestartPolicy: &alwaysOn}}
		},
		check: func(t *testing.T, pod *corev1.Pod) {
			for _, c := range pod.Spec.InitContainers {
				require.Equal(t, "10m", c.Resources.Requests.Cpu().String(), c.Name)
			}
		},
	},
	"pods with resources of their own": {
		containers: []harness.Container{appContainer("100m", "100Mi", "", "")}, target: resourceList("2", "2Gi"), requests: resourceList("100m", "100Mi"),
		change: func(pod *corev1.Pod) {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: resourceList("1", "1Gi"), Limits: resourceList("1", "1Gi")}
		},
		warning: "containers left unchanged, because spec.resources of the pod bounds them",
	},
}

func TestWebhook_PatchedPodsPassAPIServerValidation(t *testing.T) {
	parallelTest(t)
	number := 0
	for name, c := range sizeCases {
		number++
		ns := namespace(t, fmt.Sprintf("sizes-%d", number))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t, ns)
		})
	}
}

func (c sizeCase) run(t *testing.T, ns string) {
	w := harness.Workload{Namespace: ns, Name: "web", Containers: c.containers}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	recommended := w
	recommended.Containers = []harness.Container{{Name: "app"}}
	if c.target == nil {
		require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, withRecommender("nobody")))
	} else {
		createInitialVPAWithTarget(t, recommended, c.target, withContainerPolicies(c.policy...))
	}
	if c.limits != nil {
		createLimitRange(t, ns, c.limits)
	}
	if c.quota != nil {
		createQuota(t, ns, c.quota)
	}
	owner, err := cluster.Kube.AppsV1().Deployments(ns).Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	// The informers of the webhook receive new objects with a delay.
	eventually(t, "a pod as the VPA wants it", func() error {
		pod := ownedPod(w, owner)
		if c.change != nil {
			c.change(pod)
		}
		created, warnings, err := dryRun(t, pod)
		if err != nil {
			return err
		}
		return c.judge(t, created, warnings)
	})
}

func (c sizeCase) judge(t *testing.T, pod *corev1.Pod, warnings []string) error {
	if _, seen := pod.Annotations["vpaObservedContainers"]; !seen {
		return fmt.Errorf("the webhook has not seen it")
	}
	first := pod.Spec.Containers[0].Resources
	if err := same(c.requests, first.Requests, "requests"); err != nil {
		return err
	}
	if err := same(c.requestLimits, first.Limits, "limits"); err != nil {
		return err
	}
	for i, want := range c.others {
		if err := same(want, pod.Spec.Containers[i+1].Resources.Requests, "requests of another container"); err != nil {
			return err
		}
	}
	if !strings.Contains(strings.Join(warnings, "\n"), c.warning) {
		return fmt.Errorf("warnings are %q", warnings)
	}
	if c.check != nil {
		c.check(t, pod)
	}
	return nil
}

func same(want, got corev1.ResourceList, what string) error {
	for _, kind := range kinds {
		wanted, is := want[kind], got[kind]
		if wanted.Cmp(is) != 0 {
			return fmt.Errorf("%s of %s: %s, expected %s", what, kind, is.String(), wanted.String())
		}
	}
	return nil
}

func createLimitRange(t *testing.T, ns string, items []corev1.LimitRangeItem) {
	_, err := cluster.Kube.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "bounds"}, Spec: corev1.LimitRangeSpec{Limits: items}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func createQuota(t *testing.T, ns string, hard corev1.ResourceList) {
	_, err := cluster.Kube.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "share"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

type warningRecorder struct {
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader records one warning.
func (h *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnings = append(h.warnings, text)
}

func dryRun(t *testing.T, pod *corev1.Pod) (created *corev1.Pod, warnings []string, err error) {
	t.Helper()
	h := &warningRecorder{}
	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = h
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	created, err = kube.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return created, h.warnings, err
}

// Applies the patches of the recorded upstream cases with an independent JSON patch library, under
// the same LimitRanges.
func TestPatch_RecordedCasesPassAPIServerValidation(t *testing.T) {
	parallelTest(t)
	raw, err := os.ReadFile("../testdata/vectors/admission.json")
	require.NoError(t, err)
	var file struct{ Cases []vectors.Case }
	require.NoError(t, json.Unmarshal(raw, &file))
	ran := 0
	for _, c := range file.Cases {
		if c.Kind != "pod_mutation" {
			continue
		}
		ran++
		ns := namespace(t, "vector-"+c.ID)
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			recordedPatch(t, ns, c)
		})
	}
	require.Greater(t, ran, 15)
}

func recordedPatch(t *testing.T, ns string, c vectors.Case) {
	var in struct {
		Pod                corev1.Pod
		VPA                vpav1.VerticalPodAutoscaler
		LimitRanges        [][]corev1.LimitRangeItem
		FeatureGates       map[string]bool
		MaxAllowedCPUBoost *resource.Quantity
	}
	require.NoError(t, json.Unmarshal(c.Input, &in))
	var objects []*corev1.LimitRange
	for i, items := range in.LimitRanges {
		_, err := cluster.Kube.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bounds-", i)}, Spec: corev1.LimitRangeSpec{Limits: items}}, metav1.CreateOptions{})
		require.NoError(t, err)
		objects = append(objects, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: items}})
	}
	config := mutate.Config{Boost: in.FeatureGates["CPUStartupBoost"]}
	if in.MaxAllowedCPUBoost != nil {
		config.MaxBoost = convert.Amount(resources.CPU, *in.MaxAllowedCPUBoost)
	}
	in.Pod.Namespace = ns
	for _, list := range [][]corev1.Container{in.Pod.Spec.Containers, in.Pod.Spec.InitContainers} {
		for i := range list {
			list[i].Image = "simulated"
		}
	}
	mutation, err := config.Patch(&in.Pod, &in.VPA, mutate.Constraints{Ranges: convert.Ranges(objects)})
	require.NoError(t, err)
	operations, err := json.Marshal(mutation.Patch)
	require.NoError(t, err)
	before, err := json.Marshal(in.Pod)
	require.NoError(t, err)
	decoded, err := jsonpatch.DecodePatch(operations)
	require.NoError(t, err)
	after, err := decoded.Apply(before)
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(after, &pod))
	_, _, err = dryRun(t, &pod)
	require.NoError(t, err)
}

func TestWebhook_WarnsAboutDoubtfulVPAs(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{Namespace: namespace(t, "advice"), Name: "web", Replicas: 1, Containers: []harness.Container{{Name: "app", CPU: "50m", Memory: "64Mi"}}}
	require.NoError(t, cluster.CreateWorkload(t.Context(), w))
	awaitRunning(t, w)
	scaledByCPU(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeOff))
	eventually(t, "all warnings", func() error {
		out, err := cluster.KubectlOutput(t.Context(), "apply", "--dry-run=server", "-f", adviceFile(t, w.Namespace))
		if err != nil {
			return err
		}
		for _, want := range []string{
			"VerticalPodAutoscaler web has the same target, Deployment web", "HorizontalPodAutoscaler web-hpa scales Deployment web on cpu",
			"minAllowed[cpu]: no node can hold it", `"Auto" is deprecated`, "Deployment nobody does not exist in namespace advice",
		} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%q is missing in %s", want, out)
			}
		}
		return nil
	})
}

func scaledByCPU(t *testing.T, w harness.Workload) {
	t.Helper()
	_, err := cluster.Kube.AutoscalingV2().HorizontalPodAutoscalers(w.Namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name + "-hpa"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: w.Name},
			MinReplicas:    &w.Replicas, MaxReplicas: w.Replicas,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80))}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func adviceFile(t *testing.T, ns string) string {
	file := t.TempDir() + "/vpas.yaml"
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: second, namespace: %[1]s}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  updatePolicy: {updateMode: Auto}
  resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: "4000"}}]}
---
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: lonely, namespace: %[1]s}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: nobody}
`, ns), 0o600))
	return file
}
