package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/policies"
	"loadline.dev/loadline/recommender/recommend"
)

// Results of samples.
const (
	accepted      = "accepted"
	noContainer   = "no_container_label"
	notNumber     = "not_a_number"
	unreadable    = "unreadable_series"
	outside       = "outside_range"
	negative      = "negative"
	noLabels      = "unknown_labels"
	initContainer = "init_container"
	notSelected   = "not_selected"
	refused       = "refused"
	aboveCapacity = "above_capacity"
	live          = "seen_live"
	ambiguous     = "ambiguous_series"
	otherCluster  = "other_cluster"
)

// maxQueryFailures is the number of consecutive failures that end an attempt, because each query to
// an unavailable server costs a timeout.
const maxQueryFailures = 3

// attempt queries each missing chunk once. Failed chunks come first in the next attempt.
func (l *Loader) attempt(ctx context.Context, now time.Time) error {
	if l.config.AttemptToken != nil {
		select {
		case <-l.config.AttemptToken:
			defer func() { l.config.AttemptToken <- struct{}{} }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	directory, err := l.directory(ctx)
	if err != nil {
		return err
	}
	l.findCluster(ctx, directory)
	f := l.feeder(ctx, directory, now)
	needsWaiting := l.config.Waiting != "" && f.sketches != nil && recommend.AnyNeeds(f.model, func(n sketch.Needs) bool { return n.Pressure })
	var errs []error
	var failed []chunk
	loaded := false
	load := func(ctx context.Context, c chunk) error {
		b, err := l.fetch(ctx, directory, c)
		if err != nil {
			return fmt.Errorf("%s usage from %s: %w", c.kind, c.Start.UTC().Format(time.RFC3339), err)
		}
		if needsWaiting && c.kind == resources.CPU && len(b.containers) > 0 {
			l.fetchWaiting(ctx, b)
		}
		loaded = true
		f.feed(b)
		l.recordChunk(b)
		klog.FromContext(ctx).V(1).Info("Loading history from Prometheus", "kind", c.kind, "from", c.Start, "containers", len(b.containers), "samples", b.counts[accepted])
		return nil
	}
	// A failed chunk waits for the next attempt, possibly split, and does not block the others.
	retryLater := func(c chunk, err error) error {
		failed, errs = append(failed, c.Split(err)...), append(errs, err)
		return nil
	}
	rest, err := prometheus.ReadParts(ctx, &prometheus.Retries{MaxFailures: maxQueryFailures, ContinueOnError: true}, l.missing, load, retryLater)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.missing = append(failed, rest...)
	if loaded {
		f.finish()
		l.mu.Lock()
		l.loaded = append(l.loaded, LoadedHistory{f.model, f.store})
		l.mu.Unlock()
	}
	return errors.Join(append(errs, err)...)
}

type feeder struct {
	directory *directory
	model     *model.Model
	store     *usage.Store
	sketches  *recommend.SketchKeeper // nil: none
	now       time.Time
	pods      map[podName]*feedPod
	requests  map[vpaName]Request // nil: all history of the plan is used
}

type feedPod struct {
	identity
	containers []string // sorted
}

func (l *Loader) feeder(ctx context.Context, d *directory, now time.Time) *feeder {
	store := usage.NewStore(l.config.Store)
	f := &feeder{
		directory: d, store: store, now: now, pods: map[podName]*feedPod{},
		model: model.NewModel(model.Config{Store: store, MemorySaver: l.config.MemorySaver, PerVPA: l.config.PerVPA, Keys: l.config.Keys}),
	}
	f.model.SyncVPAs(l.requestedVPAs(ctx, d), now)
	if l.config.Policies != nil {
		policies.Follow(l.config.Policies, f.model)
	}
	if l.late {
		f.requests = l.requests
	}
	if l.config.Sketches != nil {
		f.sketches = l.config.Sketches.Fork(f.model, f)
		f.sketches.Follow(klog.FromContext(ctx), now)
	}
	return f
}

// feed adds a batch to the store in order of time, like live samples.
func (f *feeder) feed(b *batch) {
	reasons := f.addPods(b)
	for n := range b.Count {
		at := b.At(n)
		for i, key := range b.containers {
			value := b.values[i*b.Count+n]
			if value == missingAmount {
				continue
			}
			reason := reasons[i]
			if reason == "" {
				reason = f.feedSample(usage.Sample{Container: key, Kind: b.kind, At: at, Amount: value, Pressure: b.waitingShare(i, n)}, b.Step)
			}
			b.counts[reason]++
		}
	}
}

func (f *feeder) feedSample(s usage.Sample, step time.Duration) string {
	histogram, sketches := f.beforeLive(s)
	if !histogram && !sketches {
		return live
	}
	observe := f.store.Observe
	if !histogram {
		observe = f.store.Check
	}
	switch observe(s) {
	case usage.Accepted:
		if f.sketches != nil && sketches {
			f.sketches.Observe(s, min(max(int(step/time.Minute), 1), maxWeight))
		}
		return accepted
	case usage.UnknownContainer:
		return notSelected
	case usage.AboveCeiling:
		return aboveCapacity
	}
	return refused
}

// beforeLive reports whether a sample is older than the live usage in histogram and sketches.
func (f *feeder) beforeLive(s usage.Sample) (histogram, sketches bool) {
	histogram, sketches = true, true
	if f.requests == nil {
		return histogram, sketches
	}
	for _, v := range f.model.Selecting(s.Container) {
		request := f.requests[nameOf(v)]
		histogramEnd, sketchEnd := request.until(s.Container.Container)
		histogram = histogram && (histogramEnd.IsZero() || !s.At.After(histogramEnd))
		sketches = sketches && (sketchEnd.IsZero() || !s.At.After(sketchEnd))
	}
	return histogram, sketches
}

// maxWeight limits the one-minute samples that a sample stands for, because usage in between is
// unknown.
const maxWeight = 15

// Limit returns the current CPU limit of the container or a similar one: past ones are unknown.
func (f *feeder) Limit(c usage.ContainerKey) resources.Amount {
	if m := f.pods[podName{c.Namespace, c.Pod}]; m != nil {
		return recommend.CPULimit(m.runningPod, c.Container)
	}
	return 0
}

// addPods returns for each container why it is rejected, or an empty string.
func (f *feeder) addPods(b *batch) []string {
	reasons := make([]string, len(b.containers))
	changed := map[podName]bool{}
	for i, key := range b.containers {
		name := podName{key.Namespace, key.Pod}
		m := f.pods[name]
		if m == nil {
			m = &feedPod{identity: f.directory.identify(name)}
			f.pods[name] = m
		}
		switch {
		case b.distinct.Ambiguous(key) != nil:
			reasons[i] = ambiguous
			continue
		case !m.known:
			reasons[i] = noLabels
			continue
		case m.initContainer(key.Container):
			reasons[i] = initContainer
			continue
		}
		if at, found := slices.BinarySearch(m.containers, key.Container); !found {
			m.containers = slices.Insert(m.containers, at, key.Container)
			changed[name] = true
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(changed), podName.compare) {
		f.model.PutPod(f.pods[name].object(name), f.now)
	}
	return reasons
}

func (m *feedPod) object(name podName) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.Labels, pod.Status.Phase = name.namespace, name.pod, m.labels, corev1.PodUnknown
	for _, c := range m.containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
	}
	return pod
}

// finish removes deleted pods. Their history stays.
func (f *feeder) finish() {
	for _, name := range slices.SortedFunc(maps.Keys(f.pods), podName.compare) {
		if m := f.pods[name]; m.known && !m.live {
			f.model.RemovePod(name.namespace, name.pod)
		}
	}
}

type podName struct{ namespace, pod string }

func (n podName) compare(other podName) int {
	return cmp.Or(strings.Compare(n.namespace, other.namespace), strings.Compare(n.pod, other.pod))
}

type vpaName struct{ namespace, name string }

func (n vpaName) compare(other vpaName) int {
	return cmp.Or(strings.Compare(n.namespace, other.namespace), strings.Compare(n.name, other.name))
}

func nameOf(v *model.VPA) vpaName { return vpaName{v.Object.Namespace, v.Object.Name} }

// Request is the history to load for a VPA. It fixes the selector, because the target may be
// unavailable during an attempt.
type Request struct {
	Target   target.Key
	Observed model.Observed
	model.Backfill
}

func (r *Request) matches(v *model.VPA) bool {
	return v.Target() == r.Target && v.Selector() == selectorText(r.Observed.Selector)
}

func selectorText(s labels.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func (r *Request) hasHistogram() bool {
	for _, missing := range r.Containers {
		if !missing.Histogram.IsZero() {
			return true
		}
	}
	return false
}

// until returns the ends of the history to load for a container. Zero means no end.
func (r *Request) until(container string) (histogram, sketch time.Time) {
	missing := r.Containers[container]
	if sketch = missing.Sketch; sketch.IsZero() && r.Parts != 0 {
		sketch = r.Until
	}
	return missing.Histogram, sketch
}

// requestedVPAs returns the VPAs of the load, the same in each attempt. The load at the start
// covers the VPAs and pods of the first attempt that reaches Prometheus.
func (l *Loader) requestedVPAs(ctx context.Context, d *directory) (observed []model.Observed) {
	if l.requests == nil {
		vpas, err := l.config.VPAs.ObserveRead(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to list VPAs, loading history without them")
		}
		l.setRequests(vpas, d)
	}
	for _, name := range slices.SortedFunc(maps.Keys(l.requests), vpaName.compare) {
		observed = append(observed, l.requests[name].Observed)
	}
	return observed
}

func (l *Loader) setRequests(observed []model.Observed, d *directory) {
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

// markUncovered marks series that the load at the start does not cover, after the first attempt.
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
