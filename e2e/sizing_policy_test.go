package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	policy "loadline.dev/loadline/pkg/core/fleet"
)

// createPolicy creates a policy for four workload kinds in a namespace, with the name of the
// namespace.
func createPolicy(t *testing.T, ns string, mode loadlinev1alpha1.RolloutMode, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) {
	t.Helper()
	p := &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}},
			Workloads: []loadlinev1alpha1.WorkloadSelection{
				{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"},
				{APIVersion: "apps/v1", Kind: "DaemonSet"}, {APIVersion: "batch/v1", Kind: "CronJob"},
			},
			Rollout: &loadlinev1alpha1.Rollout{Mode: &mode, MinHistory: &metav1.Duration{}},
		},
	}
	for _, change := range changes {
		change(&p.Spec)
	}
	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
}

func deletePolicy(t *testing.T, ns string) {
	t.Helper()
	if err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Delete(t.Context(), ns, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

func awaitGeneratedVPA(t *testing.T, ns, name string) (made *vpav1.VerticalPodAutoscaler) {
	t.Helper()
	eventually(t, "there is a VPA "+ns+"/"+name, func() (err error) {
		made, err = cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(ns).Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	return made
}

// One policy generates VPAs for the workloads of a namespace. After its deletion they are marked as
// unselected. No pod is changed.
func TestSizingPolicy_GeneratesAndMarksVPAs(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "fleet", 2)
	before := startWorkload(t, w)
	job, set := w, w
	job.Name, set.Name = "report", "db"
	createCronJob(t, job)
	selector := &metav1.LabelSelector{MatchLabels: set.Template().Labels}
	_, err := cluster.Kube.AppsV1().StatefulSets(w.Namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: set.Name}, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: set.Template(), Replicas: new(int32)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	custom := harness.Workload{Namespace: w.Namespace, Name: "fleet", Replicas: 2, Containers: []harness.Container{{Name: "app"}}}
	uid := createFleet(t, custom)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeRecommend, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Workloads = append(s.Workloads, loadlinev1alpha1.WorkloadSelection{APIVersion: "example.com/v1", Kind: "Fleet", Name: "fleet"})
	})
	ofFleet := policy.GeneratedVPAName("Fleet", "example.com", "fleet")
	for _, name := range []string{"statefulset-db", "cronjob-report", "deployment-web", ofFleet} {
		made := awaitGeneratedVPA(t, w.Namespace, name)
		require.Equal(t, vpav1.UpdateModeOff, *made.Spec.UpdatePolicy.UpdateMode)
		require.Equal(t, w.Namespace, made.Labels[policy.PolicyLabel])
		require.Len(t, made.OwnerReferences, 1)
	}
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "fleet", UID: types.UID(uid)}}, awaitGeneratedVPA(t, w.Namespace, ofFleet).OwnerReferences)
	for _, name := range []string{"deployment-web", ofFleet} {
		made := w
		made.Name = name
		awaitRecommendation(t, made)
	}
	awaitSkipped(t, w.Namespace, "RecommendOnly")
	eventually(t, "the policy says what came of it", func() error {
		p, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), w.Namespace, metav1.GetOptions{})
		if err == nil && (p.Status.Counts == nil || p.Status.Counts.Selected != 4 || p.Status.Counts.WithRecommendation != 2) {
			err = fmt.Errorf("%+v", p.Status)
		}
		return err
	})
	forIterations(t, updater, 10, func() { requireSameSizes(t, w, before) })

	deletePolicy(t, w.Namespace)
	awaitSkipped(t, w.Namespace, "PolicyUnknown")
	eventually(t, "the VPAs are marked", func() error {
		if _, marked := awaitGeneratedVPA(t, w.Namespace, "deployment-web").Annotations[policy.UnselectedAnnotation]; !marked {
			return errors.New("no annotation")
		}
		return nil
	})
	requireUnchanged(t, w, before)
}

func TestSizingPolicy_ModeRecommendHoldsUserVPA(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "held", 2)
	before := startWorkload(t, w)
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeRecommend)
	awaitGeneratedVPA(t, w.Namespace, "deployment-web")
	createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, larger)
	awaitSkipped(t, w.Namespace, "RecommendOnly")
	forIterations(t, updater, 10, func() {
		for i, pod := range pods(t, w) {
			require.Equal(t, before[i].UID, pod.UID)
			require.Equal(t, before[i].Annotations, pod.Annotations)
			require.Equal(t, before[i].Spec, pod.Spec)
		}
	})
	eventually(t, "the made VPA gives way", func() error {
		if _, marked := awaitGeneratedVPA(t, w.Namespace, "deployment-web").Annotations[policy.UnselectedAnnotation]; !marked {
			return errors.New("it is not marked")
		}
		return nil
	})
	deletePolicy(t, w.Namespace)
	awaitSized(t, w, "300m")
	require.Equal(t, before[0].UID, pods(t, w)[0].UID, "in place")
}

// The error lists all invalid fields.
func TestSizingPolicy_RejectsInvalidFields(t *testing.T) {
	sequentialTest(t)
	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "wrong"},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Recipe:     new("soup"),
			Rollout:    &loadlinev1alpha1.Rollout{Schedule: &loadlinev1alpha1.Schedule{Timezone: new("Europe/Atlantis")}},
		},
	}, metav1.CreateOptions{})
	require.ErrorContains(t, err, `spec.recipe: Invalid value: "soup"`)
	require.ErrorContains(t, err, `spec.rollout.schedule.timezone: Invalid value: "Europe/Atlantis"`)
}
