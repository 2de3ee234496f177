package target

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/kube/client"
)

// Live is a Resolver without informers: it reads each controller once from the API server. It is
// not safe for concurrent use.
type Live struct {
	kube    kubernetes.Interface
	scale   Scale
	results map[Key]liveWorkload
}

type liveWorkload struct {
	workload

	template *corev1.PodTemplateSpec // nil for kinds without informer

	selectorText string // selector in the scale subresource
	canBeTopmost bool   // can be the topmost controller
	err          error
}

// NewLive returns a resolver that reads scale subresources through scale.
func NewLive(kube kubernetes.Interface, scale Scale) *Live {
	return &Live{kube: kube, scale: scale, results: map[Key]liveWorkload{}}
}

// Topmost is like Resolver.Topmost.
func (l *Live) Topmost(ctx context.Context, start Key) (top Key, found bool, err error) {
	return topmost(ctx, start, func(ctx context.Context, key Key) ([]metav1.OwnerReference, bool, error) {
		a := l.get(ctx, key)
		return a.owners, a.canBeTopmost, a.err
	})
}

// OwnerChain is like Resolver.OwnerChain. It ends at the first controller that cannot be read.
func (l *Live) OwnerChain(ctx context.Context) func(Key) iter.Seq[Key] {
	return func(key Key) iter.Seq[Key] {
		return upward(key, func(key Key) []metav1.OwnerReference { return l.get(ctx, key).owners })
	}
}

// Replicas is like Resolver.Replicas.
func (l *Live) Replicas(ctx context.Context, key Key) (int32, bool) {
	if a := l.get(ctx, key); a.err == nil && a.replicas != nil {
		return *a.replicas, true
	}
	return 0, false
}

// Selects reports whether a workload selects pod labels. An unreadable workload selects nothing.
func (l *Live) Selects(ctx context.Context, key Key, podLabels map[string]string) bool {
	a := l.get(ctx, key)
	selector, err := client.Selector(a.selector)
	if a.selectorText != "" {
		selector, err = client.ParseSelector(a.selectorText)
	}
	return a.err == nil && err == nil && selector.Matches(labels.Set(podLabels))
}

// Template returns the pod template of a workload, nil if its kind is not well known, and the
// controller that owns the workload, if any. The template must not be modified.
func (l *Live) Template(ctx context.Context, key Key) (template *corev1.PodTemplateSpec, owner Key, owned bool, err error) {
	a := l.get(ctx, key)
	owner, owned = Controller(key.Namespace, a.owners)
	return a.template, owner, owned, a.err
}

func (l *Live) get(ctx context.Context, key Key) liveWorkload {
	a, known := l.results[key]
	if !known {
		a = l.fetch(ctx, key)
		l.results[key] = a
	}
	return a
}

func (l *Live) fetch(ctx context.Context, key Key) (a liveWorkload) {
	if key.static() {
		return a
	}
	if !key.wellKnown() {
		scale, err := l.scale(ctx, key.Namespace, key.GroupKind(), key.Name)
		switch {
		case apierrors.IsNotFound(err) || errors.Is(err, client.ErrNoScale):
			return a
		case err != nil:
			a.err = fmt.Errorf("read the scale subresource of %s: %w", key, err)
			return a
		}
		of := scaleInfoOf(scale)
		a.owners, a.replicas, a.selectorText, a.canBeTopmost = of.owners, &of.replicas, of.selector, true
		return a
	}
	object, err := Get(ctx, l.kube, key)
	if err != nil {
		a.err = fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
		return a
	}
	a.workload, a.canBeTopmost = describe(object)
	a.template = templateOf(object)
	return a
}

func templateOf(object any) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *corev1.ReplicationController:
		return o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}

// Get reads a controller of a well-known kind.
func Get(ctx context.Context, kube kubernetes.Interface, key Key) (any, error) {
	get := metav1.GetOptions{}
	switch key.Kind {
	case "Deployment":
		return kube.AppsV1().Deployments(key.Namespace).Get(ctx, key.Name, get)
	case "ReplicaSet":
		return kube.AppsV1().ReplicaSets(key.Namespace).Get(ctx, key.Name, get)
	case "StatefulSet":
		return kube.AppsV1().StatefulSets(key.Namespace).Get(ctx, key.Name, get)
	case "DaemonSet":
		return kube.AppsV1().DaemonSets(key.Namespace).Get(ctx, key.Name, get)
	case "ReplicationController":
		return kube.CoreV1().ReplicationControllers(key.Namespace).Get(ctx, key.Name, get)
	case "Job":
		return kube.BatchV1().Jobs(key.Namespace).Get(ctx, key.Name, get)
	default:
		return kube.BatchV1().CronJobs(key.Namespace).Get(ctx, key.Name, get)
	}
}

// replacement describes the pod that replaces an evicted pod of a workload. The zero value means
// the same revision, and an eviction that counts as a failure if the pod runs to completion.
type replacement struct {
	ignoresDisruption bool // a Job does not count evicted pods as failed

	revisionLabel string // pod label with the revision; empty: all are equal
	revision      string // of a pod that is created now; empty: unknown
	// oldRevision is the revision of pods below the partition of a StatefulSet.
	oldRevision string
	partition   int
}

