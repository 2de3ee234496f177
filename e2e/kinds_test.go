package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
	policy "loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/policies"
)

func withName(w harness.Workload, name string) harness.Workload {
	w.Name = name
	return w
}

// Running pods are resized in place, pods of Jobs are sized on creation. A generated VPA is deleted
// with its workload, or a day after the policy.
func TestSizingPolicy_ManagesEveryWorkloadKind(t *testing.T) {
	parallelTest(t)
	w := newWorkload(t, "kinds", 2)
	web, db, agent, report, gone := w, withName(w, "db"), withName(w, "agent"), withName(w, "report"), withName(w, "gone")
	agent.Replicas, report.Replicas = simulatedNodes, 1
	require.NoError(t, cluster.CreateWorkload(t.Context(), web))
	require.NoError(t, cluster.CreateWorkload(t.Context(), gone))
	createStatefulSet(t, db)
	createDaemonSet(t, agent)
	createCronJob(t, report)
	fleet := withName(w, "fleet")
	createFleet(t, fleet)
	run := func(job string) {
		require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "create", "job", job, "--from=cronjob/"+report.Name))
	}
	run("first")
	recommender := ownRecommender(t, "kinds")
	createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.Recommender = new("kinds")
		s.Workloads = append(s.Workloads, loadlinev1alpha1.WorkloadSelection{APIVersion: "example.com/v1", Kind: "Fleet", Name: fleet.Name})
		s.Rollout.Cooldown, s.Rollout.MaxConcurrent = &metav1.Duration{}, new(int32(0))
	})

	kinds := map[string]harness.Workload{"deployment-web": web, "statefulset-db": db, "daemonset-agent": agent, "cronjob-report": report,
		policy.GeneratedVPAName("Fleet", "example.com", fleet.Name): fleet}
	for name := range kinds {
		made := awaitGeneratedVPA(t, w.Namespace, name)
		require.Len(t, made.OwnerReferences, 1, name)
		require.Equal(t, w.Namespace, made.Labels[policy.PolicyLabel])
	}
	awaitGeneratedVPA(t, w.Namespace, "deployment-gone")

	for name, workload := range kinds {
		before := awaitRunning(t, workload)
		target := onlyContainer(t, awaitRecommendation(t, withName(workload, name))).Target
		require.NotEqual(t, "100m", target.Cpu().String())
		if name == "cronjob-report" {
			run("second")
		}
		eventually(t, "pods of "+name+" are sized", func() error {
			sized := 0
			for _, pod := range pods(t, workload) {
				if pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" {
					sized++
				}
			}
			if sized != int(workload.Replicas) {
				return fmt.Errorf("%d of %d are", sized, workload.Replicas)
			}
			return nil
		})
		for _, old := range before {
			pod, err := cluster.Kube.CoreV1().Pods(w.Namespace).Get(t.Context(), old.Name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, old.UID, pod.UID, "in place")
			if name == "cronjob-report" {
				require.Equal(t, "100m", pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "a running Job")
			}
		}
	}

	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "delete", "deployment", gone.Name))
	awaitNoVPA(t, w.Namespace, "deployment-gone")
	recommender.Stop()
	deletePolicy(t, w.Namespace)
	keeper := keeperOf(t, "kinds", w.Namespace)
	for name := range kinds {
		eventually(t, name+" is marked", func() error {
			keeper.RunOnce(t.Context(), time.Now()) // workloads without a policy are read in turns
			vpa, err := keeper.VPAs.VerticalPodAutoscalers(w.Namespace).Get(name)
			require.NoError(t, err)
			if vpa.Annotations[policy.UnselectedAnnotation] == "" {
				return errors.New("it is not")
			}
			return nil
		})
	}
	keeper.RunOnce(t.Context(), time.Now().Add(23*time.Hour))
	for name := range kinds {
		awaitGeneratedVPA(t, w.Namespace, name)
	}
	keeper.RunOnce(t.Context(), time.Now().Add(25*time.Hour))
	for name := range kinds {
		awaitNoVPA(t, w.Namespace, name)
	}
}

func createStatefulSet(t *testing.T, w harness.Workload) {
	t.Helper()
	template := w.Template()
	_, err := cluster.Kube.AppsV1().StatefulSets(w.Namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec:       appsv1.StatefulSetSpec{Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func createDaemonSet(t *testing.T, w harness.Workload) {
	t.Helper()
	template := w.Template()
	onCommonNodes(&template)
	_, err := cluster.Kube.AppsV1().DaemonSets(w.Namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func awaitNoVPA(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, ns+"/"+name+" is gone", func() error {
		_, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(ns).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// keeperOf returns the part of a recommender that manages generated VPAs, with its permissions, for
// one namespace. The test calls Pass with future times instead of waiting.
func keeperOf(t *testing.T, recommender, ns string) *policies.Keeper {
	t.Helper()
	credentials, err := cluster.Credentials(t.Context(), "recommender", "keeper-"+recommender)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", credentials)
	require.NoError(t, err)
	clients, err := client.New(config)
	require.NoError(t, err)
	core, pods, own := client.Factory(clients.Kube, ns, client.ControllerResync, ""), client.Factory(clients.Kube, ns, client.ObjectResync, ""), client.VPAFactory(clients.VPA, ns)
	scales := client.NewScales(clients.Kube)
	workloads := target.New(core, scales.Scale)
	seen, err := sizing.Watch(own, core, workloads, policy.Options{OwnNamespace: harness.SystemNamespace})
	require.NoError(t, err)
	records, err := policies.WatchRecords(own)
	require.NoError(t, err)
	vpas := own.Autoscaling().V1().VerticalPodAutoscalers()
	vpas.Informer()
	pods.Core().V1().Pods().Informer()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); core.Shutdown(); pods.Shutdown(); own.Shutdown() })
	core.Start(ctx.Done())
	pods.Start(ctx.Done())
	own.Start(ctx.Done())
	require.NoError(t, client.Sync(ctx, workloads.Synced()))
	require.NoError(t, client.Sync(ctx, seen.Synced()))
	require.NoError(t, client.Sync(ctx, records.Synced()))
	own.WaitForCacheSync(ctx.Done())
	go workloads.Run(ctx, nil)
	return &policies.Keeper{
		Client: clients.VPA, Policies: seen, Records: records, VPAs: vpas.Lister(), Pods: pods.Core().V1().Pods().Lister(), Workloads: workloads, Kinds: scales,
		Name: recommender, Namespaces: flags.Namespaces{Namespace: ns}, Metrics: policies.NewMetrics(prometheus.NewRegistry()),
	}
}
