package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

// policyNamespace is the namespace of the second act, and the name of its SizingPolicy.
const policyNamespace = "demo-policy"

// The workloads of the second act: the change does not harm the first, but harms the second.
const (
	sound = "front"
	hurt  = "report"
)

// peak is the later memory need of the harmed workload: less than its request, and more than any
// measured usage.
const peak = "900Mi"

// peakDelay is the time from the resize of a canary member to the peak. A kill within a second of
// the change is no evidence.
const peakDelay = 2 * time.Second

// maxRestoreTime is the time within which memory must be restored after a kill.
const maxRestoreTime = 10 * time.Second

func underPolicy() []workload {
	return []workload{
		{
			story: "asks for more than it ever needs",
			Workload: harness.Workload{
				Namespace: policyNamespace, Name: sound, Replicas: 4,
				Containers:  []harness.Container{{Name: "app", CPU: "500m", Memory: "1Gi", MemoryLimit: "1Gi"}},
				Annotations: harness.Uses("app", "100m", "300Mi"),
			},
		},
		{
			story: "asks for what it needs now and then",
			Workload: harness.Workload{
				Namespace: policyNamespace, Name: hurt, Replicas: 4,
				Containers:  []harness.Container{{Name: "app", CPU: "60m", Memory: maxAllowed, MemoryLimit: maxAllowed}},
				Annotations: harness.Uses("app", "50m", "600Mi"),
			},
		},
	}
}

// maxAllowed is the maximum of the policy: after the kill, the recommendation exceeds the original
// request.
const maxAllowed = "1Gi"

// sizingPolicy applies changes to a quarter of the pods for the shortest possible period, and then
// promotes automatically.
func sizingPolicy() *loadlinev1alpha1.SizingPolicy {
	return &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyNamespace},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{policyNamespace}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
				{ContainerName: vpav1.DefaultContainerResourcePolicy, MaxAllowed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(maxAllowed)}},
			}},
			Rollout: &loadlinev1alpha1.Rollout{
				Mode:          new(loadlinev1alpha1.RolloutModeCanary),
				Canary:        &loadlinev1alpha1.Canary{Percentage: new(int32(25)), ObservationPeriod: &metav1.Duration{Duration: time.Minute}, AutoPromote: new(true)},
				Cooldown:      &metav1.Duration{},
				MinHistory:    &metav1.Duration{},
				MaxConcurrent: new(int32(0)),
			},
		},
	}
}

// createUnderPolicy creates the workloads of the second act. Their usage is measured during the
// first act. Nothing changes before the policy exists.
func createUnderPolicy(ctx context.Context, cluster *harness.Cluster) error {
	if err := cluster.CreateNamespace(ctx, policyNamespace); err != nil {
		return err
	}
	fmt.Printf("\nworkloads in namespace %s, which wait for a SizingPolicy:\n", policyNamespace)
	for _, w := range underPolicy() {
		c := w.Containers[0]
		fmt.Printf("  %-7s %d pods of %s CPU and %s memory: %s\n", w.Name, w.Replicas, c.CPU, c.Memory, w.story)
		if err := cluster.CreateWorkload(ctx, w.Workload); err != nil {
			return err
		}
	}
	return nil
}

// secondAct holds the demo's own steps in the second act: it creates the policy after the first
// act, and raises the memory need of the harmed workload once the canary has less memory.
type secondAct struct {
	cluster     *harness.Cluster
	began       time.Time     // creation of the policy
	smallSince  time.Time     // first seen pod with less memory
	peaked      time.Time     // increase of the memory need
	restoreTime time.Duration // longest time from kill to restored memory, 0: none yet
}

