package updater

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

const podsPerVPA = 2

// crowd is a number of VPAs for one updater.
type crowd struct {
	cluster *harness.Cluster
	subject subject
	vpas    int
}

func (c crowd) namespace() string { return fmt.Sprintf("rush-%s-%d", c.subject.name, c.vpas) }
func (c crowd) pods() int         { return c.vpas * podsPerVPA }

func (c crowd) workload(i int) harness.Workload {
	return harness.Workload{Namespace: c.namespace(), Name: fmt.Sprintf("app-%d", i), Replicas: podsPerVPA,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}},
		Annotations: harness.Uses("app", "50m", "50Mi")}
}

// recommended is the recommendation for every pod.
func recommended() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("200Mi")}
}

// fill creates the Deployments, waits for their pods, and recommends more.
func (c crowd) fill(ctx context.Context) error {
	if err := c.cluster.CreateNamespace(ctx, c.namespace()); err != nil {
		return err
	}
	if err := harness.Each(ctx, c.vpas, func(ctx context.Context, i int) error { return c.cluster.CreateWorkload(ctx, c.workload(i)) }); err != nil {
		return err
	}
	if err := c.await(ctx, "pods that run", c.pods(), c.ready); err != nil {
		return err
	}
	return harness.Each(ctx, c.vpas, c.recommend)
}

// recommend creates one VPA with a nonexistent recommender.
func (c crowd) recommend(ctx context.Context, i int) error {
	w := c.workload(i)
	if err := c.cluster.CreateVPA(ctx, w, vpav1.UpdateModeInPlaceOrRecreate, func(v *vpav1.VerticalPodAutoscaler) {
		v.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "nobody"}}
	}); err != nil {
		return err
	}
	vpas := c.cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	vpa, err := vpas.Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("recommend for VPA %s/%s: %w", w.Namespace, w.Name, err)
	}
	target := recommended()
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: target, Target: target, UpperBound: target}}}
	if _, err = vpas.UpdateStatus(ctx, vpa, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("recommend for VPA %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

func (c crowd) ready(ctx context.Context) (n int, err error) {
	list, err := c.cluster.Kube.AppsV1().Deployments(c.namespace()).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, err
	}
	for _, d := range list.Items {
		n += int(d.Status.ReadyReplicas)
	}
	return n, nil
}

// check requires that every pod requests the recommended resources.
func (c crowd) check(ctx context.Context) error {
	list, err := c.cluster.Kube.CoreV1().Pods(c.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	target, sized := recommended(), 0
	for _, pod := range list.Items {
		has := pod.Spec.Containers[0].Resources.Requests
		if has.Cpu().Cmp(*target.Cpu()) == 0 && has.Memory().Cmp(*target.Memory()) == 0 {
			sized++
		}
	}
	if sized != c.pods() || len(list.Items) != c.pods() {
		return fmt.Errorf("%d of %d pods have what is recommended, expected %d", sized, len(list.Items), c.pods())
	}
	return nil
}

// remove deletes all objects and waits for their removal, so that the next crowd is alone.
func (c crowd) remove(ctx context.Context) error {
	if _, err := c.cluster.KubectlOutput(ctx, "delete", "namespace", c.namespace(), "--wait=false"); err != nil {
		return err
	}
	return c.await(ctx, "namespaces that are gone", 1, func(ctx context.Context) (int, error) {
		list, err := c.cluster.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + c.namespace()})
		if err != nil {
			return 0, err
		}
		return 1 - len(list.Items), nil
	})
}

const maxWait = 30 * time.Minute

func (c crowd) await(ctx context.Context, what string, n int, count func(context.Context) (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for {
		is, err := count(ctx)
		if err != nil {
			return fmt.Errorf("count %s: %w", what, err)
		}
		if is >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d %s: %w", is, n, what, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
