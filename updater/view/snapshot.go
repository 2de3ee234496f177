package view

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/ownership"
	vpalisters "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/target"
)

// Reader takes Snapshots from caches.
type Reader struct {
	VPAs         vpalisters.VerticalPodAutoscalerLister
	Pods         corelisters.PodLister
	LimitRanges  corelisters.LimitRangeLister
	Targets      *target.Resolver
	Serves       func(namespace string) bool // namespaces to work on
	PerVPAConfig bool                        // feature gate
}

// Step tells that a part of the work of a pass has ended; its name is a label of
// the latency metric.
type Step func(name string)

// Snapshot is what one pass works on.
type Snapshot struct {
	View   disruption.View
	Broken []disruption.Skip // pods that made the code panic, and those of such VPAs

	readings map[cache.ObjectName]Reading
	pods     map[types.UID]*corev1.Pod
	listed   map[cache.ObjectName]bool
}

// Reading returns a VPA that is in the view.
func (s *Snapshot) Reading(vpa cache.ObjectName) Reading { return s.readings[vpa] }

// Pod returns the pod of a subject.
func (s *Snapshot) Pod(of disruption.Subject) *corev1.Pod { return s.pods[types.UID(of.UID)] }

// Exists tells whether there is a VPA of that name, in whatever mode.
func (s *Snapshot) Exists(vpa cache.ObjectName) bool { return s.listed[vpa] }

// Read takes a Snapshot.
func (r *Reader) Read(ctx context.Context, done Step) (*Snapshot, error) {
	s := &Snapshot{readings: map[cache.ObjectName]Reading{}, pods: map[types.UID]*corev1.Pod{}, listed: map[cache.ObjectName]bool{}}
	vpas, err := r.VPAs.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list VPAs: %w", err)
	}
	index := r.index(ctx, vpas, s)
	done("ListVPAs")
	if index.Len() == 0 {
		return s, nil
	}
	pods, err := r.Pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	done("ListPods")
	controlled := r.assign(ctx, pods, index)
	done("FilterPods")
	names := make([]cache.ObjectName, 0, len(controlled))
	for name := range controlled {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b cache.ObjectName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, name := range names {
		r.add(ctx, s, name, controlled[name])
	}
	return s, nil
}

// index reads the VPAs that change running pods and whose target is known.
func (r *Reader) index(ctx context.Context, vpas []*vpav1.VerticalPodAutoscaler, s *Snapshot) *ownership.Index {
	log := klog.FromContext(ctx)
	index := &ownership.Index{}
	ranges := map[string]convert.LimitRanges{}
	for _, vpa := range vpas {
		name := cache.MetaObjectToName(vpa)
		s.listed[name] = true
		if !r.Serves(vpa.Namespace) || !acts(mode(convert.Mode(vpa))) {
			continue
		}
		selector, err := r.Targets.Selector(ctx, vpa.Namespace, vpa.Spec.TargetRef)
		if err != nil {
			log.V(3).Info("VPA skipped: its target cannot be read", "vpa", klog.KObj(vpa), "reason", err)
			continue
		}
		err = Guard(func() error {
			if _, known := ranges[vpa.Namespace]; !known {
				objects, err := r.LimitRanges.LimitRanges(vpa.Namespace).List(labels.Everything())
				if err != nil {
					return fmt.Errorf("list LimitRanges of namespace %s: %w", vpa.Namespace, err)
				}
				ranges[vpa.Namespace] = convert.Ranges(objects)
			}
			s.readings[name] = NewReading(vpa, ranges[vpa.Namespace])
			return nil
		})
		if err != nil {
			log.Error(err, "VPA skipped: it cannot be understood", "vpa", klog.KObj(vpa))
			continue
		}
		index.Put(indexed(vpa, selector))
	}
	return index
}

