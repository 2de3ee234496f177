package recommender

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// load is the size of the workload.
type load struct {
	vpas, pods, namespaces int
}

// filled holds the times of filling the cluster.
type filled struct {
	created, running, metered time.Duration // from the start: Deployments, pods, pods with usage
}

func (l load) namespace(i int) string { return fmt.Sprintf("scale-%d", i%l.namespaces) }

// workload returns Deployment number i. Pods of one Deployment play one recording from the same
// offset, and the next Deployment plays another one: real, noisy usage without duplicates.
func (l load) workload(i int) harness.Workload {
	replicas := l.pods / l.vpas
	if i < l.pods%l.vpas {
		replicas++
	}
	return harness.Workload{
		Namespace: l.namespace(i), Name: fmt.Sprintf("app-%d", i), Replicas: int32(replicas),
		Containers:  []harness.Container{{Name: "app", CPU: "10m", Memory: "64Mi"}},
		Annotations: harness.With(harness.Plays("app", recordings[i%len(recordings)], speed), "sim.loadline.dev/offset", offset(i).String()),
	}
}

// speed is the playback speed of the recordings.
const speed = 2

// offset is the start of Deployment number i in its recording.
func offset(i int) time.Duration { return time.Duration(i*7%600) * time.Second }

func (l load) fill(ctx context.Context, cluster *harness.Cluster) (f filled, err error) {
	start := time.Now()
	fmt.Printf("create %d Deployments with %d pods in %d namespaces\n", l.vpas, l.pods, l.namespaces)
	for i := range l.namespaces {
		if err := cluster.CreateNamespace(ctx, l.namespace(i)); err != nil {
			return f, err
		}
	}
	if err := harness.Each(ctx, l.vpas, func(ctx context.Context, i int) error { return cluster.CreateWorkload(ctx, l.workload(i)) }); err != nil {
		return f, err
	}
	f.created = time.Since(start)
	if err := await(ctx, "pods that run", l.pods, func() (int, error) {
		list, err := cluster.Kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return 0, err
		}
		ready := 0
		for _, d := range list.Items {
			ready += int(d.Status.ReadyReplicas)
		}
		return ready, nil
	}); err != nil {
		return f, err
	}
	f.running = time.Since(start)
	err = await(ctx, "pods with usage", l.pods, func() (int, error) {
		list, err := cluster.Usage.MetricsV1beta1().PodMetricses("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		return len(list.Items), nil
	})
	f.metered = time.Since(start)
	return f, err
}

// serve replaces all VPAs by new ones, and all checkpoints by checkpoints of the initial history.
func (l load) serve(ctx context.Context, cluster *harness.Cluster, o options) error {
	api := cluster.VPA.AutoscalingV1()
	for i := range l.namespaces {
		if err := api.VerticalPodAutoscalers(l.namespace(i)).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete the VPAs of %s: %w", l.namespace(i), err)
		}
		if err := api.VerticalPodAutoscalerCheckpoints(l.namespace(i)).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete the checkpoints of %s: %w", l.namespace(i), err)
		}
	}
	if err := harness.Each(ctx, l.vpas, func(ctx context.Context, i int) error {
		return cluster.CreateVPA(ctx, l.workload(i), vpav1.UpdateModeOff)
	}); err != nil || o.history == 0 {
		return err
	}
	return l.writeCheckpoints(ctx, cluster, o)
}

func recommended(ctx context.Context, cluster *harness.Cluster) (int, error) {
	list, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, vpa := range list.Items {
		if r := vpa.Status.Recommendation; r != nil && len(r.ContainerRecommendations) > 0 {
			n++
		}
	}
	return n, nil
}

const maxWait = 30 * time.Minute

// await polls count every few seconds until it reaches n.
func await(ctx context.Context, what string, n int, count func() (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for start := time.Now(); ; {
		is, err := count()
		if err != nil {
			return fmt.Errorf("count %s: %w", what, err)
		}
		fmt.Printf("  %3.0f s: %d of %d %s\n", time.Since(start).Seconds(), is, n, what)
		if is >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d %s: %w", is, n, what, ctx.Err())
		case <-time.After(5 * time.Second):
		}
	}
}
