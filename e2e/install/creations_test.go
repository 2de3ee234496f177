package install

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// creations creates pods continuously, all under one VPA.
type creations struct {
	stop func() // returns after the last creation

	mu               sync.Mutex
	created, changed int
	wrong            []string // creations that failed or were not sized
	failed           int
	last             time.Time // time of the last wrong creation
	streak           int       // sized creations since then
}

// createPods starts to create pods with a scheduling gate, so that only the webhook processes them.
func createPods(t *testing.T, w harness.Workload) *creations {
	t.Helper()
	owner, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	pod := gated(w, owner)
	ctx, cancel := context.WithCancel(t.Context())
	c := &creations{}
	var workers sync.WaitGroup
	c.stop = func() { cancel(); workers.Wait() }
	t.Cleanup(c.stop)
	for range 2 {
		workers.Go(func() {
			for ctx.Err() == nil {
				c.create(ctx, pod)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	return c
}

// gated returns a pod of the Deployment, as its controller would create it, that is never
// scheduled.
func gated(w harness.Workload, owner *appsv1.Deployment) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		GenerateName: w.Name + "-", Namespace: w.Namespace, Labels: template(w).Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner.Name, UID: owner.UID, Controller: new(true)}},
	}, Spec: template(w).Spec}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "loadline.dev/never"}}
	return pod
}

func (c *creations) create(ctx context.Context, pod *corev1.Pod) {
	pods := cluster.Kube.CoreV1().Pods(pod.Namespace)
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created++
	if err != nil {
		c.failed++
		c.note(err.Error())
		return
	}
	if sized(created) {
		c.changed++
		c.streak++
	} else {
		c.note("not sized")
	}
	_ = pods.Delete(ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func (c *creations) note(wrong string) {
	c.last, c.streak = time.Now(), 0
	c.wrong = append(c.wrong, c.last.Format("15:04:05.000 ")+wrong)
}

func (c *creations) counts() (created, changed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created, c.changed
}

// awaitSized waits until many pods in a row are sized, and returns the time of the last failure.
func (c *creations) awaitSized(t *testing.T) (last time.Time) {
	t.Helper()
	const many = 50
	before := -1
	eventually(t, 3*time.Minute, "new pods are sized", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if before < 0 {
			before = c.created
		}
		last = c.last
		if c.streak < many || c.created < before+many {
			return fmt.Errorf("the last of %d creations: %v", c.created, c.wrong[max(0, len(c.wrong)-3):])
		}
		return nil
	})
	return last
}

// advised creates a VPA in mode Initial with a fixed recommendation, and waits until the webhook
// applies it.
func advised(t *testing.T, w harness.Workload) {
	t.Helper()
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInitial, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "nobody"}}
	}))
	target := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("100Mi")}
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	vpa, err := vpas.Get(t.Context(), w.Name, metav1.GetOptions{})
	require.NoError(t, err)
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", LowerBound: target, Target: target, UpperBound: target}}}
	_, err = vpas.UpdateStatus(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, time.Minute, "new pods of "+w.Name+" are sized", func() error {
		c := &creations{}
		owner, err := cluster.Kube.AppsV1().Deployments(w.Namespace).Get(t.Context(), w.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.create(t.Context(), gated(w, owner))
		if c.changed != 1 {
			return fmt.Errorf("%v", c.wrong)
		}
		return nil
	})
}
