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
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sketch"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

type vpaReport struct {
	VPA        *vpav1.VerticalPodAutoscaler
	Explained  explanation.VPA
	Unanswered string         // why the recommender did not explain the recommendation
	Computed   *recipe.Choice // recipe run by the plugin on saved usage, nil: none
	Rollout    rolloutReport  // policy and rollout
	Events     []corev1.Event // of the updater, newest first
	Problems   []string       // problems of checkpoints
	Room       string         // whether evictions wait for nodes, empty: unknown
}

// historyLoader loads the history of the containers of a VPA, by name.
type historyLoader func(context.Context, *vpaReport) (map[string]checkpoint.ContainerHistory, error)

// explainServed explains a VPA by the answer of the recommender in a namespace or, without an answer, by its status.
func explainServed(ctx context.Context, client versioned.Interface, q inventory.Request) (*vpaReport, error) {
	a, err := readVPA(ctx, client, q)
	if err != nil {
		return nil, err
	}
	answer, unanswered := programs.ExplainVPA(ctx, q.Kube, q.Programs, q.Namespace, q.Name, q.Now)
	choice := a.resolvePolicy(ctx, client, q)
	a.queryRollout(ctx, q)
	if unanswered == nil {
		a.Explained = *answer
		return a, nil
	}
	a.Unanswered, a.Explained.Recipe = unanswered.Error(), explanation.NewRecipe(choice)
	if r := a.VPA.Status.Recommendation; r != nil {
		for i := range r.ContainerRecommendations {
			c := explanation.Container{Name: r.ContainerRecommendations[i].ContainerName, Published: &r.ContainerRecommendations[i]}
			if convert.HasSeparateMemoryLimit(&a.VPA.Status) {
				c.MemoryLimitRatio = new(0.0)
			}
			a.Explained.Containers = append(a.Explained.Containers, c)
		}
	}
	if a.Events, err = updaterEvents(ctx, q.Kube, a.VPA); err != nil {
		a.Problems = append(a.Problems, fmt.Sprintf("list events: %v", err))
	}
	return a, nil
}

func explainFrom(ctx context.Context, client versioned.Interface, q inventory.Request, load historyLoader) (*vpaReport, error) {
	a, err := readVPA(ctx, client, q)
	if err != nil {
		return nil, err
	}
	a.Computed = q.Book.ForAnnotation(a.VPA.Annotations[recipe.Annotation])
	a.Computed = a.resolvePolicy(ctx, client, q)
	history, err := load(ctx, a)
	if err != nil {
		return nil, err
	}
	a.explain(history, q.Now)
	return a, nil
}

func readVPA(ctx context.Context, client versioned.Interface, q inventory.Request) (*vpaReport, error) {
	vpa, err := client.AutoscalingV1().VerticalPodAutoscalers(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &vpaReport{VPA: vpa}, nil
}

func historyFromCheckpoints(ctx context.Context, client versioned.Interface, q inventory.Request, a *vpaReport) (map[string]checkpoint.ContainerHistory, error) {
	owner := checkpoint.Owner{Namespace: q.Namespace, VPA: q.Name}
	loader := checkpoint.Loader{Client: client, Namespace: q.Namespace, Shape: usage.DefaultConfig().Shape}
	history, problems, err := loader.Load(ctx, func(o checkpoint.Owner) bool { return o == owner }, q.Now)
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		a.Problems = append(a.Problems, fmt.Sprintf("checkpoint %s: %v", p.Object, p.Err))
	}
	if ref := a.VPA.Spec.TargetRef; ref != nil {
		for _, f := range history.RemoveForeign(owner, target.RefKey(q.Namespace, ref)) {
			a.Problems = append(a.Problems, fmt.Sprintf("container %s: its checkpoint is that of a former target, %s, and is not used", f.Container, f.Target))
		}
	}
	if len(history[owner]) == 0 {
		return nil, errors.New(strings.Join(append([]string{"the VPA has no checkpoint: a recommender with --storage=prometheus writes none, so give --prometheus-address; any other writes one within --checkpoints-interval of its first sample"}, a.Problems...), "\n"))
	}
	return history[owner], nil
}

// resolvePolicy finds the policy and rollout of the VPA. It returns the effective recipe.
func (a *vpaReport) resolvePolicy(ctx context.Context, client versioned.Interface, q inventory.Request) *recipe.Choice {
	annotated := a.VPA.Annotations[recipe.Annotation]
	choice := q.Book.ForAnnotation(annotated)
	if q.Kube == nil {
		return choice
	}
	reader, err := sizing.NewReader(ctx, q.Kube, client, q.Policies)
	if err == nil {
		a.Rollout.WorkloadStatus, err = reader.WorkloadStatus(ctx, a.VPA)
	}
	if err != nil {
		problem := "the responsible SizingPolicy is unknown"
		if a.Computed != nil {
			problem += ", so the recipe may be another one"
		}
		a.Problems = append(a.Problems, fmt.Sprintf("%s: %v", problem, err))
		return choice
	}
	if problem := a.Rollout.Complete(ctx, q.Kube, a.VPA, q.Now); problem != "" {
		a.Problems = append(a.Problems, problem)
	}
	switch p := a.Rollout.Policy; {
	case p == nil:
		return choice
	case p.Unusable != "":
		a.Problems = append(a.Problems, fmt.Sprintf("SizingPolicy %s is invalid, and a running recommender keeps its previous recipe: %s", p.Name, p.Unusable))
		return choice
	default:
		return q.Book.Choose(a.Rollout.RecipeText(annotated), p.Recipe)
	}
}