func indexed(vpa *vpav1.VerticalPodAutoscaler, selector labels.Selector) ownership.VPA {
	return ownership.VPA{
		Namespace: vpa.Namespace, Name: vpa.Name, Created: vpa.CreationTimestamp.Time,
		TargetKind: vpa.Spec.TargetRef.Kind, TargetName: vpa.Spec.TargetRef.Name,
		Selects: func(l map[string]string) bool { return selector.Matches(labels.Set(l)) },
	}
}

func acts(m disruption.Mode) bool { return m != disruption.Off && m != disruption.Initial }

// owned is a pod with its direct owner.
type owned struct {
	pod   *corev1.Pod
	owner target.Key
}

// assign finds the VPA of each pod.
func (r *Reader) assign(ctx context.Context, pods []*corev1.Pod, index *ownership.Index) map[cache.ObjectName][]owned {
	log := klog.FromContext(ctx)
	topmost := map[target.Key]target.Key{}
	controlled := map[cache.ObjectName][]owned{}
	for _, pod := range pods {
		owner, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
		if !ok || pod.DeletionTimestamp != nil || !r.Serves(pod.Namespace) {
			continue
		}
		top, known := topmost[owner]
		if !known {
			var err error
			if top, _, err = r.Targets.Topmost(ctx, owner); err != nil {
				log.V(3).Info("Pods left alone: their controller cannot be read", "namespace", pod.Namespace, "owner", owner, "reason", err)
			}
			topmost[owner] = top
		}
		vpa, found := index.Controlling(ownership.Pod{Namespace: pod.Namespace, Labels: pod.Labels, ControllerKind: top.Kind, ControllerName: top.Name})
		if found {
			name := cache.NewObjectName(vpa.Namespace, vpa.Name)
			controlled[name] = append(controlled[name], owned{pod, owner})
		}
	}
	return controlled
}

// add adds a VPA with its pods.
func (r *Reader) add(ctx context.Context, s *Snapshot, name cache.ObjectName, pods []owned) {
	log := klog.FromContext(ctx)
	slices.SortFunc(pods, func(a, b owned) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	reading := s.readings[name]
	v := reading.VPA(r.PerVPAConfig)
	groups, live := map[target.Key]int{}, map[target.Key]int{}
	for _, o := range pods {
		err := Guard(func() error {
			group, known := groups[o.owner]
			if !known {
				group = len(v.Groups)
				groups[o.owner] = group
				v.Groups = append(v.Groups, r.group(ctx, o.owner))
			}
			v.Pods = append(v.Pods, reading.Pod(o.pod, group))
			live[o.owner]++
			s.pods[o.pod.UID] = o.pod
			return nil
		})
		if err != nil {
			log.Error(err, "Pod skipped: it cannot be understood", "pod", klog.KObj(o.pod), "vpa", name)
			s.Broken = append(s.Broken, disruption.Skip{Reason: disruption.Broken, Subject: disruption.Subject{
				Namespace: o.pod.Namespace, VPA: name.Name, Pod: o.pod.Name, UID: string(o.pod.UID)}})
		}
	}
	for owner, group := range groups {
		// The scale of a custom workload is remembered for minutes. If there are
		// more pods meanwhile, the old number would let too many of them go.
		if g := &v.Groups[group]; owner.Group != "" && g.Replicas > 0 {
			g.Replicas = max(g.Replicas, live[owner])
		}
	}
	s.View.VPAs = append(s.View.VPAs, v)
}

// group reads how many pods an owner wants. Owners that do not tell it, such as
// a Job or a custom workload without scale, count by their live pods.
func (r *Reader) group(ctx context.Context, owner target.Key) disruption.Group {
	g := disruption.Group{Replicas: disruption.Unknown}
	replicas, known := r.Targets.Replicas(ctx, owner)
	switch {
	case known:
		g.Replicas = int(replicas)
	case tells(owner.Kind):
		g.Replicas = 0
	}
	return g
}

// tells tells whether owners of a kind say how many pods they want; one that
// does not is gone.
func tells(kind string) bool {
	switch kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController":
		return true
	}
	return false
}

// Guard turns a panic of do into an error, so that one object cannot stop the
// work on the others.
func Guard(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return do()
}
