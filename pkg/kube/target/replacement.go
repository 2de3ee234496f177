package target

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// replacement describes the pod that replaces an evicted pod of a workload. The zero value: it has the
// revision of the evicted one, and the eviction counts as a failure if the pod runs to completion.
type replacement struct {
	ignoresDisruption bool // a Job does not count evicted pods as failed

	label    string // of pods, that names their revision; empty: all have the same
	revision string // of a pod that is created now; empty: not known
	// held is the revision of pods whose ordinal is below a number: those below the partition of a
	// StatefulSet.
	held  string
	below int
}

// IgnoresDisruption reports whether a workload is a Job that does not count an evicted pod as a failed
// one.
func (r *Resolver) IgnoresDisruption(key Key) bool {
	return r.cached(key).replaces.ignoresDisruption
}

// KeepsRevision reports whether a pod that replaces an evicted one of this name, with these labels, has
// the same revision. Of custom workloads it is not known, and false is not returned.
func (r *Resolver) KeepsRevision(key Key, pod string, labels map[string]string) bool {
	replaces := r.cached(key).replaces
	if replaces.label == "" {
		return true
	}
	next := replaces.revision
	if replaces.below > 0 && ordinal(pod) < replaces.below {
		next = replaces.held
	}
	return next != "" && next == labels[replaces.label]
}

// ordinal returns the number at the end of the name of a pod of a StatefulSet.
func ordinal(pod string) int {
	n, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// ofStatefulSet returns which revision a StatefulSet gives new pods: with OnDelete the newest, else
// below the partition the current one. One whose controller has not seen its newest spec may have
// another.
func ofStatefulSet(s *appsv1.StatefulSet) (r replacement) {
	if s.Status.UpdateRevision == "" { // before its controller has created any pod
		return r
	}
	r.label = appsv1.ControllerRevisionHashLabelKey
	if s.Status.ObservedGeneration < s.Generation {
		return r
	}
	r.revision = s.Status.UpdateRevision
	if u := s.Spec.UpdateStrategy; u.Type != appsv1.OnDeleteStatefulSetStrategyType && u.RollingUpdate != nil && u.RollingUpdate.Partition != nil {
		r.held, r.below = s.Status.CurrentRevision, int(*u.RollingUpdate.Partition)
		if s.Spec.Ordinals != nil {
			r.below += int(s.Spec.Ordinals.Start)
		}
	}
	return r
}

// ofDaemonSet returns which revision a DaemonSet gives new pods: always the newest.
func ofDaemonSet(d *appsv1.DaemonSet) (r replacement) {
	if d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled >= d.Status.CurrentNumberScheduled {
		return r
	}
	return replacement{label: templateGeneration, revision: d.Annotations[appsv1.DeprecatedTemplateGeneration]}
}

// templateGeneration is a label of the pods of a DaemonSet.
const templateGeneration = "pod-template-generation"

// Exit codes of a container that is terminated by SIGTERM and SIGKILL.
const (
	exitedBySIGTERM = 143
	exitedBySIGKILL = 137
)

// ignoresDisruption reports whether the first rule of a policy that an evicted pod matches ignores its
// failure. Such a pod has the condition DisruptionTarget, and its containers exit as signals let
// them: with other exit codes alone no rule is taken to ignore it.
func ignoresDisruption(p *batchv1.PodFailurePolicy) bool {
	if p == nil {
		return false
	}
	for _, rule := range p.Rules {
		disrupted := slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return c.Type == corev1.DisruptionTarget && (c.Status == corev1.ConditionTrue || c.Status == "")
		})
		if rule.Action == batchv1.PodFailurePolicyActionIgnore {
			if disrupted {
				return true
			}
			continue
		}
		if disrupted || matchesSignals(rule.OnExitCodes) {
			return false
		}
	}
	return false
}

// matchesSignals reports whether a rule matches a container that a signal terminates.
func matchesSignals(r *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
	if r == nil {
		return false
	}
	by := [...]int32{exitedBySIGTERM, exitedBySIGKILL}
	in := slices.ContainsFunc(by[:], func(code int32) bool { return slices.Contains(r.Values, code) })
	all := !slices.ContainsFunc(by[:], func(code int32) bool { return !slices.Contains(r.Values, code) })
	return r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && in || r.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !all
}
