package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

// withSharing sets the sharing mode of a policy, and the recipe cruisekube.
func withSharing(mode loadlinev1alpha1.SharingMode) func(*loadlinev1alpha1.SizingPolicySpec) {
	return func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Recipe, s.Sharing = new("cruisekube"), &loadlinev1alpha1.Sharing{Mode: &mode}
	}
}

const sharingRound = 6 * time.Minute

// A dry run logs the pods of its policy and changes nothing, although the policy allows it. If the
// mode of a policy prevents sharing, its status contains the reason.
func TestSharing_DryRunWritesNothing(t *testing.T) {
	parallelTest(t)
	dry, before := startSharingPods(t, loadlinev1alpha1.SharingDryRun, "sharing-dry", "280m")
	on := newWorkload(t, "sharing-on", 2)
	others := startWorkload(t, on)
	createPolicy(t, on.Namespace, loadlinev1alpha1.RolloutModeRecommend, withSharing(loadlinev1alpha1.SharingOn))
	made := on
	made.Name = "deployment-" + on.Name
	awaitGeneratedVPA(t, on.Namespace, made.Name)
	awaitRecommendation(t, made)

	eventually(t, "the updater explains a skipped pod", func() error {
		e, err := explainPod(t, on.Namespace, others[0].Name)
		if err == nil && (e.Skip == nil || e.Skip.Reason != reason.RecommendOnly) {
			err = fmt.Errorf("skip is %+v", e.Skip)
		}
		return err
	})
	require.Regexp(t, `skipped +RecommendOnly: `, runPlugin(t, "explain", "-n", on.Namespace, "pod/"+others[0].Name), "without an answer")

	within(t, sharingRound, "a round finds the pods", func() error {
		log, err := os.ReadFile(updater.Log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "Sharing, dry run: a policy") && strings.Contains(line, `policy="sharing-dry" pods=3`) {
				return nil
			}
		}
		return errors.New("the log does not say so")
	})
	within(t, sharingRound, "the policy says what is in the way", func() error {
		p, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), on.Namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, "Sharing")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "ModeTooConservative" {
			return errors.New("it does not")
		}
		require.NotNil(t, meta.FindStatusCondition(p.Status.Conditions, "Ready"), "conditions of the recommender stay")
		return nil
	})
	e, err := explainPod(t, dry.Namespace, before[0].Name)
	require.NoError(t, err)
	require.Equal(t, []any{false, 3}, []any{e.Share.Active, e.Share.Pods})
	require.Less(t, e.Share.CPU.Share, e.Share.CPU.Peak)
	requireSameSizes(t, dry, before)
	requireSameSizes(t, on, others)
	require.NoError(t, cluster.Requests(func(r harness.Request) {
		about := strings.Contains(r.URI, "/namespaces/"+dry.Namespace+"/") || strings.Contains(r.URI, "/sizingpolicies/"+dry.Namespace)
		if r.Account == "vpa-updater" && about && slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) {
			t.Errorf("the updater wrote: %s %s", r.Verb, r.URI)
		}
	}))
}

// startSharingPods runs pods with a base of 100m and a peak of 280m on their own node of one core,
// under a policy with sharing.
func startSharingPods(t *testing.T, mode loadlinev1alpha1.SharingMode, name, cpu string) (w harness.Workload, before []corev1.Pod) {
	t.Helper()
	ownNode(t, name, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.33.0" })
	w = newWorkload(t, name, 3)
	w.Node, w.Tolerate = name, ownTaint
	w.Containers[0].CPU = cpu
	before = startWorkload(t, w)
	createPeakVPA(t, w)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withSharing(mode))
	return w, before
}

