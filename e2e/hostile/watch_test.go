package hostile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Namespaces of users who must not be affected. The webhook ignores the last one.
const (
	victimNamespace  = "victim"
	evictedNamespace = "evicted"
	unseenNamespace  = "unseen"
)

// probe repeats an operation of the victim and records its durations.
type probe struct {
	name string
	once func(ctx context.Context, round int) (time.Duration, error)
	rest time.Duration // between repetitions
	// ready waits for a precondition. The wait is not part of the duration.
	ready func(ctx context.Context) error

	mu     sync.Mutex
	begun  time.Time // start of the repetition in progress
	delays []delay
	err    error
}

type delay struct {
	begun time.Time
	took  time.Duration
}

const deadline = 3 * time.Minute

func (p *probe) run(ctx context.Context) {
	for round := 0; ctx.Err() == nil; round++ {
		if p.ready != nil && p.ready(ctx) != nil {
			return
		}
		begun := time.Now()
		p.mu.Lock()
		p.begun = begun
		p.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, deadline)
		took, err := p.once(limited, round)
		cancel()
		p.mu.Lock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			p.err = errors.Join(p.err, fmt.Errorf("%s: %w", p.name, err))
		default:
			p.delays = append(p.delays, delay{begun, took})
		}
		p.begun = time.Time{}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(max(p.rest, 500*time.Millisecond)):
		}
	}
}

// since returns the number of repetitions that ended after start, and the longest duration,
// including the one in progress.
func (p *probe) since(start time.Time) (count int, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.delays {
		if d.begun.Add(d.took).After(start) {
			count, longest = count+1, max(longest, d.took)
		}
	}
	if !p.begun.IsZero() {
		longest = max(longest, time.Since(p.begun))
	}
	return count, longest
}

type victim struct {
	work      []*probe // delayed by at most 10 s
	creations *probe   // of pods, delayed by at most one second
	unseen    *probe   // creations that the webhook does not receive
	undelayed map[*probe]time.Duration
}

func startVictim(t *testing.T) *victim {
	t.Helper()
	ctx := t.Context()
	creations := func(name, namespace string) *probe {
		require.NoError(t, cluster.CreateNamespace(ctx, namespace))
		return &probe{name: name, once: func(ctx context.Context, round int) (time.Duration, error) { return created(ctx, namespace, round) }}
	}
	v := &victim{
		creations: creations("creation of a pod", victimNamespace), unseen: creations("creation of a pod without the webhook", unseenNamespace),
		undelayed: map[*probe]time.Duration{},
	}
	require.NoError(t, cluster.CreateNamespace(ctx, evictedNamespace))
	for i := range 3 {
		require.NoError(t, cluster.CreateWorkload(ctx, victimWorkload(numbered("recommended", i), 2)))
	}
	resized, evicted := victimWorkload("resized", 4), victimWorkload("evicted", 4)
	evicted.Namespace = evictedNamespace
	require.NoError(t, cluster.CreateWorkload(ctx, resized))
	// The tenant keeps the controllers of Deployments and ReplicaSets so busy that they replace
	// evicted pods after minutes.
	template := evicted.Template()
	_, err := cluster.Kube.AppsV1().StatefulSets(evicted.Namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: evicted.Name},
		Spec: appsv1.StatefulSetSpec{Replicas: &evicted.Replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, w := range []struct {
		harness.Workload
		mode vpav1.UpdateMode
		kind string
	}{
		{Workload: resized, mode: vpav1.UpdateModeInPlaceOrRecreate, kind: "Deployment"},
		{Workload: evicted, mode: vpav1.UpdateModeRecreate, kind: "StatefulSet"},
	} {
		require.NoError(t, cluster.CreateVPA(ctx, w.Workload, w.mode, func(vpa *vpav1.VerticalPodAutoscaler) {
			vpa.Spec.TargetRef.Kind = w.kind
			vpa.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "victim"}}
		}))
	}
	v.work = []*probe{
		{name: "recommendation", once: recommended},
		{name: "resize", once: func(ctx context.Context, round int) (time.Duration, error) {
			return changed(ctx, resized, round, func(pod *corev1.Pod, cpu string) bool {
				return pod.Spec.Containers[0].Resources.Requests.Cpu().String() == cpu
			})
		}},
		// Each check before an eviction uses part of the time that a namespace has per minute.
		{name: "eviction", rest: 15 * time.Second, ready: func(ctx context.Context) error { return allRun(ctx, evicted) },
			once: func(ctx context.Context, round int) (time.Duration, error) {
				return changed(ctx, evicted, round, func(pod *corev1.Pod, _ string) bool { return pod.DeletionTimestamp != nil })
			}},
	}
	for _, d := range programs {
		v.work = append(v.work, &probe{name: "probe of the " + d.Name, once: func(ctx context.Context, _ int) (time.Duration, error) { return alive(ctx, d) }})
	}
	for _, p := range append(v.work, v.creations, v.unseen) {
		go p.run(ctx)
	}
	return v
}

