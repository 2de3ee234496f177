package explain

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
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// containerReport explains the recommendation for one container.
type containerReport struct {
	Container string
	Saved     time.Time // last CPU sample of the checkpoint
	Sketch    bool      // all data of the recipe is present
	Lacks     []string  // kinds with too few points for a recommendation, with their number
	Grown     string    // daily growth of memory, or empty
	HeldBack  float64   // minimum CPU usage in millicores, because a lower limit was reached. 0: none, or unknown
	Steps     recipe.Explanation
	// LimitRatio is the declared ratio of the memory limit, if the limit does not follow the request.
	LimitRatio *sketch.LimitRatio
	Published  *vpav1.RecommendedContainerResources // nil: nothing is published
}

// vpaReport explains the recommendation of a VPA.
type vpaReport struct {
	VPA        *vpav1.VerticalPodAutoscaler
	Choice     *recipe.Choice
	Rollout    inventory.Rollout // policy and rollout
	Containers []containerReport // sorted
	Problems   []string          // problems of checkpoints
	Room       string            // whether evictions wait for node capacity, and why. Empty: unknown
}

// historyLoader loads the history of the containers of a VPA, by name.
type historyLoader func(context.Context, *vpaReport) (map[string]checkpoint.Past, error)

// explainFrom explains a VPA by the history that load returns.
func explainFrom(ctx context.Context, client versioned.Interface, q inventory.Request, load historyLoader) (*vpaReport, error) {
	vpa, err := client.AutoscalingV1().VerticalPodAutoscalers(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	a := &vpaReport{VPA: vpa, Choice: q.Book.For(vpa.Annotations[recipe.Annotation])}
	a.govern(ctx, client, q)
	history, err := load(ctx, a)
	if err != nil {
		return nil, err
	}
	a.explain(history, q.Now)
	return a, nil
}

// historyFromCheckpoints returns the history of the containers of a VPA, by name.
func historyFromCheckpoints(ctx context.Context, client versioned.Interface, q inventory.Request, a *vpaReport) (map[string]checkpoint.Past, error) {
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

// govern finds the policy of the VPA, and uses its recipe if the VPA selects none.
func (a *vpaReport) govern(ctx context.Context, client versioned.Interface, q inventory.Request) {
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
	if problem := a.Rollout.Complete(ctx, q.Kube, a.VPA, q.Now); problem != "" {
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

func (a *vpaReport) explain(history map[string]checkpoint.Past, now time.Time) {
	rules := convert.Rules(a.VPA)
	maps.DeleteFunc(history, func(container string, _ checkpoint.Past) bool { return rules.For(container).Off })
	for _, container := range slices.Sorted(maps.Keys(history)) {
		past := history[container]
		// The running recommender has since added the windows that were open.
		for _, pod := range slices.Sorted(maps.Keys(past.Windows)) {
			if w := past.Windows[pod]; w.Peak() >= 0 {
				past.Profile.AddPeak(float64(w.Peak()), w.End)
			}
		}
		e := containerReport{Container: container, Saved: past.Profile.Last(), Sketch: true, Published: published(a.VPA, container)}
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

// growth describes daily growth of memory. A recipe can only follow it.
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
	if i := slices.IndexFunc(list, func(c vpav1.RecommendedContainerResources) bool { return c.ContainerName == container }); i >= 0 {
		return &list[i]
	}
	return nil
}

// nodesPage is the page size of node lists.
const nodesPage = 500

// evictionRoom describes whether evictions wait for node capacity, and why. It returns "" without
// the permission to read nodes.
func evictionRoom(ctx context.Context, kube kubernetes.Interface, now time.Time) string {
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

// stepRow is the result of one step of a recipe.
type stepRow struct {
	Container string              `json:"container"`
	Resource  corev1.ResourceName `json:"resource"`
	Bound     string              `json:"bound"`
	Step      string              `json:"step"`
	Amount    float64             `json:"amount"` // millicores or bytes

	kind resources.Kind
}

// stepsReport is the machine-readable report about a VPA.
type stepsReport struct {
	Namespace string               `json:"namespace"`
	VPA       string               `json:"vpa"`
	Recipe    string               `json:"recipe"`
	State     *workloadStatus      `json:"state"`
	Saved     map[string]time.Time `json:"saved"` // last sample by container
	Steps     []stepRow            `json:"steps"`
	Problems  []string             `json:"problems,omitempty"`
}

// steps returns the machine-readable report.
func (a *vpaReport) steps() *stepsReport {
	e := &stepsReport{Namespace: a.VPA.Namespace, VPA: a.VPA.Name, Recipe: a.Choice.Name, State: rowOf(a.VPA, &a.Rollout), Saved: map[string]time.Time{}, Problems: a.Problems}
	if a.Choice.Problem != "" {
		e.Problems = append([]string{a.Choice.Problem}, e.Problems...)
	}
	for i := range a.Containers {
		c := &a.Containers[i]
		e.Saved[c.Container] = c.Saved.UTC()
		for k := range resources.Kind(resources.Kinds) {
			for _, bound := range []struct {
				name  string
				steps []recipe.Value
			}{{"target", c.Steps.Target[k]}, {"lower bound", c.Steps.Lower[k]}, {c.upper(k), c.Steps.Upper[k]}} {
				for _, s := range bound.steps {
					e.Steps = append(e.Steps, stepRow{c.Container, convert.ResourceName(k), bound.name, s.Step, s.Amount, k})
				}
			}
		}
	}
	return e
}

func (e *stepsReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"CONTAINER", "RESOURCE", "BOUND", "STEP", "AMOUNT"}}
	for i := range e.Steps {
		s := &e.Steps[i]
		t.Rows = append(t.Rows, []string{s.Container, string(s.Resource), s.Bound, s.Step, cli.FormatAmount(s.kind, s.Amount)})
	}
	return []cli.Table{t}
}

func (e *stepsReport) Notes() []string { return cli.Warnings(e.Problems) }

// historyFromUsage returns the history of the containers of a VPA from the usage of its pods.
func historyFromUsage(ctx context.Context, own versioned.Interface, q inventory.Request, a *vpaReport, e *inventory.Estimator) (map[string]checkpoint.Past, error) {
	s, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a.Problems = append(a.Problems, s.Problems...)
	pods, err := inventory.LivePods(ctx, q)
	if err != nil {
		return nil, err
	}
	var controlled []*corev1.Pod
	for i := range pods {
		by, err := s.Controlling(ctx, &pods[i])
		switch {
		case err != nil:
			a.Problems = append(a.Problems, fmt.Sprintf("pod %s: %v", cli.PodName(&pods[i]), err))
		case by != nil && by.Object.Name == q.Name:
			controlled = append(controlled, &pods[i])
		}
	}
	store, known, _ := e.Histories(controlled, a.Choice)
	if len(known) == 0 {
		return nil, errors.New("Prometheus has no usage of the pods that the VPA controls now")
	}
	past := map[string]checkpoint.Past{}
	for container, h := range known {
		merged := checkpoint.Past{Profile: store.ProfileOf(h.Series)}
		if h.Sketch != nil {
			merged.Sketch = h.Sketch.Image()
		}
		past[container] = merged
	}
	return past, nil
}
