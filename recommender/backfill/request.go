package backfill

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/model"
)

type vpaName struct{ namespace, name string }

func (n vpaName) compare(other vpaName) int {
	return cmp.Or(strings.Compare(n.namespace, other.namespace), strings.Compare(n.name, other.name))
}

func nameOf(v *model.VPA) vpaName { return vpaName{v.Object.Namespace, v.Object.Name} }

// Request is the history that is to be loaded for a VPA. All attempts of a load use the selector of the
// request, because the target may be unavailable during an attempt.
type Request struct {
	Target   target.Key
	Observed model.Observed
	model.Backfill
}

// matches reports whether a VPA still has the target and the selector of the request.
func (r *Request) matches(v *model.VPA) bool {
	return v.Target() == r.Target && v.Selector() == selectorText(r.Observed.Selector)
}

func selectorText(s labels.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}

// hasHistogram reports whether the histogram of any container is requested.
func (r *Request) hasHistogram() bool {
	for _, missing := range r.Containers {
		if !missing.Histogram.IsZero() {
			return true
		}
	}
	return false
}

// until returns the ends of the history to load for the histogram and the sketch of a container. The zero
// time is no end.
func (r *Request) until(container string) (histogram, sketch time.Time) {
	missing := r.Containers[container]
	if sketch = missing.Sketch; sketch.IsZero() && r.Parts != 0 {
		sketch = r.Until
	}
	return missing.Histogram, sketch
}

// requested returns the VPAs that the load covers, the same in each attempt. The load at the start covers
// the VPAs and pods that exist at the first attempt that reaches Prometheus.
func (l *Loader) requested(ctx context.Context, d *directory) (observed []model.Observed) {
	if l.requests == nil {
		vpas, err := l.config.VPAs.ObserveRead(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot list VPAs, loading history without them")
		}
		l.request(vpas, d)
	}
	for _, name := range slices.SortedFunc(maps.Keys(l.requests), vpaName.compare) {
		observed = append(observed, l.requests[name].Observed)
	}
	return observed
}

// request sets the requests of the load at the start.
func (l *Loader) request(observed []model.Observed, d *directory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests, l.pods = map[vpaName]Request{}, map[podName]struct{}{}
	for name := range d.live {
		l.pods[name] = struct{}{}
	}
	for _, o := range observed {
		if o.Err == nil {
			l.requests[vpaName{o.Object.Namespace, o.Object.Name}] = Request{Target: targetOf(o), Observed: o}
		}
	}
}

func targetOf(o model.Observed) (key target.Key) {
	if ref := o.Object.Spec.TargetRef; ref != nil {
		key = target.RefKey(o.Object.Namespace, ref)
	}
	return key
}

// markUncovered marks the series of a model that the load at the start does not cover, once after the
// first attempt.
func (l *Loader) markUncovered(m *model.Model) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == nil || l.pods == nil {
		return
	}
	m.BeginLate(func(namespace, pod string, vpas []*model.VPA) bool {
		if _, known := l.pods[podName{namespace, pod}]; !known {
			return false
		}
		return !l.config.MemorySaver || slices.ContainsFunc(vpas, l.covers)
	})
	l.pods = nil
}

func (l *Loader) covers(v *model.VPA) bool {
	request, found := l.requests[nameOf(v)]
	return found && request.matches(v)
}

// Covers reports whether the load covers a VPA. decided is false before the first attempt.
func (l *Loader) Covers(v *model.VPA) (covers, decided bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.covers(v), l.requests != nil
}
