package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// explained is how the recommendation for one container comes about.
type explained struct {
	Container string
	Saved     time.Time // last CPU sample that is in the checkpoint
	Sketch    bool      // what the recipe needs besides the histograms was there, or is not needed
	Lacks     []string  // kinds of which there are too few points to recommend anything, and how many there are
	Grown     string    // how memory grows from day to day; empty: it does not, or nobody knows
	HeldBack  float64   // what use of CPU counts as at least, because a lower limit was reached, in millicores; 0: it was not, or nobody knows
	Steps     recipe.Explanation
	// LimitRatio is that of the memory which the pods were declared with, where the limit does not
	// follow the request; nil: it does.
	LimitRatio *sketch.LimitRatio
	Published  *vpav1.RecommendedContainerResources // nil = nothing is
}

// answer is all that there is to say about a VPA.
type answer struct {
	VPA        *vpav1.VerticalPodAutoscaler
	Choice     *recipe.Choice
	Rollout    rolloutStanding // which SizingPolicy is responsible, and how far its rollout is
	Containers []explained     // sorted
	Problems   []string        // about checkpoints
	Room       string          // whether evictions wait for room on nodes, and why; empty: not known
}

// question is about a VPA or a pod, asked now.
type question struct {
	Namespace, Name string
	Book            *recipe.Book // with the settings of the recommender
	Now             time.Time
	Policies        fleet.Options        // those of the programs
	Kube            kubernetes.Interface // to find the SizingPolicy; nil: none is looked for
	SharingMinAge   time.Duration        // of the updater; 0: it is not known
}

// historyLoader returns the history of the containers of the VPA of an answer, by name.
type historyLoader func(context.Context, *answer) (map[string]checkpoint.Past, error)

// explain reads the VPA and its checkpoints.
func explain(ctx context.Context, client versioned.Interface, q question) (*answer, error) {
	return explainFrom(ctx, client, q, func(ctx context.Context, a *answer) (map[string]checkpoint.Past, error) {
		return checkpointsOf(ctx, client, q, a)
	})
}