// createPeakVPA creates a VPA that recommends a base of 100m and a peak of 280m.
func createPeakVPA(t *testing.T, w harness.Workload) {
	t.Helper()
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, withRecommender("nobody")))
	vpa := getVPA(t, w)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: resourceList("100m", "100Mi"), Target: resourceList("280m", "100Mi"), UpperBound: resourceList("280m", "100Mi")}}}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func disableSharing(t *testing.T, w harness.Workload) {
	t.Helper()
	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Patch(t.Context(), w.Namespace, types.MergePatchType, []byte(`{"spec":{"sharing":{"mode":"Off"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

func sharingCondition(t *testing.T, w harness.Workload) *metav1.Condition {
	t.Helper()
	p, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), w.Namespace, metav1.GetOptions{})
	require.NoError(t, err)
	return meta.FindStatusCondition(p.Status.Conditions, "Sharing")
}

func requireSamePods(t *testing.T, w harness.Workload, before []corev1.Pod) {
	t.Helper()
	for _, pod := range pods(t, w) {
		require.True(t, slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == pod.UID }), "nobody was evicted")
		require.Zero(t, restarts(&pod))
	}
}

// Pods get their share of the node's headroom in place, and their peak when sharing ends: three
// pods with a base of 100m and a peak of 280m on one core get 100m + 180m / 3.
func TestSharing_ResizesToShareInPlace(t *testing.T) {
	parallelTest(t)
	w, before := sharingScenario.begun(t)
	awaitShares(t, w, "160m", true)
	c := sharingCondition(t, w)
	require.NotNil(t, c)
	require.Equal(t, metav1.ConditionTrue, c.Status, c.Message)
	require.Equal(t, "pods that share: 3", c.Message)

	disableSharing(t, w)
	awaitShares(t, w, "280m", false)
	requireSamePods(t, w, before)
}

// The next round shrinks all four pods, except pods that an HPA scales on the shared resource. A
// restarted updater runs a round at once.
func TestSharing_NewPodStartsAtPeakThenAllShrink(t *testing.T) {
	exclusiveTest(t, processFirst)
	w, before := startSharingPods(t, loadlinev1alpha1.SharingOn, "sharing-arrival", "200m")
	scaled := newWorkload(t, w.Namespace, 1)
	scaled.Name, scaled.Node, scaled.Tolerate = "scaled", w.Node, w.Tolerate
	apart := startWorkload(t, scaled)
	scaledByCPU(t, scaled)
	createPeakVPA(t, scaled)
	restartUpdater(t)
	awaitShares(t, w, "160m", true)

	w.Replicas++
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "scale", "deployment", w.Name, "--replicas=4"))
	eventually(t, "a pod comes at its peak", func() error {
		for _, pod := range pods(t, w) {
			if !slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == pod.UID }) {
				require.Equal(t, "280m", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
				if pod.Status.Phase != corev1.PodRunning {
					return errors.New("it does not run yet")
				}
				before = append(before, pod)
				return nil
			}
		}
		return errors.New("there is none")
	})
	restartUpdater(t)
	awaitShares(t, w, "145m", true) // 100m + 180m / 4
	requireSamePods(t, w, before)
	c := sharingCondition(t, w)
	require.NotNil(t, c)
	require.Equal(t, "pods that share: 4", c.Message)
	requireSameSizes(t, scaled, apart)
	for _, pod := range pods(t, scaled) {
		require.NotContains(t, pod.Annotations, "loadline.dev/shared")
	}
	e, err := explainPod(t, w.Namespace, apart[0].Name)
	require.NoError(t, err)
	require.Equal(t, reason.ManagedByHPA, e.Share.Excluded.Reason)
	deletePolicy(t, w.Namespace)
}

func explainPod(t *testing.T, namespace, pod string) (e explanation.Pod, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+updater.Address+explanation.PodPath+"?namespace="+namespace+"&name="+pod, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return e, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return e, errors.Join(err, json.Unmarshal(text, &e))
}

func restartUpdater(t *testing.T) {
	t.Helper()
	updater.Stop()
	require.NoError(t, updater.Start(t.Context()))
}

// When sharing ends on a full node, pods that fit grow to their peak in place, and others keep
// their share until there is room.
func TestSharing_OffOnFullNodeEvictsNoPod(t *testing.T) {
	parallelTest(t)
	w, before := sharingOnFullNodeScenario.begun(t)
	awaitShares(t, w, "160m", true)
	ballast := newWorkload(t, w.Namespace, 1)
	ballast.Name, ballast.Node, ballast.Tolerate = "ballast", w.Node, w.Tolerate
	ballast.Containers[0].CPU = "340m" // leaves 180m: one pod can grow by 120m
	startWorkload(t, ballast)

	disableSharing(t, w)
	sizes := func() (all []string) {
		for _, pod := range pods(t, w) {
			_, marked := pod.Annotations["loadline.dev/shared"]
			all = append(all, fmt.Sprintf("%s %t", pod.Spec.Containers[0].Resources.Requests.Cpu(), marked))
		}
		slices.Sort(all)
		return all
	}
	within(t, sharingRound, "one pod has its peak", func() error {
		if has := sizes(); !slices.Equal(has, []string{"160m true", "160m true", "280m false"}) {
			return fmt.Errorf("pods have %v", has)
		}
		return nil
	})
	awaitSkipped(t, w.Namespace, "NodeFull")
	forIterations(t, updater, 5, func() { require.Equal(t, []string{"160m true", "160m true", "280m false"}, sizes()) })
	requireSamePods(t, w, before)

	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "delete", "deployment", ballast.Name))
	awaitShares(t, w, "280m", false)
	requireSamePods(t, w, before)
}

// With a sign of a node autoscaler, the policy reports it and its pods are not changed.
func TestSharing_OffWithNodeAutoscaler(t *testing.T) {
	exclusiveTest(t, processFirst)
	updater.Stop()
	t.Cleanup(func() {
		if !updater.Running() {
			require.NoError(t, updater.Start(context.WithoutCancel(t.Context())))
		}
	})
	maps := cluster.Kube.CoreV1().ConfigMaps("kube-system")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-autoscaler-status"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w, before := startSharingPods(t, loadlinev1alpha1.SharingOn, "sharing-autoscaler", "280m")
	require.NoError(t, updater.Start(t.Context())) // runs a round at once
	eventually(t, "the policy says that nodes are added", func() error {
		if c := sharingCondition(t, w); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "NodeAutoscaler" {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	forIterations(t, updater, 3, func() { requireSameSizes(t, w, before) })
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].Annotations, pod.Annotations)
	}

	// Without the sign, the same pods share after a restart of the updater.
	require.NoError(t, maps.Delete(t.Context(), "cluster-autoscaler-status", metav1.DeleteOptions{}))
	restartUpdater(t)
	awaitShares(t, w, "160m", true)
	deletePolicy(t, w.Namespace)
}

// awaitShares waits until all pods of a workload have this CPU request, and are marked as sharing
// or not.
func awaitShares(t *testing.T, w harness.Workload, cpu string, marked bool) {
	t.Helper()
	within(t, sharingRound, "pods have "+cpu, func() error {
		found := pods(t, w)
		if len(found) != int(w.Replicas) {
			return fmt.Errorf("%d pods", len(found))
		}
		for _, pod := range found {
			has := pod.Spec.Containers[0].Resources.Requests.Cpu()
			if _, is := pod.Annotations["loadline.dev/shared"]; is != marked || has.Cmp(*quantity(cpu)) != 0 {
				return fmt.Errorf("%s has %s, marked %t", pod.Name, has, is)
			}
			if s := pod.Status.ContainerStatuses[0].Resources; s == nil || s.Requests.Cpu().Cmp(*quantity(cpu)) != 0 {
				return fmt.Errorf("the node has not given %s its size", pod.Name)
			}
		}
		return nil
	})
}
