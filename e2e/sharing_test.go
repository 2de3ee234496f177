package e2e

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		// All workloads of these clusters are younger than an hour.
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "pods that do not share") && strings.Contains(line, "NewWorkload=5") {
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