func victimWorkload(name string, replicas int32) harness.Workload {
	return harness.Workload{Namespace: victimNamespace, Name: name, Replicas: replicas,
		Containers: []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}}, Annotations: harness.Uses("app", "50m", "80Mi")}
}

func recommended(ctx context.Context, round int) (time.Duration, error) {
	w := victimWorkload(numbered("recommended", round%3), 2)
	begun := time.Now()
	if err := cluster.CreateVPA(ctx, w, vpav1.UpdateModeOff); err != nil {
		return 0, err
	}
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(w.Namespace)
	err := await(ctx, func(ctx context.Context) (bool, error) {
		vpa, err := vpas.Get(ctx, w.Name, metav1.GetOptions{})
		return err == nil && vpa.Status.Recommendation != nil && len(vpa.Status.Recommendation.ContainerRecommendations) > 0, err
	})
	took := time.Since(begun)
	return took, errors.Join(err, vpas.Delete(ctx, w.Name, metav1.DeleteOptions{}))
}

// changed raises the recommendation of a workload and returns the time to the first changed pod.
func changed(ctx context.Context, w harness.Workload, round int, is func(pod *corev1.Pod, cpu string) bool) (time.Duration, error) {
	before, err := cluster.Pods(ctx, w)
	if err != nil {
		return 0, err
	}
	cpu, begun := fmt.Sprintf("%dm", 130+20*round), time.Now()
	if err := recommend(ctx, w, cpu); err != nil {
		return 0, err
	}
	err = await(ctx, func(ctx context.Context) (bool, error) {
		all, err := cluster.Kube.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.Name})
		if err != nil {
			return false, err
		}
		stored := map[types.UID]bool{}
		for i := range all.Items {
			if stored[all.Items[i].UID] = true; is(&all.Items[i], cpu) {
				return true, nil
			}
		}
		return slices.ContainsFunc(before, func(pod corev1.Pod) bool { return !stored[pod.UID] }), nil
	})
	return time.Since(begun), err
}

func allRun(ctx context.Context, w harness.Workload) error {
	return await(ctx, func(ctx context.Context) (bool, error) {
		pods, err := cluster.Pods(ctx, w)
		return len(pods) == int(w.Replicas) && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning }), err
	})
}

func created(ctx context.Context, namespace string, round int) (time.Duration, error) {
	template := victimWorkload("recommended-0", 1).Template()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = numbered("created", round)
	begun := time.Now()
	_, err := cluster.Kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	took := time.Since(begun)
	if err != nil {
		return 0, err
	}
	return took, cluster.Kube.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
}

// alive repeats the liveness probe of the manifests. A kubelet restarts the container after three
// failures in a row.
func alive(ctx context.Context, d *harness.Daemon) (time.Duration, error) {
	begun := time.Now()
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for failures := 0; ; {
		response, err := client.Get("http://" + d.Address + "/health-check")
		if err == nil {
			err = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
		}
		if err == nil {
			return time.Since(begun), nil
		}
		if failures++; failures == 3 {
			return 0, fmt.Errorf("a kubelet would restart the container: %w", err)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(10 * time.Second):
		}
	}
}

// await polls until a condition is met. Errors of single requests are retried.
func await(ctx context.Context, condition func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (done bool, _ error) {
		done, last = condition(ctx)
		return done, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
