package target

import (
	"context"
	"errors"
	"fmt"
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/kube/client"
)

// Live is a Resolver for commands that people run: it asks the API server for what it needs, and
// for each controller once. It is used by one goroutine.
type Live struct {
	kube  kubernetes.Interface
	scale Scale
	read  map[Key]liveAnswer
}

// liveAnswer is what was read of a controller.
type liveAnswer struct {
	workload

	template *corev1.PodTemplateSpec // nil: of a kind that is read through its scale subresource

	scaled string // selector of one that is read through its scale subresource
	counts bool   // it can be the topmost
	err    error
}

// NewLive returns a resolver that reads scale subresources through scale.
func NewLive(kube kubernetes.Interface, scale Scale) *Live {
	return &Live{kube: kube, scale: scale, read: map[Key]liveAnswer{}}
}

// Topmost is that of a Resolver.
func (l *Live) Topmost(ctx context.Context, start Key) (top Key, found bool, err error) {
	return topmost(ctx, start, func(ctx context.Context, key Key) ([]metav1.OwnerReference, bool, error) {
		a := l.get(ctx, key)
		return a.owners, a.counts, a.err
	})
}

// From is that of a Resolver, up to the first controller that cannot be read.
func (l *Live) From(ctx context.Context) func(Key) iter.Seq[Key] {
	return func(key Key) iter.Seq[Key] {
		return upward(key, func(key Key) []metav1.OwnerReference { return l.get(ctx, key).owners })
	}
}

// Replicas is that of a Resolver.
func (l *Live) Replicas(ctx context.Context, key Key) (int32, bool) {
	if a := l.get(ctx, key); a.err == nil && a.replicas != nil {
		return *a.replicas, true
	}
	return 0, false
}

// Selects reports whether the selector of a workload matches the labels of a pod. One that cannot be
// read selects nothing.
func (l *Live) Selects(ctx context.Context, key Key, podLabels map[string]string) bool {
	a := l.get(ctx, key)
	selector, err := client.Selector(a.selector)
	if a.scaled != "" {
		selector, err = client.ParseSelector(a.scaled)
	}
	return a.err == nil && err == nil && selector.Matches(labels.Set(podLabels))
}

// Template returns the pod template of a workload, nil if its kind is not well known, and the
// controller that owns the workload, if one does. The template must not be modified.
func (l *Live) Template(ctx context.Context, key Key) (template *corev1.PodTemplateSpec, owner Key, owned bool, err error) {
	a := l.get(ctx, key)
	owner, owned = Controller(key.Namespace, a.owners)
	return a.template, owner, owned, a.err
}

// get returns a controller that was read, or reads it.
func (l *Live) get(ctx context.Context, key Key) liveAnswer {
	a, known := l.read[key]
	if !known {
		a = l.ask(ctx, key)
		l.read[key] = a
	}
	return a
}

func (l *Live) ask(ctx context.Context, key Key) (a liveAnswer) {
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
		of := answerOf(scale)
		a.owners, a.replicas, a.scaled, a.counts = of.owners, &of.replicas, of.selector, true
		return a
	}
	object, err := Get(ctx, l.kube, key)
	if err != nil {
		a.err = fmt.Errorf("read %s in namespace %s: %w", key, key.Namespace, err)
		return a
	}
	a.workload, a.counts = describe(object)
	a.template = templateOf(object)
	return a
}

// templateOf returns the pod template of an object that Live reads.
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
