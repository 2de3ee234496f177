package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/source/prometheus"
)

// EstimateFlags configure recommendations for workloads without a VPA.
type EstimateFlags struct {
	Recipe             string
	Address            string // Prometheus. Empty: the metrics API
	Length, Resolution string // of the history in Prometheus
	Access             prometheus.Access
	Settings           flags.Estimate
}

// AddFlags adds the flags to fs.
func (f *EstimateFlags) AddFlags(fs *pflag.FlagSet) {
	f.Access, f.Settings = prometheus.DefaultAccess(), flags.DefaultEstimate()
	f.Access.QueryTimeout = "1m"
	fs.StringVar(&f.Recipe, "recipe", "vpa", "Recipe of estimates for workloads without a VPA.")
	fs.StringVar(&f.Address, "prometheus-address", "", "Prometheus with the history for estimates. Unset: a single sample from the metrics API.")
	fs.StringVar(&f.Length, "history-length", "8d", "How far back usage is read from Prometheus.")
	fs.StringVar(&f.Resolution, "history-resolution", "5m", "Time between two samples from Prometheus: CPU is a mean over it, memory its maximum.")
	f.Access.AddFlags(fs)
	f.Settings.AddFlags(fs)
}

// FromMetricsAPI names the source without history.
const FromMetricsAPI = "the metrics API"

// ParsedEstimate holds the parsed flags.
type ParsedEstimate struct {
	Book         *recipe.Cache
	length, step time.Duration
}

// Parse returns the parsed flags, or all errors of their values.
func (f *EstimateFlags) Parse() (p ParsedEstimate, err error) {
	var err1, err2 error
	p.length, err1 = prometheus.ParseDuration(f.Length)
	p.step, err2 = prometheus.ParseDuration(f.Resolution)
	book, unknown := recipe.NewCache(f.Recipe, f.Settings.Config)
	if p.Book = book; unknown != nil {
		unknown = flags.Problem("recipe", f.Recipe, unknown.Error())
	}
	return p, errors.Join(unknown, f.Settings.Validate(), f.Access.Complete(), f.Access.Validate(f.Address != ""),
		flags.Check(err2 == nil && p.step >= time.Second, "history-resolution", f.Resolution, "must be a duration of at least 1s, such as 5m"),
		flags.Check(err1 == nil && p.length > p.step, "history-length", f.Length, "must be a duration such as 8d, and longer than --history-resolution"))
}

// Estimator computes recommendations for workloads without a VPA, as the recommender would from the same usage.
type Estimator struct {
	Name    string // name of the source
	Book    *recipe.Cache
	samples map[usage.ContainerKey][]usage.Sample // sorted by time
	nodes   map[string]resources.List             // capacity by name
	largest resources.List                        // largest capacity of any node
}

// NewEstimator reads the usage of a namespace, or of all.
func (f *EstimateFlags) NewEstimator(ctx context.Context, p ParsedEstimate, config *rest.Config, q Request) (*Estimator, error) {
	e := &Estimator{Name: FromMetricsAPI, Book: p.Book}
	var err error
	if f.Address == "" {
		if list, unread := q.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); unread == nil { // otherwise the bounds are less exact
			e.addNodes(list.Items)
		}
		var source *client.PodMetrics
		if source, err = client.NewPodMetrics(config, q.Namespace); err == nil {
			err = source.Samples(ctx, e.Add)
		}
	} else {
		e.Name = "Prometheus"
		err = e.read(ctx, f, p, q.Namespace, q.Now)
	}
	for _, all := range e.samples {
		slices.SortStableFunc(all, func(a, b usage.Sample) int { return a.At.Compare(b.At) })
	}
	return e, err
}

// Add adds a sample.
func (e *Estimator) Add(s usage.Sample) {
	if e.samples == nil {
		e.samples = map[usage.ContainerKey][]usage.Sample{}
	}
	e.samples[s.Container] = append(e.samples[s.Container], s)
}

// addNodes sets the bounds of current usage. History has none: nodes may have been larger before.
func (e *Estimator) addNodes(nodes []corev1.Node) {
	e.nodes = map[string]resources.List{}
	for i := range nodes {
		capacity := convert.Resources(nodes[i].Status.Capacity)
		e.nodes[nodes[i].Name] = capacity
		for k := range resources.Kind(resources.Kinds) {
			e.largest = e.largest.With(k, max(e.largest.Value(k), capacity.Value(k)))
		}
	}
}

type podNodes struct {
	*Estimator
	names map[types.NamespacedName]string
}