// explainFrom explains a VPA by a history of its containers that load returns.
func explainFrom(ctx context.Context, client versioned.Interface, q question, load historyLoader) (*answer, error) {
	vpa, err := client.AutoscalingV1().VerticalPodAutoscalers(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	a := &answer{VPA: vpa, Choice: q.Book.For(vpa.Annotations[recipe.Annotation])}
	a.govern(ctx, client, q)
	history, err := load(ctx, a)
	if err != nil {
		return nil, err
	}
	a.explain(history, q.Now)
	return a, nil
}

// checkpointsOf returns what the checkpoints of a VPA hold, by container.
func checkpointsOf(ctx context.Context, client versioned.Interface, q question, a *answer) (map[string]checkpoint.Past, error) {
	owner := checkpoint.Owner{Namespace: q.Namespace, VPA: q.Name}
	loader := checkpoint.Loader{
		Client: client, Namespace: q.Namespace, Shape: usage.DefaultConfig().Shape,
		Wanted: func(o checkpoint.Owner) bool { return o == owner }, Now: func() time.Time { return q.Now },
		Report: func(object string, err error) {
			a.Problems = append(a.Problems, fmt.Sprintf("checkpoint %s: %v", object, err))
		},
	}
	history, err := loader.Load(ctx)
	if err != nil {
		return nil, err
	}
	if ref := a.VPA.Spec.TargetRef; ref != nil {
		for _, f := range history.Disown(owner, target.RefKey(q.Namespace, ref)) {
			a.Problems = append(a.Problems, fmt.Sprintf("container %s: its checkpoint is that of a former target, %s, and is not used", f.Container, f.Target))
		}
	}
	if len(history[owner]) == 0 {
		return nil, errors.New(strings.Join(append([]string{"the VPA has no checkpoint: a recommender with --storage=prometheus writes none, so give --prometheus-address; any other writes one within --checkpoints-interval of its first sample"}, a.Problems...), "\n"))
	}
	return history[owner], nil
}

// govern finds the policy that is responsible, and takes its recipe if the VPA asks for none.
func (a *answer) govern(ctx context.Context, client versioned.Interface, q question) {
	if q.Kube == nil {
		return
	}
	reader, err := sizing.NewReader(ctx, q.Kube, client, q.Policies)
	if err == nil {
		a.Rollout.Standing, err = reader.Standing(ctx, a.VPA)
	}
	if err != nil {
		a.Problems = append(a.Problems, fmt.Sprintf("it is not known which SizingPolicy is responsible, so the recipe may be another one: %v", err))
		return
	}
	if problem := a.Rollout.complete(ctx, q.Kube, a.VPA, q.Now); problem != "" {
		a.Problems = append(a.Problems, problem)
	}
	switch p := a.Rollout.Policy; {
	case p == nil:
	case p.Unusable != "":
		a.Problems = append(a.Problems, fmt.Sprintf("SizingPolicy %s cannot be used, and a recommender that runs keeps the recipe that it had: %s", p.Name, p.Unusable))
	default:
		a.Choice = q.Book.Choose(a.Rollout.RecipeText(a.VPA.Annotations[recipe.Annotation]), p.Recipe)
	}
}

func (a *answer) explain(history map[string]checkpoint.Past, now time.Time) {
	rules := convert.Rules(a.VPA)
	maps.DeleteFunc(history, func(container string, _ checkpoint.Past) bool { return rules.For(container).Off })
	for _, container := range slices.Sorted(maps.Keys(history)) {
		past := history[container]
		// What was still open when the checkpoint was written is in the store of a
		// recommender that runs.
		for _, pod := range slices.Sorted(maps.Keys(past.Windows)) {
			if w := past.Windows[pod]; w.Peak() >= 0 {
				past.Profile.AddPeak(float64(w.Peak()), w.End)
			}
		}
		e := explained{Container: container, Saved: past.Profile.Last(), Sketch: true, Published: published(a.VPA, container)}
		in := recipe.Input{Profile: past.Profile, Containers: len(history)}
		if e.Published != nil {
			in.Current = convert.Resources(e.Published.Target)
		}
		if needs := a.Choice.Needs; needs.Any() {
			t, err := sketch.Read(needs, past.Sketch, now, 0)
			if err != nil {
				a.Problems = append(a.Problems, fmt.Sprintf("container %s: what the recipe knows besides the histograms cannot be read: %v", container, err))
				t = sketch.New(needs)
			}
			in.Sketch = t
			_, cpu := t.Covers(resources.CPU)
			_, memory := t.Covers(resources.Memory)
			e.Sketch, e.Grown, e.HeldBack = cpu || memory, growth(t), t.HeldBack()
			if a.Choice.SeparateMemoryLimit {
				e.LimitRatio = &t.LimitRatio
			}
		}
		for k, p := range a.Choice.Recommend(in).Points {
			if p.Have < p.Want {
				e.Lacks = append(e.Lacks, fmt.Sprintf("%d of %d points of %s", p.Have, p.Want, resources.Kind(k)))
			}
		}
		e.Steps = a.Choice.Explain(in)
		a.Containers = append(a.Containers, e)
	}
}

// growth says that memory grows from day to day. A recipe can only follow that.
func growth(t *sketch.Sketch) string {
	if t.Peaks == nil {
		return ""
	}
	g := t.Peaks.Growth()
	if g.Days == 0 {
		return ""
	}
	return g.String() + ": if it is a leak, no recommendation will be enough, and maxAllowed bounds what it takes"
}

func published(vpa *vpav1.VerticalPodAutoscaler, container string) *vpav1.RecommendedContainerResources {
	if vpa.Status.Recommendation == nil {
		return nil
	}
	list := vpa.Status.Recommendation.ContainerRecommendations
	if at := slices.IndexFunc(list, func(c vpav1.RecommendedContainerResources) bool { return c.ContainerName == container }); at >= 0 {
		return &list[at]
	}
	return nil
}

// quantity is how an amount of a kind reads in a list; "-" if it has none.
func quantity(list corev1.ResourceList, k resources.Kind) string {
	q, found := list[convert.ResourceName(k)]
	if !found {
		return "-"
	}
	return human(k, float64(convert.Amount(k, q)))
}

// human prints an amount for people.
func human(k resources.Kind, a float64) string {
	if k == resources.CPU {
		return fmt.Sprintf("%.4gm", a)
	}
	const mib = 1 << 20
	return fmt.Sprintf("%.5g MiB", a/mib)
}

// nodesPage is how many nodes are read in one request.
const nodesPage = 500

// room says whether evictions by the updater wait for room on nodes, and why. It is
// empty where that may not be read: the rest of the answer does not need it.
func room(ctx context.Context, kube kubernetes.Interface, now time.Time) string {
	labels := func(ctx context.Context) (all []map[string]string, err error) {
		for options := (metav1.ListOptions{Limit: nodesPage}); ; {
			nodes, err := kube.CoreV1().Nodes().List(ctx, options)
			if err != nil {
				return nil, err
			}
			for i := range nodes.Items {
				all = append(all, nodes.Items[i].Labels)
			}
			if options.Continue = nodes.Continue; options.Continue == "" {
				return all, nil
			}
		}
	}
	sign, err := client.NodeAutoscaler{Kube: kube, Nodes: labels}.Find(ctx, now)
	if err != nil {
		return ""
	}
	return client.ExplainEvictionRoom(sign)
}
