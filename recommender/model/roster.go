package model

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/flags"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
)

// DefaultRecommender is the name of the recommender that serves the VPAs that name none.
const DefaultRecommender = convert.DefaultRecommender

// Roster lists the VPAs of one recommender. Its fields are set once; it is safe
// for concurrent use.
type Roster struct {
	Name       string // of the recommender
	Namespaces flags.Namespaces
	VPAs       listers.VerticalPodAutoscalerLister // of all recommenders
	Targets    Targets
}

// Targets resolves the targets of VPAs to selectors of their pods.
type Targets interface {
	Resolve(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error)
	// Recheck makes Resolve read a target again soon.
	Recheck(namespace string, ref *autoscalingv1.CrossVersionObjectReference)
}

// Serves reports whether a VPA is this recommender's.
func (r *Roster) Serves(v *vpav1.VerticalPodAutoscaler) bool {
	if !r.Namespaces.Serves(v.Namespace) {
		return false
	}
	if len(v.Spec.Recommenders) == 0 {
		return r.Name == DefaultRecommender
	}
	return slices.ContainsFunc(v.Spec.Recommenders, func(s *vpav1.VerticalPodAutoscalerRecommenderSelector) bool {
		return s != nil && s.Name == r.Name
	})
}

// Has reports whether there is a VPA with a name, and it is this recommender's.
func (r *Roster) Has(namespace, name string) bool {
	object, err := r.VPAs.VerticalPodAutoscalers(namespace).Get(name)
	return err == nil && r.Serves(object)
}

// Observe reads the VPAs that are served, sorted by namespace and name, with the selectors of
// their targets, and ticks before each. A target that cannot be resolved is an error
// of its VPAs only. A target is resolved once, however many VPAs it has.
func (r *Roster) Observe(ctx context.Context, health *serving.Health) ([]Observed, error) {
	objects, err := r.VPAs.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(v *vpav1.VerticalPodAutoscaler) bool { return !r.Serves(v) })
	slices.SortFunc(objects, func(a, b *vpav1.VerticalPodAutoscaler) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	resolve := r.resolveOnce()
	observed := make([]Observed, len(objects))
	for i, object := range objects {
		health.Tick()
		selector, err := resolve(ctx, object.Namespace, object.Spec.TargetRef)
		if problem := convert.Unreadable(object); problem != "" {
			selector, err = nil, errors.New(problem)
		}
		observed[i] = Observed{Object: object, Selector: selector, Err: err}
	}
	return observed, nil
}

// resolveOnce returns Resolve with a memory of its results.
func (r *Roster) resolveOnce() func(context.Context, string, *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
	type reference struct {
		namespace string
		ref       autoscalingv1.CrossVersionObjectReference
	}
	type result struct {
		selector labels.Selector
		err      error
	}
	results := map[reference]result{}
	return func(ctx context.Context, namespace string, ref *autoscalingv1.CrossVersionObjectReference) (labels.Selector, error) {
		if ref == nil {
			return r.Targets.Resolve(ctx, namespace, nil)
		}
		key := reference{namespace, *ref}
		found, known := results[key]
		if !known {
			found.selector, found.err = r.Targets.Resolve(ctx, namespace, ref)
			results[key] = found
		}
		return found.selector, found.err
	}
}

// HasUnknown reports whether any VPA that is served is not in the model yet.
func (r *Roster) HasUnknown(m *Model) bool {
	objects, err := r.VPAs.List(labels.Everything())
	return err == nil && slices.ContainsFunc(objects, func(v *vpav1.VerticalPodAutoscaler) bool {
		return r.Serves(v) && m.Find(v.Namespace, v.Name) == nil
	})
}

const (
	// unreadPause is how long ObserveRead waits before it asks again, and mostUnreadWait for how long it
	// does: 10,000 targets at 50 requests a second are read in less. Where a kind hangs, which may last, it is mostHangWait.
	unreadPause    = 5 * time.Second
	mostUnreadWait = 10 * time.Minute
	mostHangWait   = 2 * time.Minute
	// maxNamespaceWait is how long ObserveRead waits for the targets of one namespace after those
	// of all others are read.
	maxNamespaceWait = 10 * time.Second
)

// ObserveRead is Observe for what is done once and not in each pass: where targets have not been
// read yet it asks again until all are, for at most mostUnreadWait. One namespace delays the others
// by at most maxNamespaceWait.
func (r *Roster) ObserveRead(ctx context.Context) ([]Observed, error) {
	began := time.Now()
	unread := func(o Observed) bool {
		return errors.Is(o.Err, target.ErrNotRead) && (!errors.Is(o.Err, target.ErrHangs) || time.Since(began) < mostHangWait)
	}
	var lastNamespaceSince time.Time // since when the targets of a single namespace are unread
	for {
		observed, err := r.Observe(ctx, nil)
		waiting := namespacesOf(observed, unread)
		if err != nil || len(waiting) == 0 || time.Since(began) >= mostUnreadWait {
			return observed, err
		}
		switch all := namespacesOf(observed, func(Observed) bool { return true }); {
		case len(waiting) > 1 || len(all) == 1:
			lastNamespaceSince = time.Time{}
		case lastNamespaceSince.IsZero():
			lastNamespaceSince = time.Now()
		case time.Since(lastNamespaceSince) >= maxNamespaceWait:
			return observed, nil
		}
		select {
		case <-ctx.Done():
			return observed, nil
		case <-time.After(unreadPause):
		}
	}
}

// namespacesOf returns the namespaces of the VPAs for which a condition holds.
func namespacesOf(observed []Observed, holds func(Observed) bool) map[string]bool {
	names := map[string]bool{}
	for _, o := range observed {
		if holds(o) {
			names[o.Object.Namespace] = true
		}
	}
	return names
}

// LogTargetErrors logs the targets that cannot be used, unless that is known to the model
// already. Of those that nobody has read yet that is not known: it logs how many they are, and the first.
func LogTargetErrors(log klog.Logger, model *Model, observed []Observed) {
	var unread []klog.ObjectRef
	for _, o := range observed {
		switch {
		case o.Err == nil:
			continue
		case errors.Is(o.Err, target.ErrNotRead):
			unread = append(unread, klog.KObj(o.Object))
			continue
		}
		v := model.Find(o.Object.Namespace, o.Object.Name)
		if v == nil || v.TargetError == nil || v.TargetError.Error() != o.Err.Error() {
			log.Info("VPA has no usable target", "vpa", klog.KObj(o.Object), "reason", o.Err.Error())
		}
	}
	if len(unread) > 0 {
		log.Info("Scale subresources of targets have not been read yet, which wait for the API server", "vpas", len(unread), "first", unread[0])
	}
}