// IgnoresDisruption reports whether a workload is a Job that does not count evicted pods as failed.
func (r *Resolver) IgnoresDisruption(key Key) bool {
	return r.cached(key).replacement.ignoresDisruption
}

// KeepsRevision reports whether the replacement of an evicted pod has the same revision. For custom
// workloads the revision is unknown and the result true.
func (r *Resolver) KeepsRevision(key Key, pod string, labels map[string]string) bool {
	replaces := r.cached(key).replacement
	if replaces.revisionLabel == "" {
		return true
	}
	next := replaces.revision
	if replaces.partition > 0 && ordinal(pod) < replaces.partition {
		next = replaces.oldRevision
	}
	return next != "" && next == labels[replaces.revisionLabel]
}

func ordinal(pod string) int {
	n, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// statefulSetReplacement returns the newest revision for new pods, or the current one below the
// partition of a rolling update. The revision is unknown while the controller has not observed the
// newest spec.
func statefulSetReplacement(s *appsv1.StatefulSet) (r replacement) {
	if s.Status.UpdateRevision == "" { // before its controller has created any pod
		return r
	}
	r.revisionLabel = appsv1.ControllerRevisionHashLabelKey
	if s.Status.ObservedGeneration < s.Generation {
		return r
	}
	r.revision = s.Status.UpdateRevision
	if u := s.Spec.UpdateStrategy; u.Type != appsv1.OnDeleteStatefulSetStrategyType && u.RollingUpdate != nil && u.RollingUpdate.Partition != nil {
		r.oldRevision, r.partition = s.Status.CurrentRevision, int(*u.RollingUpdate.Partition)
		if s.Spec.Ordinals != nil {
			r.partition += int(s.Spec.Ordinals.Start)
		}
	}
	return r
}

// daemonSetReplacement returns the newest revision, which all new pods get. It is zero if all pods
// have it.
func daemonSetReplacement(d *appsv1.DaemonSet) (r replacement) {
	if d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled >= d.Status.CurrentNumberScheduled {
		return r
	}
	return replacement{revisionLabel: templateGeneration, revision: d.Annotations[appsv1.DeprecatedTemplateGeneration]}
}

const templateGeneration = "pod-template-generation"

const (
	exitedBySIGTERM = 143
	exitedBySIGKILL = 137
)

// ignoresDisruption reports whether the first policy rule that matches an evicted pod ignores its
// failure. The pod has the condition DisruptionTarget, but its exit codes depend on the handling of
// signals. A rule with exit codes alone is therefore never assumed to ignore the failure.
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

// matchesSignals reports whether a rule may match a container terminated by a signal.
func matchesSignals(r *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
	if r == nil {
		return false
	}
	by := [...]int32{exitedBySIGTERM, exitedBySIGKILL}
	in := slices.ContainsFunc(by[:], func(code int32) bool { return slices.Contains(r.Values, code) })
	all := !slices.ContainsFunc(by[:], func(code int32) bool { return !slices.Contains(r.Values, code) })
	return r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && in || r.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !all
}

// Template reads the pod template of a workload from the API server. A nil template that is known
// means that the workload or its template does not exist. Templates of custom resources are unknown.
// It lists by name, because the programs may list these kinds but not get them.
func Template(ctx context.Context, kube kubernetes.Interface, key Key) (template *corev1.PodSpec, known bool, err error) {
	if err := key.check(); err != nil || !key.wellKnown() {
		return nil, false, nil //nolint:nilerr // a workload of that name cannot exist
	}
	list, err := listNamed(ctx, kube, key)
	if err != nil {
		return nil, false, fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		if o, ok := object.(metav1.Object); ok && o.GetName() == key.Name {
			if of := templateOf(object); of != nil {
				template = &of.Spec
			}
		}
		return nil
	})
	return template, err == nil, err
}

func listNamed(ctx context.Context, kube kubernetes.Interface, key Key) (runtime.Object, error) {
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name).String()}
	switch key.Kind {
	case "Deployment":
		return kube.AppsV1().Deployments(key.Namespace).List(ctx, only)
	case "ReplicaSet":
		return kube.AppsV1().ReplicaSets(key.Namespace).List(ctx, only)
	case "StatefulSet":
		return kube.AppsV1().StatefulSets(key.Namespace).List(ctx, only)
	case "DaemonSet":
		return kube.AppsV1().DaemonSets(key.Namespace).List(ctx, only)
	case "ReplicationController":
		return kube.CoreV1().ReplicationControllers(key.Namespace).List(ctx, only)
	case "Job":
		return kube.BatchV1().Jobs(key.Namespace).List(ctx, only)
	default:
		return kube.BatchV1().CronJobs(key.Namespace).List(ctx, only)
	}
}

// Has reports whether a cache contains an object of a well-known kind.
func (r *Resolver) Has(key Key) bool {
	if !key.wellKnown() {
		return false
	}
	_, err := r.workloads.lookup(key)
	return err == nil
}
