package backfill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/prometheus"
)

type chunk struct {
	kind resources.Kind
	prometheus.Times
}

const chunkLength = 24 * time.Hour

// plan splits the history before now into chunks, oldest first. Times are aligned to the step, so
// that each start within a step reads the same points. The last chunk is now, because a new cluster
// may have no earlier usage.
func plan(now time.Time, length, step time.Duration) []chunk {
	now = now.Truncate(time.Second)
	all := prometheus.Times{Start: now.Truncate(step).Add(-length.Truncate(step)), Step: step, Count: int(length/step) + 1}
	parts := all.Cut(min(max(int(chunkLength/step), 1), prometheus.MaxTimes))
	if all.Last().Before(now) {
		parts = append(parts, prometheus.Times{Start: now, Step: step, Count: 1})
	}
	var chunks []chunk
	for _, times := range parts {
		for k := range resources.Kind(resources.Kinds) {
			chunks = append(chunks, chunk{k, times})
		}
	}
	return chunks
}

// Split returns two halves of a failed chunk if they may succeed, else the chunk itself.
func (c chunk) Split(err error) (parts []chunk) {
	if !prometheus.IsDivisible(err) || c.Count == 1 {
		return []chunk{c}
	}
	for _, half := range c.Halves() {
		parts = append(parts, chunk{c.kind, half})
	}
	return parts
}

// batch is the usage of a chunk. values[i*Count : (i+1)*Count] are the amounts of container i, or
// missingAmount.
type batch struct {
	chunk
	index      map[usage.ContainerKey]int
	containers []usage.ContainerKey
	values     []resources.Amount
	waiting    []float64 // shares of time waiting for CPU, like values, nil: unknown
	distinct   *prometheus.AmbiguityDetector
	counts     map[string]int // samples by result
}

const missingAmount resources.Amount = -1

// fetch queries a chunk. An incomplete answer is an error.
func (l *Loader) fetch(ctx context.Context, d *directory, c chunk) (*batch, error) {
	b := &batch{chunk: c, index: map[usage.ContainerKey]int{}, counts: map[string]int{}, distinct: prometheus.NewAmbiguityDetector(l.config.Usage, l.config.Step)}
	query := l.config.Usage.Query(c.kind, l.config.Step)
	answer, err := l.config.Client.Range(ctx, prometheus.Range{Query: query, Times: c.Times}, func(labels map[string]string, points []prometheus.Point) {
		key, ok := l.config.Usage.Container(labels)
		if !ok {
			b.counts[noContainer] += len(points)
			return
		}
		b.distinct.Add(key, labels, points)
		switch cluster := prometheus.Cluster(labels); {
		case cluster == "" || d.live[podName{key.Namespace, key.Pod}] != nil: // Distinct handles two series of one name
		case l.ownCluster.problem != nil:
			b.distinct.MarkAmbiguous(key, l.ownCluster.problem)
		case l.ownCluster.known && cluster != l.ownCluster.name:
			b.counts[otherCluster] += len(points)
			l.logOther(ctx, cluster)
			return
		}
		b.add(key, points)
	}, nil)
	l.config.Ambiguities.AddHistory(b.distinct)
	if err := b.distinct.Err(); err != nil && !l.ambiguous {
		l.ambiguous = true
		klog.FromContext(ctx).Error(err, "Ignoring the history of containers with ambiguous series")
	}
	b.counts[notNumber] += answer.Unusable
	b.counts[unreadable] += answer.Broken
	return b, err
}

// ownCluster is the cluster label of running pods.
type ownCluster struct {
	name    string // PromQL matchers, empty: no cluster label
	known   bool
	problem error // the cluster of a series is ambiguous
}

// findCluster determines the own cluster. If it fails, series with a cluster label are not used for
// deleted pods.
func (l *Loader) findCluster(ctx context.Context, d *directory) {
	var clusters prometheus.ClusterDetector
	_, err := l.config.Client.Instant(ctx, l.config.Usage.Memory(), time.Time{}, func(labels map[string]string, _ []prometheus.Point) {
		if key, ok := l.config.Usage.Container(labels); ok {
			pod := ""
			if d.live[podName{key.Namespace, key.Pod}] != nil {
				pod = key.Namespace + "/" + key.Pod
			}
			clusters.Add(pod, labels)
		}
	})
	l.ownCluster.name, l.ownCluster.known, l.ownCluster.problem = clusters.Resolve()
	if err != nil {
		l.ownCluster.problem = fmt.Errorf("identify the cluster of series: %w", err)
	}
}

