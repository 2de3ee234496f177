package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/trace"
)

type subject struct {
	key                 usage.ContainerKey
	workload, container string
}

func (s subject) compare(o subject) int {
	return cmp.Or(strings.Compare(s.key.Namespace, o.key.Namespace), strings.Compare(s.workload, o.workload), strings.Compare(s.container, o.container))
}

func (s subject) name() string { return s.workload + "/" + s.container }

func (r *archiveReader) subjects(ctx context.Context) ([]subject, error) {
	u := r.query.Usage
	found := map[usage.ContainerKey]string{}
	var unnamed map[string]string
	r.queried = []column{cpuUsage, memoryUsage}
	metrics := []string{u.Selector(u.CPUMetric), u.Selector(u.MemoryMetric)}
	if r.query.Waiting != "" {
		metrics = append(metrics, u.Selector(r.query.Waiting))
	}
	err := r.labels(ctx, metrics, func(labels map[string]string) {
		if r.query.Waiting != "" && labels["__name__"] == r.query.Waiting {
			r.queried = []column{cpuUsage, memoryUsage, cpuWaiting}
			return
		}
		if key, ok := u.Container(labels); ok {
			found[key] = Cluster(labels)
		} else {
			unnamed = labels
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	if unnamed != nil {
		r.report(&trace.Problem{Text: fmt.Sprintf("skipped series such as %v: expected the labels %s, %s and %s", unnamed, u.NamespaceLabel, u.PodLabel, u.ContainerLabel)})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no usage in this time range: expected series %s: check metrics, labels, --namespace and --prometheus-matchers", u.Selector(u.MemoryMetric))
	}
	selected, err := r.selected(ctx)
	if err != nil {
		return nil, err
	}
	owners := r.owners(ctx)
	var subjects []subject
	for key := range found {
		pod := podName{key.Namespace, key.Pod}
		s := subject{key, key.Namespace + "/" + owners.workload(pod), key.Pod + "/" + key.Container}
		if (selected == nil || selected[pod]) && (r.include == nil || r.include(s.workload, s.container)) {
			subjects = append(subjects, s)
		}
	}
	slices.SortFunc(subjects, subject.compare)
	return r.dropMultiCluster(subjects, found), nil
}

// dropMultiCluster drops workloads with pods in several clusters. AmbiguityDetector handles pods
// with the same name in several clusters.
func (r *archiveReader) dropMultiCluster(subjects []subject, cluster map[usage.ContainerKey]string) []subject {
	clusters := map[string]map[string]bool{}
	for _, s := range subjects {
		name := cluster[s.key]
		if name == "" {
			continue
		}
		if clusters[s.workload] == nil {
			clusters[s.workload] = map[string]bool{}
		}
		clusters[s.workload][name] = true
	}
	for _, workload := range slices.Sorted(maps.Keys(clusters)) {
		if len(clusters[workload]) > 1 {
			r.report(&trace.Problem{Series: workload, Text: multipleClustersError(clusters[workload]).Error()})
		}
	}
	return slices.DeleteFunc(subjects, func(s subject) bool { return len(clusters[s.workload]) > 1 })
}

// labels queries the labels of series in parts if needed. It may visit a series more than once.
func (r *archiveReader) labels(ctx context.Context, selectors []string, visit func(labels map[string]string)) error {
	broken := 0
	ask := func(ctx context.Context, q labelQuery) error {
		answer, err := r.client.Labels(ctx, q.selectors, q.since, q.until, visit)
		if r.warn(answer); err == nil {
			broken += answer.Broken
		}
		return err
	}
	lost := func(_ labelQuery, err error) error { return err }
	_, err := ReadParts(ctx, &r.retries, []labelQuery{{selectors, r.query.Since, r.query.Until}}, ask, lost)
	if err == nil && broken > 0 {
		r.report(&trace.Problem{Text: fmt.Sprintf("%d series of %s have labels that cannot be read: expected text", broken, strings.Join(selectors, " and "))})
	}
	return err
}

type labelQuery struct {
	selectors    []string
	since, until time.Time
}

const minSpan = time.Hour

// Split splits by selector, then halves the time range. It returns none if that cannot help.
func (q labelQuery) Split(err error) (parts []labelQuery) {
	length := q.until.Sub(q.since)
	switch middle := q.since.Add(length / 2); {
	case !IsDivisible(err):
	case len(q.selectors) > 1:
		for i := range q.selectors {
			parts = append(parts, labelQuery{q.selectors[i : i+1], q.since, q.until})
		}
	case length >= minSpan:
		parts = []labelQuery{{q.selectors, q.since, middle}, {q.selectors, middle, q.until}}
	}
	return parts
}

type podName struct{ namespace, pod string }

// stateSelectors returns the selectors of a kube-state-metrics metric in a namespace, or in all if
// it is empty. A namespace needs two selectors, because its label may have the prefix exported_.
func (r *archiveReader) stateSelectors(metric, namespace string, matchers ...string) []string {
	matchers = append(matchers, r.query.Usage.Matchers, r.query.StateMatchers)
	if namespace == "" {
		return []string{metric + "{" + JoinMatchers(matchers...) + "}"}
	}
	own := JoinMatchers(slices.Concat(matchers, []string{fmt.Sprintf("namespace=%q", namespace), exported + `namespace=""`})...)
	prefixed := JoinMatchers(slices.Concat(matchers, []string{fmt.Sprintf("%snamespace=%q", exported, namespace)})...)
	return []string{metric + "{" + own + "}", metric + "{" + prefixed + "}"}
}

// selected returns nil for all pods.
func (r *archiveReader) selected(ctx context.Context) (map[podName]bool, error) {
	if r.query.Pods == nil || r.query.Pods.Empty() {
		return nil, nil
	}
	pods, selectors := map[podName]bool{}, r.stateSelectors("kube_pod_labels", r.query.Usage.Namespace, matchers(r.query.Pods)...)
	err := r.labels(ctx, selectors, func(labels map[string]string) {
		pods[podName{StateLabel(labels, "namespace"), StateLabel(labels, "pod")}] = true
	})
	if err != nil {
		return nil, fmt.Errorf("labels of pods: %w", err)
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("no pod has the labels %s: expected series %s, which kube-state-metrics has for labels in its --metric-labels-allowlist", r.query.Pods, selectors[0])
	}
	return pods, nil
}

// matchers converts a pod selector to PromQL matchers with the label names of kube-state-metrics.
func matchers(pods labels.Selector) []string {
	requirements, _ := pods.Requirements()
	var all []string
	for _, one := range requirements {
		name := "label_" + FoldLabelName(one.Key())
		values := one.Values().UnsortedList()
		slices.Sort(values)
		switch one.Operator() {
		case selection.Exists:
			all = append(all, name+`!=""`)
		case selection.DoesNotExist:
			all = append(all, name+`=""`)
		case selection.NotEquals, selection.NotIn:
			all = append(all, fmt.Sprintf("%s!~%q", name, OneOf(values)))
		default:
			all = append(all, fmt.Sprintf("%s=~%q", name, OneOf(values)))
		}
	}
	return all
}

type owner struct{ kind, name string }

func (o owner) precedes(other owner) bool {
	if (o.kind == noOwner) != (other.kind == noOwner) {
		return other.kind == noOwner
	}
	return cmp.Or(strings.Compare(o.name, other.name), strings.Compare(o.kind, other.kind)) < 0
}

type objectKey struct{ kind, namespace, name string }

// owners queries the owners of objects. Without owners the workload is derived from the pod name.
func (r *archiveReader) owners(ctx context.Context) owners {
	o := owners{}
	for _, ask := range []struct{ metric, label, kind string }{
		{"kube_pod_owner", "pod", "Pod"}, {"kube_replicaset_owner", "replicaset", "ReplicaSet"}, {"kube_job_owner", "job_name", "Job"},
	} {
		err := r.labels(ctx, r.stateSelectors(ask.metric, r.query.Usage.Namespace), func(labels map[string]string) {
			key, one := objectKey{ask.kind, StateLabel(labels, "namespace"), StateLabel(labels, ask.label)}, owner{labels["owner_kind"], labels["owner_name"]}
			if labels["owner_is_controller"] == "false" {
				return
			}
			// An adopted orphan has several owners, and the result must not depend on their order.
			if before, known := o[key]; !known || one.precedes(before) {
				o[key] = one
			}
		})
		if err != nil && ctx.Err() == nil {
			r.report(&trace.Problem{Warning: true, Text: fmt.Sprintf("owners of pods, from %s: %v: workloads are derived from pod names", ask.metric, err)})
			maps.DeleteFunc(o, func(key objectKey, _ owner) bool { return key.kind == ask.kind })
		}
	}
	return o
}

type owners map[objectKey]owner

const noOwner = "<none>"

// workload returns the topmost owner of a pod, else the common prefix of the pod names.
func (o owners) workload(pod podName) string {
	direct, known := o[objectKey{"Pod", pod.namespace, pod.pod}]
	top, further := o[objectKey{direct.kind, pod.namespace, direct.name}]
	switch {
	case known && direct.kind == "Node":
		return strings.TrimSuffix(pod.pod, "-"+direct.name) // a static pod
	case known && direct.kind == noOwner:
		return pod.pod
	case further && top.kind != noOwner:
		return top.name
	case further, known && direct.kind != "ReplicaSet" && direct.kind != "Job":
		return direct.name
	}
	if common := CommonPodNames(pod.pod); len(common) > 0 {
		return common[len(common)-1]
	}
	return pod.pod
}
