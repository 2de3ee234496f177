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

	"loadline.dev/loadline/pkg/source/prometheus"
)

// directory knows the labels of pods, those that are gone included.
type directory struct {
	live map[podName]*corev1.Pod
	gone map[podName]remembered
	kin  map[podName]*corev1.Pod // a pod that runs, by what its name has in common with others; nil: of several workloads
}

// remembered are the labels of a pod in Prometheus.
type remembered struct {
	labels map[string]string
	at     time.Time // newest point
}

// identity is what is known of a pod.
type identity struct {
	known  bool // its labels are
	live   bool
	labels map[string]string
	like   *corev1.Pod // that runs: itself or one of the same workload; nil = none
}

// initContainer reports whether the pod, or one like it, has an init container with
// that name. Their samples do not count live either.
func (i identity) initContainer(name string) bool {
	if i.like == nil {
		return false
	}
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(i.like.Spec.InitContainers, named) && !slices.ContainsFunc(i.like.Spec.Containers, named)
}

// identify finds the labels of a pod: its own if it runs, else those that
// Prometheus has, else those of a pod of the same workload.
func (d *directory) identify(name podName) identity {
	if pod := d.live[name]; pod != nil {
		return identity{known: true, live: true, labels: pod.Labels, like: pod}
	}
	var like *corev1.Pod
	for _, common := range prometheus.CommonPodNames(name.pod) {
		if like = d.kin[podName{name.namespace, common}]; like != nil {
			break
		}
	}
	if memory, found := d.gone[name]; found {
		return identity{known: true, labels: memory.labels, like: like}
	}
	if like != nil {
		return identity{known: true, labels: like.Labels, like: like}
	}
	return identity{}
}

// errLabels is the error of an attempt that did not get as far as usage.
var errLabels = errors.New("labels of pods")

// directory asks for the labels of pods. An expression that Prometheus cannot
// evaluate, or that gives something else, costs only those labels.
func (l *Loader) directory(ctx context.Context) (*directory, error) {
	pods, err := l.config.Pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list pods, loading history without their labels")
	}
	d := newDirectory(pods)
	unnamed := 0
	answer, err := l.config.Client.Instant(ctx, l.config.Labels.Query, time.Time{}, func(labels map[string]string, points []prometheus.Point) {
		name := podName{prometheus.StateLabel(labels, l.config.Labels.Namespace), prometheus.StateLabel(labels, l.config.Labels.Pod)}
		if name.namespace == "" || name.pod == "" {
			unnamed++
			return
		}
		d.remember(name, labels, l.config.Labels.Prefix, points[len(points)-1].At)
	})
	if err != nil && !misasked(answer, err) {
		return nil, fmt.Errorf("%w: %w", errLabels, err)
	}
	d.restoreNames()
	log := klog.FromContext(ctx)
	switch {
	case err != nil:
		log.Error(err, "No labels of pods from Prometheus: pods that are gone count for the workload that their name tells. Check --metric-for-pod-labels")
	case unnamed > 0:
		log.Info("Series with labels of pods do not name the pod: check --pod-namespace-label and --pod-name-label",
			"series", unnamed, "of", answer.Series, "want", []string{l.config.Labels.Namespace, l.config.Labels.Pod})
	}
	return d, nil
}

// misasked reports whether the expression is at fault, and not the server.
func misasked(answer prometheus.Answer, err error) bool {
	var refused *prometheus.Error
	if errors.As(err, &refused) {
		return refused.Code == http.StatusBadRequest || refused.Code == http.StatusUnprocessableEntity
	}
	return answer.Type == "scalar" || answer.Type == "string"
}

func newDirectory(pods []*corev1.Pod) *directory {
	d := &directory{live: map[podName]*corev1.Pod{}, gone: map[podName]remembered{}, kin: map[podName]*corev1.Pod{}}
	for _, pod := range pods {
		d.live[podName{pod.Namespace, pod.Name}] = pod
		for _, common := range prometheus.CommonPodNames(pod.Name) {
			key := podName{pod.Namespace, common}
			other, found := d.kin[key]
			switch {
			case !found || other != nil && ownerKind(other) == ownerKind(pod) && pod.Name < other.Name:
				d.kin[key] = pod
			case other != nil && ownerKind(other) != ownerKind(pod):
				d.kin[key] = nil
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

// remember takes one series with labels of a pod. The one with the newest point
// wins; one without any label of the pod does not count.
func (d *directory) remember(name podName, labels map[string]string, prefix string, at time.Time) {
	if d.live[name] != nil {
		return
	}
	if before, found := d.gone[name]; found && !at.After(before.at) {
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
		d.gone[name] = remembered{own, at}
	}
}

// restoreNames gives labels the names back that exporters had to change: label
// names in Prometheus have neither dots nor slashes. What a pod of the namespace
// that runs has, and only one of its labels could be, is taken to be it.
func (d *directory) restoreNames() {
	known := map[string]map[string]string{} // by namespace, then by folded name; "" = several
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
	for name, memory := range d.gone {
		restored := make(map[string]string, len(memory.labels))
		for key, value := range memory.labels {
			if original := known[name.namespace][prometheus.FoldLabelName(key)]; original != "" {
				key = original
			}
			restored[key] = value
		}
		d.gone[name] = remembered{restored, memory.at}
	}
}
