package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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
)

// sharing makes a policy want its pods to share, by a recipe that is made for it.
func sharing(mode loadlinev1alpha1.SharingMode) func(*loadlinev1alpha1.SizingPolicySpec) {
	return func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Recipe, s.Sharing = new("cruisekube"), &loadlinev1alpha1.Sharing{Mode: &mode}
	}
}

// sharingRound is how long a round of sharing may be away.
const sharingRound = 6 * time.Minute

// A dry run of sharing looks at the pods of its policy, says what it found, and writes nothing about
// them; where a policy wants more than is given its status says why.
func TestADryRunOfSharingWritesNothing(t *testing.T) {
	together(t)
	dry, on := plain(t, "sharing-dry", 3), plain(t, "sharing-on", 2)
	before, others := running(t, dry), running(t, on)
	policyFor(t, dry.Namespace, loadlinev1alpha1.RolloutModeRecommend, sharing(loadlinev1alpha1.SharingDryRun))
	policyFor(t, on.Namespace, loadlinev1alpha1.RolloutModeRecommend, sharing(loadlinev1alpha1.SharingOn))
	for _, w := range []harness.Workload{dry, on} {
		made := w
		made.Name = "deployment-" + w.Name
		awaitMade(t, w.Namespace, made.Name)
		awaitRecommendation(t, made)
	}

	// The plugin says of a pod what the updater would.
	explained, err := exec.CommandContext(t.Context(), plugin(t), "explain", "--kubeconfig", cluster.Kubeconfig(), "-n", dry.Namespace, "pod/"+before[0].Name).CombinedOutput()
	require.NoError(t, err, string(explained))
	require.Regexp(t, `left alone +RecommendOnly: `, string(explained))
	require.Regexp(t, `does not share +`+dry.Namespace+`/`+before[0].Name+` \*  NewWorkload\n`, string(explained))

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
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "ModeTooCautious" {
			return errors.New("it does not")
		}
		require.NotNil(t, meta.FindStatusCondition(p.Status.Conditions, "Ready"), "conditions of the recommender stay")
		return nil
	})
	sameSizes(t, dry, before)
	sameSizes(t, on, others)
	require.NoError(t, cluster.Requests(func(r harness.Request) {
		about := strings.Contains(r.URI, "/namespaces/"+dry.Namespace+"/") || strings.Contains(r.URI, "/sizingpolicies/"+dry.Namespace)
		if r.Account == "vpa-updater" && about && slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) {
			t.Errorf("the updater wrote: %s %s", r.Verb, r.URI)
		}
	}))
}

// Pods that share get their part of what their node has left in place, and their peak when they share
// no more: three of 100m nearly always and 280m at times, on a node of one core, 100m + 180m / 3.
func TestPodsGetTheirShareInPlace(t *testing.T) {
	together(t)
	ownNode(t, "sharing-in-place", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.33.0" })
	w := plain(t, "sharing-in-place", 3)
	w.Node, w.Tolerate = "sharing-in-place", ownTaint
	w.Containers[0].CPU = "280m"
	before := running(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, naming("nobody")))
	vpa := getVPA(t, w)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: pair("100m", "100Mi"), Target: pair("280m", "100Mi"), UpperBound: pair("280m", "100Mi")}}}
	_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	policyFor(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, sharing(loadlinev1alpha1.SharingOn))

	awaitShares(t, w, "160m", true)
	policies := cluster.VPA.LoadlineV1alpha1().SizingPolicies()
	p, err := policies.Get(t.Context(), w.Namespace, metav1.GetOptions{})
	require.NoError(t, err)
	c := meta.FindStatusCondition(p.Status.Conditions, "Sharing")
	require.NotNil(t, c)
	require.Equal(t, metav1.ConditionTrue, c.Status, c.Message)
	require.Equal(t, "pods that share: 3", c.Message)

	_, err = policies.Patch(t.Context(), w.Namespace, types.MergePatchType, []byte(`{"spec":{"sharing":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	awaitShares(t, w, "280m", false)
	for _, pod := range pods(t, w) {
		require.True(t, slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == pod.UID }), "nobody was evicted")
		require.Zero(t, restarts(&pod))
	}
}

// awaitShares waits until all pods of a workload have so much CPU, and whether they are marked as
// those that share.
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