// step performs the due steps, and returns its actions and measurements.
func (a *secondAct) step(ctx context.Context, now snapshot, started time.Time) (happened []string, err error) {
	d := diary{seconds: now.at.Sub(started).Seconds()}
	switch {
	case a.began.IsZero():
		if unfinished(now) != "" {
			return nil, nil
		}
		a.began = now.at
		p := sizingPolicy()
		if _, err := a.cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create SizingPolicy %s: %w", p.Name, err)
		}
		canary := p.Spec.Rollout.Canary
		d.say("SizingPolicy %s created: mode %s, %d%% of the pods for %.0fs, then all", p.Name, *p.Spec.Rollout.Mode, *canary.Percentage, canary.ObservationPeriod.Seconds())
	case a.peaked.IsZero():
		if !a.isSmallLongEnough(now) {
			return nil, nil
		}
		a.peaked = now.at
		if err := a.raiseNeed(ctx, now.rollout(hurt)); err != nil {
			return nil, err
		}
		d.say("%s: all its containers come to need %s", hurt, peak)
	case a.restoreTime == 0:
		r := now.rollout(hurt)
		for _, p := range r.pods {
			if !p.killed.IsZero() && p.request.memory >= r.written.memory && p.granted.memory >= r.writtenLimit.memory {
				a.restoreTime = now.at.Sub(p.killed)
				d.say("%s: has its %s again, at most %s after the kill", p.name, memoryText(p.granted.memory), upward(a.restoreTime))
			}
		}
	}
	return d.lines, nil
}

// isSmallLongEnough reports whether a node lowered the memory of a member at least peakDelay ago.
func (a *secondAct) isSmallLongEnough(now snapshot) bool {
	r := now.rollout(hurt)
	for _, p := range r.pods {
		if p.granted.memory < r.writtenLimit.memory {
			if a.smallSince.IsZero() {
				a.smallSince = now.at
			}
			return now.at.Sub(a.smallSince) >= peakDelay
		}
	}
	return false
}

func (a *secondAct) raiseNeed(ctx context.Context, r rollout) error {
	var changed error
	for key, value := range harness.Uses("app", "50m", peak) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
		for _, p := range r.pods {
			_, err := a.cluster.Kube.CoreV1().Pods(policyNamespace).Patch(ctx, p.name, types.MergePatchType, patch, metav1.PatchOptions{})
			changed = errors.Join(changed, err)
		}
	}
	return changed
}

// pendingStep describes the first pending step of the second act, or returns "".
func (a *secondAct) pendingStep(s snapshot) string {
	if a.began.IsZero() {
		return "the SizingPolicy is not created"
	}
	for _, r := range s.rollouts {
		switch {
		case r.target == nil:
			return r.workload + " has no recommendation"
		case len(r.record.Rounds) == 0:
			return r.workload + " has no canary"
		}
	}
	h, f := s.rollout(hurt), s.rollout(sound)
	switch {
	case a.peaked.IsZero():
		return "no pod of " + hurt + " has less memory"
	case a.restoreTime == 0:
		return "memory of " + hurt + " is not given back"
	case !h.reverted():
		return "the record of " + hurt + " does not show the revert"
	case f.record.Phase != loadlinev1alpha1.RolloutPhaseFullRollout:
		return sound + " is not promoted"
	case f.sized() != len(f.pods):
		return fmt.Sprintf("%d of %d pods of %s have the new size", f.sized(), len(f.pods), sound)
	}
	return ""
}

// check returns an error if a claim of the second act is false.
func (a *secondAct) check(before, after snapshot) error {
	var broken []error
	if a.restoreTime > maxRestoreTime {
		broken = append(broken, fmt.Errorf("memory of %s was given back %s after the kill, later than %s", hurt, upward(a.restoreTime), maxRestoreTime))
	}
	kills := int32(0)
	for _, r := range after.rollouts {
		originals := map[types.UID]bool{}
		for _, p := range before.rollout(r.workload).pods {
			originals[p.uid] = true
		}
		for _, p := range r.pods {
			if !originals[p.uid] {
				broken = append(broken, fmt.Errorf("%s replaced a pod that could have been resized", p.name))
			}
			if p.restarts > 0 && (r.workload != hurt || !p.oomKilled) {
				broken = append(broken, fmt.Errorf("%s was restarted %d times, and not by the peak", p.name, p.restarts))
			}
			kills += p.restarts
		}
	}
	if kills != 1 {
		broken = append(broken, fmt.Errorf("%d containers of %s were killed, and not only that of the canary", kills, hurt))
	}
	if n := after.rollout(hurt).sized(); n != 0 {
		broken = append(broken, fmt.Errorf("%d pods of %s have less than they asked for", n, hurt))
	}
	return errors.Join(broken...)
}

// upward formats a duration in seconds, rounded up.
func upward(d time.Duration) string {
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}