func (l *Loader) logOther(ctx context.Context, cluster string) {
	if !l.otherLogged {
		l.otherLogged = true
		klog.FromContext(ctx).Info("Ignoring the history of other clusters in Prometheus", "cluster", l.ownCluster.name, "other", cluster)
	}
}

// add keeps the highest of several points at the same time, for example around a restart.
func (b *batch) add(key usage.ContainerKey, points []prometheus.Point) {
	i, known := b.index[key]
	if !known {
		i = len(b.containers)
		b.index[key] = i
		b.containers = append(b.containers, key)
		for range b.Count {
			b.values = append(b.values, missingAmount)
		}
	}
	for _, p := range points {
		index, found := b.Index(p.At)
		value := prometheus.Amount(b.kind, p.Value)
		switch {
		case !found:
			b.counts[outside]++
		case value < 0:
			b.counts[negative]++
		default:
			at := i*b.Count + index
			b.values[at] = max(b.values[at], value)
		}
	}
}

type waitingState uint8

const (
	waitingNotQueried  waitingState = iota
	waitingUnavailable              // queried, and no container has it
	waitingAvailable
	waitingFailed // the query failed
)

// fetchWaiting leaves CPU usage unchanged if it fails, and logs the first failure.
func (l *Loader) fetchWaiting(ctx context.Context, b *batch) {
	query := l.config.Usage.Rate(l.config.Waiting, l.config.Step)
	shares := make([]float64, len(b.values))
	answer, err := l.config.Client.Range(ctx, prometheus.Range{Query: query, Times: b.Times}, func(labels map[string]string, points []prometheus.Point) {
		key, _ := l.config.Usage.Container(labels)
		i, found := b.index[key]
		if !found {
			return
		}
		for _, p := range points {
			if n, found := b.Index(p.At); found {
				at := i*b.Count + n
				shares[at] = max(shares[at], min(p.Value, 1))
			}
		}
	}, nil)
	switch {
	case ctx.Err() != nil:
	case err != nil && l.waiting != waitingFailed:
		l.waiting = waitingFailed
		klog.FromContext(ctx).Error(err, "Failed to load past CPU waiting times, using CPU usage unchanged", "metric", l.config.Waiting)
	case err != nil:
	case answer.Series > 0:
		b.waiting, l.waiting = shares, max(l.waiting, waitingAvailable)
	default:
		l.waiting = max(l.waiting, waitingUnavailable)
	}
}

// waitingShare returns the share of time, 0 to 1, that container i waits for CPU, or 0 if unknown.
func (b *batch) waitingShare(i, n int) float64 {
	if b.waiting == nil {
		return 0
	}
	return b.waiting[i*b.Count+n]
}

type directory struct {
	live    map[podName]*corev1.Pod
	deleted map[podName]recordedLabels
	similar map[podName]*corev1.Pod // running pod by common part of names, nil: ambiguous
}

type recordedLabels struct {
	labels map[string]string
	at     time.Time // newest point
}

type identity struct {
	known      bool // its labels are known
	live       bool
	labels     map[string]string
	runningPod *corev1.Pod // itself or of the same workload, nil: none
}

// initContainer reports init containers of the pod or a similar one. Live usage omits them too.
func (i identity) initContainer(name string) bool {
	if i.runningPod == nil {
		return false
	}
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(i.runningPod.Spec.InitContainers, named) && !slices.ContainsFunc(i.runningPod.Spec.Containers, named)
}

// identify uses labels of the pod, else from Prometheus, else of a running pod of its workload.
func (d *directory) identify(name podName) identity {
	if pod := d.live[name]; pod != nil {
		return identity{known: true, live: true, labels: pod.Labels, runningPod: pod}
	}
	var like *corev1.Pod
	for _, common := range prometheus.CommonPodNames(name.pod) {
		if like = d.similar[podName{name.namespace, common}]; like != nil {
			break
		}
	}
	if memory, found := d.deleted[name]; found {
		return identity{known: true, labels: memory.labels, runningPod: like}
	}
	if like != nil {
		return identity{known: true, labels: like.Labels, runningPod: like}
	}
	return identity{}
}

