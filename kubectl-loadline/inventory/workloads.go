package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// Workload is a workload with its pods.
type Workload struct {
	Key  target.Key
	Pods []*corev1.Pod
	VPA  *VPA // nil: no VPA controls it

	Ranges     policy.Ranges // of its namespace
	Containers []string      // names in its pod template
	Immutable  string        // reason why its pod template cannot be changed, or empty
}

// Selection selects workloads.
type Selection struct {
	Selector labels.Selector // selects pods
	Names    []string        // KIND/NAME in lower case, or NAME. Empty: all
	Unsized  bool            // only workloads without a VPA
}

// selects reports whether a workload is selected, and marks the names that match it.
func (s *Selection) selects(key target.Key, named map[string]bool) bool {
	wanted := len(s.Names) == 0
	for _, name := range s.Names {
		if name == key.Name || strings.ToLower(name) == strings.ToLower(key.Kind)+"/"+key.Name {
			wanted, named[name] = true, true
		}
	}
	return wanted
}

const podKind = "Pod"

func skippedPod(pod *corev1.Pod) string {
	why := "no controller owns it"
	if len(pod.OwnerReferences) > 0 && pod.OwnerReferences[0].Kind == "Node" {
		why = "it is a static pod, which a file of its node defines"
	}
	return fmt.Sprintf("pod %s is left out: %s", cli.PodName(pod), why)
}

// Workloads returns the selected workloads that have pods, the names that matched, and problems with other workloads.
func (s *Reader) Workloads(
	ctx context.Context, q Request, scope Selection,
) (all []*Workload, named map[string]bool, problems []string, err error) {
	pods, err := LivePods(ctx, q)
	if err != nil {
		return nil, nil, nil, err
	}
	found := map[target.Key]*Workload{}
	named = map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		if !scope.Selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences)
		if !owned {
			if scope.selects(target.Key{Kind: podKind, Name: pod.Name}, named) {
				problems = append(problems, skippedPod(pod))
			}
			continue
		}
		top, _, err := s.Owners.Topmost(ctx, owner)
		if err != nil {
			problems = append(problems, fmt.Sprintf("pod %s: %v", cli.PodName(pod), err))
			continue
		}
		if top == (target.Key{}) {
			top = owner
		}
		if !scope.selects(top, named) {
			continue
		}
		by, err := s.Controlling(ctx, pod)
		if err != nil {
			problems = append(problems, fmt.Sprintf("pod %s: %v", cli.PodName(pod), err))
			continue
		}
		if scope.Unsized && by != nil {
			if len(scope.Names) > 0 {
				problems = append(problems, fmt.Sprintf("%s in namespace %s is left out: VPA %s controls it", top, top.Namespace, by.Object.Name))
			}
			continue
		}
		w := found[top]
		if w == nil {
			w = &Workload{Key: top, VPA: by, Ranges: s.limitRanges(ctx, top.Namespace)}
			w.Containers, w.Immutable = s.template(ctx, top)
			found[top] = w
		}
		w.Pods = append(w.Pods, pod)
	}
	slices.Sort(problems)
	all = slices.SortedFunc(maps.Values(found), func(a, b *Workload) int { return target.CompareKeys(a.Key, b.Key) })
	return all, named, slices.Compact(problems), nil
}

func (s *Reader) template(ctx context.Context, key target.Key) (containers []string, fixed string) {
	template, owner, owned, err := s.Owners.Template(ctx, key)
	switch {
	case err != nil:
		return nil, err.Error()
	case template == nil:
		return nil, "the form of its kind is unknown, set the resources in its manifest"
	case owned:
		return nil, fmt.Sprintf("%s owns it and would undo a change, set the resources there", owner)
	case IsJob(key):
		return nil, "the pod template of a Job is immutable, set the resources in the manifest that creates it"
	}
	for i := range template.Spec.Containers {
		containers = append(containers, template.Spec.Containers[i].Name)
	}
	return containers, ""
}

// IsJob reports whether a workload is a Job.
func IsJob(key target.Key) bool {
	kind := key.GroupKind()
	return kind.Group == "batch" && kind.Kind == "Job"
}

// Rollout is the rollout state of a workload under its SizingPolicy, if there is one.
type Rollout struct {
	sizing.WorkloadStatus

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
	r.Now, r.Settings, r.Safety = now, convert.RolloutSettings(r.Object), convert.Safety(r.Object)
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
