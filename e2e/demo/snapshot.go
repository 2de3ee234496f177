package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// amounts are CPU in millicores and memory in bytes.
type amounts struct{ cpu, memory int64 }

// podState is one pod at one moment. Each pod of the demo has one container.
type podState struct {
	workload, name string
	uid            types.UID
	phase          corev1.PodPhase
	request, limit amounts
	usage          *amounts // nil: not in the metrics API yet
	restarts       int32
	granted        amounts   // limits in force on its node
	oomKilled      bool      // the last restart was an OOM kill
	killed         time.Time // time of the kill
	resized        bool      // in place, by the updater
}

// bounds are a VPA's recommendation for the container.
type bounds struct{ lower, target, upper amounts }

// snapshot is the state of the demo, read once a second.
type snapshot struct {
	at   time.Time
	pods []podState
	vpas map[string]bounds // by workload, without missing recommendations

	rollouts []rollout // of the second act
	events   []event   // of the second act
}

func (s snapshot) running() (n int) {
	pods := slices.Clone(s.pods)
	for _, r := range s.rollouts {
		pods = append(pods, r.pods...)
	}
	for _, p := range pods {
		if p.phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

func readSnapshot(ctx context.Context, cluster *harness.Cluster) (snapshot, error) {
	s := snapshot{at: time.Now(), vpas: map[string]bounds{}}
	usage := currentUsage(ctx, cluster)
	for _, w := range workloads() {
		list, err := cluster.Pods(ctx, w.Workload)
		if err != nil {
			return s, err
		}
		for _, pod := range list {
			s.pods = append(s.pods, stateOf(w.Name, &pod, usage))
		}
		vpa, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(namespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return s, fmt.Errorf("get VPA %s: %w", w.Name, err)
		}
		if b, ok := boundsOf(vpa); ok {
			s.vpas[w.Name] = b
		}
	}
	slices.SortFunc(s.pods, func(a, b podState) int {
		return cmp.Or(cmp.Compare(a.workload, b.workload), cmp.Compare(a.name, b.name))
	})
	var err error
	s.rollouts, s.events, err = readRollouts(ctx, cluster)
	return s, err
}

// boundsOf returns the recommendation of a VPA for its container, or false without one.
func boundsOf(vpa *vpav1.VerticalPodAutoscaler) (bounds, bool) {
	r := vpa.Status.Recommendation
	if r == nil || len(r.ContainerRecommendations) != 1 {
		return bounds{}, false
	}
	c := r.ContainerRecommendations[0]
	return bounds{lower: amountsOf(c.LowerBound), target: amountsOf(c.Target), upper: amountsOf(c.UpperBound)}, true
}

func stateOf(workload string, pod *corev1.Pod, usage map[string]amounts) podState {
	p := podState{
		workload: workload, name: pod.Name, uid: pod.UID, phase: pod.Status.Phase,
		request: amountsOf(pod.Spec.Containers[0].Resources.Requests),
		limit:   amountsOf(pod.Spec.Containers[0].Resources.Limits),
		resized: pod.Annotations["vpaInPlaceUpdated"] == "true",
	}
	if u, ok := usage[pod.Name]; ok {
		p.usage = &u
	}
	for _, status := range pod.Status.ContainerStatuses {
		p.restarts += status.RestartCount
		if status.Resources != nil {
			p.granted = amountsOf(status.Resources.Limits)
		}
		if last := status.LastTerminationState.Terminated; last != nil && last.Reason == "OOMKilled" {
			p.oomKilled, p.killed = true, last.FinishedAt.Time
		}
	}
	return p
}

func amountsOf(list corev1.ResourceList) amounts {
	return amounts{cpu: list.Cpu().MilliValue(), memory: list.Memory().Value()}
}

// currentUsage reads the metrics API, which may be empty at first.
func currentUsage(ctx context.Context, cluster *harness.Cluster) map[string]amounts {
	usage := map[string]amounts{}
	client, err := metricsclient.NewForConfig(cluster.Config)
	if err != nil {
		return usage
	}
	list, err := client.MetricsV1beta1().PodMetricses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return usage
	}
	for _, pod := range list.Items {
		for _, container := range pod.Containers {
			usage[pod.Name] = amountsOf(container.Usage)
		}
	}
	return usage
}

// cpuText and memoryText format an amount, or return "-" for 0.
func cpuText(milli int64) string {
	if milli == 0 {
		return "-"
	}
	return resource.NewMilliQuantity(milli, resource.DecimalSI).String()
}

func memoryText(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%dMi", (bytes+1<<19)>>20)
}
