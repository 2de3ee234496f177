package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/core/fleet"
	vpaclient "loadline.dev/loadline/pkg/generated/clientset/versioned"
)

func (o options) workload(i int) harness.Workload {
	return harness.Workload{
		Namespace: fmt.Sprintf("load-%d", i%o.namespaces), Name: fmt.Sprintf("app-%d", i),
		Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi", CPULimit: "200m", MemoryLimit: "200Mi"}, {Name: "proxy", CPU: "50m", Memory: "64Mi"}},
	}
}

// fill creates Deployments without pods and a VPA with a recommendation for each. It returns the
// generated ReplicaSets by their Deployment.
func fill(ctx context.Context, cluster *harness.Cluster, o options) (map[string]string, error) {
	fmt.Printf("create %d Deployments and VPAs\n", o.vpas)
	start := time.Now()
	quick := *cluster.Config
	quick.QPS, quick.Burst = 2000, 2000
	var err error
	if cluster.Kube, err = kubernetes.NewForConfig(&quick); err != nil {
		return nil, err
	}
	if cluster.VPA, err = vpaclient.NewForConfig(&quick); err != nil {
		return nil, err
	}
	for i := range o.namespaces {
		if err := cluster.CreateNamespace(ctx, o.workload(i).Namespace); err != nil {
			return nil, err
		}
	}
	if o.policy {
		if err := createPolicy(ctx, cluster); err != nil {
			return nil, err
		}
	}
	if err := harness.Each(ctx, o.vpas, func(ctx context.Context, i int) error { return o.recommend(ctx, cluster, o.workload(i)) }); err != nil {
		return nil, err
	}
	fmt.Printf("  %3.0f s: all created\n", time.Since(start).Seconds())
	for {
		sets, err := cluster.Kube.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		fmt.Printf("  %3.0f s: %d ReplicaSets\n", time.Since(start).Seconds(), len(sets.Items))
		if len(sets.Items) >= o.vpas {
			owners := make(map[string]string, o.vpas)
			for _, set := range sets.Items {
				owners[set.Labels["app"]] = set.Name
			}
			return owners, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Second):
		}
	}
}

func (o options) recommend(ctx context.Context, cluster *harness.Cluster, w harness.Workload) error {
	if err := cluster.CreateWorkload(ctx, w); err != nil {
		return err
	}
	target := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("163m"), corev1.ResourceMemory: resource.MustParse("262144k")}
	recommendation := &vpav1.RecommendedPodResources{}
	for _, c := range w.Containers {
		recommendation.ContainerRecommendations = append(recommendation.ContainerRecommendations,
			vpav1.RecommendedContainerResources{ContainerName: c.Name, Target: target, LowerBound: target, UpperBound: target, UncappedTarget: target})
	}
	name, err := o.size(ctx, cluster, w)
	if err != nil {
		return err
	}
	status, err := json.Marshal(vpav1.VerticalPodAutoscalerStatus{Recommendation: recommendation})
	if err != nil {
		return err
	}
	_, err = cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"status":%s}`, status), metav1.PatchOptions{}, "status")
	return err
}

// size creates the VPA of a workload: a user VPA, or under a policy a generated VPA with a record
// of changes. It returns the name of the VPA.
func (o options) size(ctx context.Context, cluster *harness.Cluster, w harness.Workload) (string, error) {
	if !o.policy {
		return w.Name, cluster.CreateVPA(ctx, w, vpav1.UpdateModeInitial)
	}
	made := w
	made.Name = fleet.GeneratedVPAName("Deployment", "apps", w.Name)
	if err := cluster.CreateVPA(ctx, made, vpav1.UpdateModeOff, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Labels = map[string]string{fleet.PolicyLabel: policyName}
		vpa.Spec.TargetRef.Name = w.Name
	}); err != nil {
		return "", err
	}
	began := metav1.Now()
	record := &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Name: made.Name},
		Status: loadlinev1alpha1.SizingRecordStatus{
			Mode:   loadlinev1alpha1.RolloutModeAuto,
			Rounds: []loadlinev1alpha1.Round{{Time: began, LastChange: &began, Pods: 1, Outcome: loadlinev1alpha1.RoundSuccess}},
		},
	}
	_, err := cluster.VPA.LoadlineV1alpha1().SizingRecords(w.Namespace).Create(ctx, record, metav1.CreateOptions{})
	return made.Name, err
}

const policyName = "all"

// createPolicy creates a policy that lets generated VPAs size all new pods of Deployments.
func createPolicy(ctx context.Context, cluster *harness.Cluster) error {
	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(ctx, &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyName},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{fleet.AllNamespaces}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto)},
		},
	}, metav1.CreateOptions{})
	return err
}