var errLabels = errors.New("labels of pods")

// directory queries pod labels. Without a usable result, deleted pods have none from Prometheus.
func (l *Loader) directory(ctx context.Context) (*directory, error) {
	pods, err := l.config.Pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list pods, loading history without their labels")
	}
	d := newDirectory(pods)
	unnamed := 0
	answer, err := l.config.Client.Instant(ctx, l.config.Labels.Query, time.Time{}, func(labels map[string]string, points []prometheus.Point) {
		name := podName{prometheus.StateLabel(labels, l.config.Labels.Namespace), prometheus.StateLabel(labels, l.config.Labels.Pod)}
		if name.namespace == "" || name.pod == "" {
			unnamed++
			return
		}
		d.record(name, labels, l.config.Labels.Prefix, points[len(points)-1].At)
	})
	if err != nil && !isQueryError(answer, err) {
		return nil, fmt.Errorf("%w: %w", errLabels, err)
	}
	d.restoreNames()
	log := klog.FromContext(ctx)
	switch {
	case err != nil:
		log.Error(err, "Failed to load pod labels from Prometheus, assigning deleted pods to workloads by name. Check --metric-for-pod-labels")
	case unnamed > 0:
		log.Info("Series with pod labels lack the name of the pod. Check --pod-namespace-label and --pod-name-label",
			"series", unnamed, "of", answer.Series, "want", []string{l.config.Labels.Namespace, l.config.Labels.Pod})
	}
	return d, nil
}

func isQueryError(answer prometheus.Response, err error) bool {
	if refused, ok := errors.AsType[*prometheus.Error](err); ok {
		return refused.Code == http.StatusBadRequest || refused.Code == http.StatusUnprocessableEntity
	}
	return answer.Type == "scalar" || answer.Type == "string"
}

func newDirectory(pods []*corev1.Pod) *directory {
	d := &directory{live: map[podName]*corev1.Pod{}, deleted: map[podName]recordedLabels{}, similar: map[podName]*corev1.Pod{}}
	for _, pod := range pods {
		d.live[podName{pod.Namespace, pod.Name}] = pod
		for _, common := range prometheus.CommonPodNames(pod.Name) {
			key := podName{pod.Namespace, common}
			other, found := d.similar[key]
			switch {
			case !found || other != nil && ownerKind(other) == ownerKind(pod) && pod.Name < other.Name:
				d.similar[key] = pod
			case other != nil && ownerKind(other) != ownerKind(pod):
				d.similar[key] = nil
			}
		}
	}
	return d
}

func ownerKind(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.Kind
	}
	return ""
}

// record adds labels of a deleted pod. The newest point counts. Series without labels are ignored.
func (d *directory) record(name podName, labels map[string]string, prefix string, at time.Time) {
	if d.live[name] != nil {
		return
	}
	if before, found := d.deleted[name]; found && !at.After(before.at) {
		return
	}
	own := map[string]string{}
	for key, value := range labels {
		if bare, is := strings.CutPrefix(key, prefix); is && bare != "" && value != "" {
			own[bare] = value
		}
	}
	if prefix == "" {
		delete(own, "__name__")
	}
	if len(own) > 0 {
		d.deleted[name] = recordedLabels{own, at}
	}
}

// restoreNames restores the dots and slashes of label names, which Prometheus does not allow. It
// uses the matching label of running pods in the namespace if it is unique.
func (d *directory) restoreNames() {
	known := map[string]map[string]string{} // by namespace and folded name, "": several
	for name, pod := range d.live {
		names := known[name.namespace]
		if names == nil {
			names = map[string]string{}
			known[name.namespace] = names
		}
		for key := range pod.Labels {
			if other, found := names[prometheus.FoldLabelName(key)]; found && other != key {
				names[prometheus.FoldLabelName(key)] = ""
			} else {
				names[prometheus.FoldLabelName(key)] = key
			}
		}
	}
	for name, memory := range d.deleted {
		restored := make(map[string]string, len(memory.labels))
		for key, value := range memory.labels {
			if original := known[name.namespace][prometheus.FoldLabelName(key)]; original != "" {
				key = original
			}
			restored[key] = value
		}
		d.deleted[name] = recordedLabels{restored, memory.at}
	}
}
