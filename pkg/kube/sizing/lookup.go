package sizing

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Reader uses API requests instead of caches, for CLI commands. It is not safe for concurrent use.
type Reader struct {
	kube       kubernetes.Interface
	own        versioned.Interface
	scales     *client.Scales
	policies   []loadlinev1alpha1.SizingPolicy
	set        *fleet.Set
	namespaces map[string]*corev1.Namespace
}

// NewReader reads all policies. There are none if the CRD is not installed.
func NewReader(ctx context.Context, kube kubernetes.Interface, own versioned.Interface, o fleet.Options) (*Reader, error) {
	r := NewReaderWithoutPolicies(kube, own)
	list, err := own.LoadlineV1alpha1().SizingPolicies().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return r, nil
	case err != nil:
		return nil, fmt.Errorf("list SizingPolicies: %w", err)
	}
	values := make([]fleet.Policy, 0, len(list.Items))
	for i := range list.Items {
		values = append(values, convert.Policy(&list.Items[i]))
	}
	r.policies, r.set = list.Items, fleet.NewSet(values, o)
	return r, nil
}

// NewReaderWithoutPolicies returns a Reader for users without permission to read policies.
func NewReaderWithoutPolicies(kube kubernetes.Interface, own versioned.Interface) *Reader {
	return &Reader{kube: kube, own: own, scales: client.NewScales(kube), set: fleet.NewSet(nil, fleet.Options{}), namespaces: map[string]*corev1.Namespace{}}
}

// WorkloadStatus is the policy decision and rollout state of a workload. Zero means no policy.
type WorkloadStatus struct {
	fleet.Decision

	Author    fleet.VPAOrigin                // of the VPA
	Object    *loadlinev1alpha1.SizingPolicy // the responsible policy, nil if there is none
	Workload  target.Workload
	Selector  labels.Selector // of its pods, nil if unknown
	HasRecord bool
	State     rollout.State
	StateErr  error // why State is unknown, or nil
}

// WorkloadStatus returns the policy of a VPA's target, and the recorded rollout state.
func (r *Reader) WorkloadStatus(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler) (s WorkloadStatus, err error) {
	generated := convert.IsGenerated(vpa)
	if vpa.Spec.TargetRef == nil || r.set.Len() == 0 && !generated {
		return s, nil
	}
	author := FleetVPA(vpa, generated)
	s.Author = author.Origin
	if s.Workload, s.Selector, s.Decision, err = r.decide(ctx, target.RefKey(vpa.Namespace, vpa.Spec.TargetRef), author); err != nil || s.Policy == nil {
		return s, err
	}
	for i := range r.policies {
		if r.policies[i].Name == s.Policy.Name {
			s.Object = &r.policies[i]
		}
	}
	name := RecordName(s.Workload.Key)
	record, err := r.own.LoadlineV1alpha1().SizingRecords(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.HasRecord = true
		s.State, s.StateErr = ReadState(record, s.Workload)
	case !apierrors.IsNotFound(err):
		s.StateErr = fmt.Errorf("read SizingRecord %s: %w", name, err)
	}
	return s, nil
}

// FindHPAResources returns the resources of a workload that affect HorizontalPodAutoscalers, and
// the first affected one. Both are nil if there is none.
func FindHPAResources(all []autoscalingv2.HorizontalPodAutoscaler, workload target.Key, owners Owners) (found HPAResources, first *autoscalingv2.HorizontalPodAutoscaler) {
	for i := range all {
		h := &all[i]
		looks := UtilizationResources(h)
		if looks == nil || !Scales(h, workload, owners) {
			continue
		}
		found = found.merge(looks)
		if first == nil {
			first = h
		}
	}
	return found, first
}

// PolicyFor returns the policy that is responsible for a workload, nil if there is none.
func (r *Reader) PolicyFor(ctx context.Context, key target.Key) (*fleet.Policy, error) {
	_, _, d, err := r.decide(ctx, key, fleet.VPA{})
	return d.Policy, err
}

func (r *Reader) decide(ctx context.Context, key target.Key, vpa fleet.VPA) (w target.Workload, pods labels.Selector, d fleet.Decision, err error) {
	if w, pods, err = r.workload(ctx, key); err != nil {
		return w, pods, d, fmt.Errorf("read %s: %w", key, err)
	}
	namespace := r.namespaces[key.Namespace]
	if namespace == nil {
		if namespace, err = r.kube.CoreV1().Namespaces().Get(ctx, key.Namespace, metav1.GetOptions{}); err != nil {
			return w, pods, d, fmt.Errorf("read namespace %s: %w", key.Namespace, err)
		}
		r.namespaces[key.Namespace] = namespace
	}
	described := fleetWorkload(w, namespace)
	described.VPA = vpa
	return w, pods, r.set.Decide(described), nil
}

// workload reads a workload and the selector of its pods. A missing workload has only a name.
func (r *Reader) workload(ctx context.Context, key target.Key) (target.Workload, labels.Selector, error) {
	if !fleet.Listed(key.Group, key.Kind) {
		return r.scaled(ctx, key)
	}
	object, err := target.Get(ctx, r.kube, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return target.Workload{}, nil, err
	}
	if w, found := target.WorkloadOf(object); found && err == nil {
		return w, podSelector(object), nil
	}
	return target.Workload{Key: key}, nil, nil
}

func (r *Reader) scaled(ctx context.Context, key target.Key) (target.Workload, labels.Selector, error) {
	w, selector, err := target.ReadScale(ctx, r.scales.Scale, key)
	if errors.Is(err, target.ErrNoWorkload) {
		return target.Workload{Key: key}, nil, nil
	}
	pods, unreadable := client.ParseSelector(selector)
	if err != nil || selector == "" || unreadable != nil {
		return w, nil, err
	}
	return w, pods, nil
}

func podSelector(object any) labels.Selector {
	var written *metav1.LabelSelector
	switch o := object.(type) {
	case *appsv1.Deployment:
		written = o.Spec.Selector
	case *appsv1.StatefulSet:
		written = o.Spec.Selector
	case *appsv1.DaemonSet:
		written = o.Spec.Selector
	}
	selector, err := client.Selector(written)
	if err != nil || written == nil {
		return nil
	}
	return selector
}