func (a *vpaReport) queryRollout(ctx context.Context, q inventory.Request) {
	if err := a.Rollout.query(ctx, q); err != nil {
		a.Problems = append(a.Problems, fmt.Sprintf("the rollout is as the updater stored it last: %v", err))
	}
}

func (a *vpaReport) explain(history map[string]checkpoint.ContainerHistory, now time.Time) {
	a.Explained.Recipe = explanation.NewRecipe(a.Computed)
	rules := convert.Rules(a.VPA)
	maps.DeleteFunc(history, func(container string, _ checkpoint.ContainerHistory) bool { return rules.For(container).Off })
	for _, container := range slices.Sorted(maps.Keys(history)) {
		past := history[container]
		// The running recommender has since added the windows that were open.
		for _, pod := range slices.Sorted(maps.Keys(past.Windows)) {
			if w := past.Windows[pod]; w.Peak() >= 0 {
				past.Profile.AddPeak(float64(w.Peak()), w.End)
			}
		}
		in, published := recipe.Input{Profile: past.Profile, Containers: len(history)}, explanation.Published(a.VPA, container)
		if published != nil {
			in.Current = convert.Resources(published.Target)
		}
		if needs := a.Computed.Needs; needs.Any() {
			t, err := sketch.Read(needs, past.Sketch, now, 0)
			if err != nil {
				a.Problems = append(a.Problems, fmt.Sprintf("container %s: failed to read the sketch of the recipe: %v", container, err))
				t = sketch.New(needs)
			}
			in.Sketch = t
		}
		c, _ := explanation.Explain(container, a.Computed.Recipe, in)
		c.Published = published
		a.Explained.Containers = append(a.Explained.Containers, c)
	}
}

const nodesPage = 500

// evictionRoom describes whether evictions wait for capacity, "" without permission to read nodes.
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
	sign, err := client.NodeAutoscaler{Kube: kube}.Find(ctx, now, labels)
	if err != nil {
		return ""
	}
	return client.ExplainEvictionRoom(sign)
}

type stepRow struct {
	Container string              `json:"container"`
	Resource  corev1.ResourceName `json:"resource"`
	Bound     string              `json:"bound"`
	Step      string              `json:"step"`
	Amount    float64             `json:"amount"` // millicores or bytes

	kind resources.Kind
}

type stepsReport struct {
	Namespace string               `json:"namespace"`
	VPA       string               `json:"vpa"`
	Recipe    string               `json:"recipe"`
	State     *workloadStatus      `json:"state"`
	Saved     map[string]time.Time `json:"saved"` // last sample by container
	Steps     []stepRow            `json:"steps"`
	Problems  []string             `json:"problems,omitempty"`
}

func (a *vpaReport) steps() *stepsReport {
	e := &stepsReport{Namespace: a.VPA.Namespace, VPA: a.VPA.Name, Recipe: a.recipe(), State: rowOf(a.VPA, &a.Rollout.Rollout), Saved: map[string]time.Time{}, Problems: a.Problems}
	for _, problem := range []string{a.Explained.Recipe.Problem, a.unanswered()} {
		if problem != "" {
			e.Problems = append([]string{problem}, e.Problems...)
		}
	}
	for i := range a.Explained.Containers {
		c := &a.Explained.Containers[i]
		if !c.LastSample.IsZero() {
			e.Saved[c.Name] = c.LastSample.UTC()
		}
		for k := range resources.Kind(resources.Kinds) {
			for _, bound := range bounds(c, k) {
				for _, s := range bound.steps {
					e.Steps = append(e.Steps, stepRow{c.Name, convert.ResourceName(k), bound.name, s.Step, s.Amount, k})
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

func historyFromUsage(ctx context.Context, own versioned.Interface, q inventory.Request, a *vpaReport, e *inventory.Estimator) (map[string]checkpoint.ContainerHistory, error) {
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
	store, known, _ := e.Histories(controlled, a.Computed)
	if len(known) == 0 {
		return nil, errors.New("Prometheus has no usage of the pods that the VPA controls now")
	}
	past := map[string]checkpoint.ContainerHistory{}
	for container, h := range known {
		merged := checkpoint.ContainerHistory{Profile: store.ProfileOf(h.Series)}
		if h.Sketch != nil {
			merged.Sketch = h.Sketch.Image()
		}
		past[container] = merged
	}
	return past, nil
}
