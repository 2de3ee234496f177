package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
)

// Rollout is the rollout state of a workload under its SizingPolicy, if there is one.
type Rollout struct {
	sizing.Standing

	Now      time.Time
	Settings rollout.Settings
	Safety   rollout.Safety
	Target   []policy.Container // recommended requests
	Pods     []corev1.Pod       // of the workload, sorted by name
	// ShortHistory: the recommendation rests on less usage than the policy requires.
	ShortHistory bool
}

// Complete reads the pods. It returns a description of unknown parts.
func (r *Rollout) Complete(ctx context.Context, kube kubernetes.Interface, vpa *vpav1.VerticalPodAutoscaler, now time.Time) (problem string) {
	if r.Object == nil {
		return ""
	}
	r.ShortHistory = r.Policy != nil && r.Mode > fleet.Recommend && convert.AnyHasShortHistory(vpa, r.Policy.MinHistory)
	r.Now, r.Settings, r.Safety = now, convert.Rollout(r.Object), convert.Safety(r.Object)
	for name, bounds := range convert.Recommendation(vpa.Status.Recommendation) {
		r.Target = append(r.Target, policy.Container{Name: name, Requests: bounds.Target})
	}
	slices.SortFunc(r.Target, func(a, b policy.Container) int { return strings.Compare(a.Name, b.Name) })
	if r.Selector != nil {
		list, err := kube.CoreV1().Pods(vpa.Namespace).List(ctx, metav1.ListOptions{LabelSelector: r.Selector.String()})
		if err != nil {
			problem = fmt.Sprintf("it is not known which pods are under observation: list pods: %v", err)
		} else {
			r.Pods = list.Items
		}
	}
	slices.SortFunc(r.Pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return problem
}
