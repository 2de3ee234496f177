package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/e2e/replay"
	"loadline.dev/loadline/pkg/core/recipe"
)

// replayedWorkload plays a recording: an unscheduled pod with the test as its kubelet, and a VPA in
// mode Off with a recipe.
type replayedWorkload struct {
	harness.Workload
	*replay.Pod
	recipe    string
	story     replay.Story          // from the backtester
	compared  []corev1.ResourceName // resources to compare
	restarted int
}

// deploy creates the workload with a running pod. An empty memory limit means none.
func deploy(t *testing.T, ns, recommender, text string, r *replay.Recording, memoryLimit string) *replayedWorkload {
	t.Helper()
	name := r.Name + "-" + strings.NewReplacer(":", "-", "=", "-", ",", "-", ".", "-").Replace(text)
	l := &replayedWorkload{recipe: text, compared: kinds, Pod: &replay.Pod{Namespace: ns, Recording: r}, Workload: harness.Workload{
		Namespace: ns, Name: name, Replicas: 1, Scheduler: "nobody",
		Containers: []harness.Container{{Name: replay.Container, CPU: r.CPURequest, Memory: r.MemoryRequest, MemoryLimit: memoryLimit}},
	}}
	require.NoError(t, cluster.CreateWorkload(t.Context(), l.Workload))
	eventually(t, "the pod of "+name, func() error {
		found := pods(t, l.Workload)
		if len(found) != 1 {
			return fmt.Errorf("there are %d", len(found))
		}
		l.Pod.Name = found[0].Name
		return nil
	})
	l.report(t, func(pod *corev1.Pod, c *corev1.ContainerStatus) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		c.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.Start)}
	})
	require.NoError(t, cluster.CreateVPA(t.Context(), l.Workload, vpav1.UpdateModeOff, withRecommender(recommender), func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Annotations = map[string]string{recipe.Annotation: text}
	}))
	return l
}

// report changes the status of the pod like a kubelet that has applied the spec.
func (l *replayedWorkload) report(t *testing.T, change func(*corev1.Pod, *corev1.ContainerStatus)) {
	t.Helper()
	client := cluster.Kube.CoreV1().Pods(l.Pod.Namespace)
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod, err := client.Get(t.Context(), l.Pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) == 0 {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: replay.Container, Image: "recorded", ImageID: "recorded", ContainerID: l.containerID(), Ready: true, Started: new(true),
			}}
		}
		c := &pod.Status.ContainerStatuses[0]
		c.Resources = pod.Spec.Containers[0].Resources.DeepCopy()
		c.AllocatedResources = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
		change(pod, c)
		_, err = client.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		return err
	}), "status of pod %s", l.Pod.Name)
}

func (l *replayedWorkload) containerID() string {
	return fmt.Sprintf("recorded://%s/%d", l.Pod.Name, l.restarted)
}

// kill reports that the container was OOM-killed and runs again.
func (l *replayedWorkload) kill(t *testing.T, at, again time.Time) {
	t.Helper()
	former := l.containerID()
	l.restarted++
	l.report(t, func(_ *corev1.Pod, c *corev1.ContainerStatus) {
		c.RestartCount, c.ContainerID = int32(l.restarted), l.containerID()
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", ExitCode: 137, ContainerID: former, StartedAt: c.State.Running.StartedAt, FinishedAt: metav1.NewTime(at),
		}
		c.State.Running.StartedAt = metav1.NewTime(again)
	})
}

func (l *replayedWorkload) resize(t *testing.T, to string) {
	t.Helper()
	client := cluster.Kube.CoreV1().Pods(l.Pod.Namespace)
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod, err := client.Get(t.Context(), l.Pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		request := resource.MustParse(to)
		c := &pod.Spec.Containers[0]
		c.Resources.Requests[corev1.ResourceMemory] = request
		if _, limited := c.Resources.Limits[corev1.ResourceMemory]; limited {
			c.Resources.Limits[corev1.ResourceMemory] = *limitOf(request)
		}
		_, err = client.UpdateResize(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
		return err
	}), "resize pod %s to %s", l.Pod.Name, to)
	l.report(t, func(*corev1.Pod, *corev1.ContainerStatus) {})
}

// memoryHeadroom is the ratio of limit and request, for the backtester's flag. limitOf computes it
// without fractions.
const memoryHeadroom = "1.2"

func limitOf(request resource.Quantity) *resource.Quantity {
	return resource.NewQuantity(request.Value()*6/5, resource.BinarySI)
}

func (l *replayedWorkload) key(kind corev1.ResourceName) replay.Key {
	return replay.Key{Workload: l.Recording.Name, Recipe: l.recipe, Resource: kind}
}

// differences compares the published recommendation with the backtester's for each resource. want
// returns false if there must be none.
func (l *replayedWorkload) differences(t *testing.T, want func(replay.Key) (replay.Event, bool)) []string {
	t.Helper()
	vpa := getVPA(t, l.Workload)
	if vpa.Status.Recommendation == nil || len(vpa.Status.Recommendation.ContainerRecommendations) != 1 {
		return []string{fmt.Sprintf("VPA %s: there is no recommendation: %+v", l.Workload.Name, vpa.Status)}
	}
	got := vpa.Status.Recommendation.ContainerRecommendations[0]
	var found []string
	for _, kind := range l.compared {
		e, some := want(l.key(kind))
		for _, field := range []struct {
			name string
			list corev1.ResourceList
			want string
		}{
			{name: "lowerBound", list: got.LowerBound, want: e.Lower},
			{name: "target", list: got.Target, want: e.Target},
			{name: "upperBound", list: got.UpperBound, want: e.Upper},
			{name: "uncappedTarget", list: got.UncappedTarget, want: e.Target},
		} {
			is, there := field.list[kind]
			expected := "nothing"
			if some {
				expected = field.want
			}
			if there != some || some && is.Cmp(resource.MustParse(field.want)) != 0 {
				text := "nothing"
				if there {
					text = is.String()
				}
				found = append(found, fmt.Sprintf("VPA %s, container %s, %s, %s: the recommender says %s, the backtester %s",
					l.Workload.Name, got.ContainerName, kind, field.name, text, expected))
			}
		}
	}
	return found
}

func recordings(names ...string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join("..", "testdata", "traces", name+".csv.gz"))
	}
	return paths
}

func pluginBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join("..", "bin", "kubectl-loadline")
	require.FileExists(t, path, "`make plugin` builds it")
	return path
}

func runPlugin(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), pluginBinary(t), append(args, "--kubeconfig", cluster.Kubeconfig())...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}