// Ceiling returns the upper limit of plausible usage, as in the recommender.
func (n podNodes) Ceiling(c usage.ContainerKey, k resources.Kind) resources.Amount {
	capacity := n.nodes[n.names[types.NamespacedName{Namespace: c.Namespace, Name: c.Pod}]].Value(k)
	if capacity <= 0 {
		capacity = n.largest.Value(k)
	}
	return usage.MaxUsage(k, capacity)
}

func (e *Estimator) read(ctx context.Context, f *EstimateFlags, p ParsedEstimate, namespace string, now time.Time) error {
	server, err := prometheus.New(process.OS{}, f.Access.Client(f.Address))
	if err != nil {
		return flags.Problem("prometheus-address", f.Address, err.Error())
	}
	names := prometheus.DefaultUsage()
	names.Namespace, names.Matchers = namespace, f.Access.Matchers
	distinct := prometheus.NewAmbiguityDetector(names, p.step)
	end := now.Truncate(p.step)
	times := prometheus.Times{Start: end.Add(-p.length), Step: p.step, Count: int(p.length/p.step) + 1}
	for k, query := range [resources.Kinds]string{resources.CPU: names.CPU(p.step), resources.Memory: names.Peak(p.step)} {
		_, err := server.Range(ctx, prometheus.Range{Query: query, Times: times}, func(labels map[string]string, points []prometheus.Point) {
			container, whole := names.Container(labels)
			if !whole || !distinct.Add(container, labels, points) {
				return
			}
			for _, point := range points {
				e.Add(usage.Sample{Container: container, Kind: resources.Kind(k), At: point.At, Amount: prometheus.Amount(resources.Kind(k), point.Value)})
			}
		}, nil)
		if err != nil {
			return fmt.Errorf("read the history of %s from Prometheus: %w", resources.Kind(k), err)
		}
	}
	if err := distinct.Err(); err != nil {
		for container := range e.samples {
			if distinct.Ambiguous(container) != nil {
				delete(e.samples, container)
			}
		}
		return err
	}
	return nil
}

// History is the merged usage of a container over all pods of a workload.
type History struct {
	Series usage.Series
	Sketch *sketch.Sketch // nil: not needed by the recipe
}

// Histories returns the usage history and the current requests of the containers of pods, by name.
func (e *Estimator) Histories(pods []*corev1.Pod, choice *recipe.Choice) (store *usage.Store, known map[string]*History, current map[string]resources.List) {
	config, names := usage.DefaultConfig(), map[types.NamespacedName]string{}
	for _, pod := range pods {
		names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod.Spec.NodeName
	}
	config.Nodes = podNodes{e, names}
	store, known, current = usage.NewStore(config), map[string]*History{}, map[string]resources.List{}
	for _, pod := range pods {
		for i, c := range convert.NewPod(pod).Containers {
			key := usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name}
			samples := e.samples[key]
			if len(samples) == 0 {
				continue
			}
			series, created := store.Track(key, usage.SeriesKey{Namespace: pod.Namespace, Container: c.Name}, samples[0].At)
			h := known[c.Name]
			if created || h == nil {
				h = &History{Series: series}
				if choice.Needs.Any() {
					h.Sketch = sketch.New(choice.Needs)
				}
				known[c.Name] = h
			}
			current[c.Name] = convert.UnboostedRequests(pod, &pod.Spec.Containers[i], nil)
			for _, s := range samples {
				if store.Observe(s) != usage.AboveCeiling && h.Sketch != nil {
					h.Sketch.ObservePod(pod.Name, s.At, s.Kind, s.Amount, c.Limits.Value(s.Kind))
				}
			}
		}
	}
	return store, known, current
}

// Recommend returns the recommendation of the recipe for each container of a workload.
func (e *Estimator) Recommend(w *Workload) map[string]resources.Bounds {
	choice := e.Book.ForAnnotation("")
	store, known, current := e.Histories(w.Pods, choice)
	result := map[string]resources.Bounds{}
	for name, h := range known {
		r := choice.Recommend(recipe.Input{Profile: store.ProfileOf(h.Series), Sketch: h.Sketch, Containers: len(known), Current: current[name]})
		b := r.Bounds
		for k := range resources.Kind(resources.Kinds) {
			if !r.Ready[k] {
				b.Lower, b.Target, b.Upper = b.Lower.Without(k), b.Target.Without(k), b.Upper.Without(k)
			}
		}
		if !b.Target.Empty() {
			result[name] = b
		}
	}
	return result
}
