package admission

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/target"
)

// daemonSet is the kind of workloads whose pods belong to their nodes.
const daemonSet = "DaemonSet"

// sharing returns how a new pod will share what its node has left, under the policy that is
// responsible; nil: it will not, and is sized as any other. It does so only where the updater
// says that pods of the policy share, so that both do the same.
func (h podHandler) sharing(d *fleet.Decision, vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, remembered rollout.State, now time.Time) *policy.Sharing {
	if d.Policy == nil || !h.policies.Now().Shares(d.Policy.Name) {
		return nil
	}
	everywhere := remembered.Phase == rollout.PhaseFullRollout && remembered.Hash == d.Policy.RolloutHash
	if mode, _ := d.Shares(everywhere); mode != fleet.SharingOn {
		return nil
	}
	if h.recipes.Fork().Choose(d.RecipeText(vpa.Annotations[recipe.Annotation]), d.Policy.Recipe).Sharing == nil {
		return nil
	}
	if sharing.Eligible(h.sharingFacts(d, vpa, pod, now)) != "" {
		return nil
	}
	return &policy.Sharing{
		Kinds: d.Policy.Sharing.Kinds, CPULimit: d.Policy.Sharing.CPULimit, New: true, Daemon: vpa.Spec.TargetRef.Kind == daemonSet,
	}
}

// sharingFacts returns what decides whether a new pod shares. Its node is not known: one that
// asks for a GPU will be where there are some. Where it is not known when its workload was
// created, its VPA was.
func (h podHandler) sharingFacts(d *fleet.Decision, vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, now time.Time) sharing.Facts {
	workload, _ := h.policies.Target(vpa)
	created := workload.Created
	if created.IsZero() {
		created = vpa.CreationTimestamp.Time
	}
	ref := vpa.Spec.TargetRef
	f := sharing.Facts{
		Excluded: ref.Kind == "CronJob" || ref.Kind == "Job", PodLevel: convert.SizedAsWhole(pod), Guaranteed: guaranteed(pod),
		GPUs: asksForGPUs(pod), Shared: d.Policy.Sharing.Kinds, Age: now.Sub(created), MinAge: h.sharingMinAge,
	}
	looked, recommended := h.hpas.LooksAt(target.RefKey(vpa.Namespace, ref)), convert.Recommendation(vpa.Status.Recommendation)
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		_, known := recommended[name]
		f.Recommended = f.Recommended || known
		for k, scaled := range looked.Of(name) {
			f.HPA[k] = f.HPA[k] || scaled
		}
	}
	return f
}

// guaranteed reports whether a pod will be of class Guaranteed.
func guaranteed(pod *corev1.Pod) bool {
	all := convert.NewPod(pod).Containers
	for i := range pod.Spec.InitContainers {
		r := &pod.Spec.InitContainers[i].Resources
		all = append(all, policy.Container{Requests: convert.Resources(r.Requests), Limits: convert.Resources(r.Limits)})
	}
	return disruption.Guaranteed(all)
}

func asksForGPUs(pod *corev1.Pod) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name, q := range containers[i].Resources.Limits { // extended resources have a limit
				if convert.IsGPU(name) && !q.IsZero() {
					return true
				}
			}
		}
	}
	return false
}
