package explain

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

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

// Tables implements cli.Report.
func (e *stepsReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"CONTAINER", "RESOURCE", "BOUND", "STEP", "AMOUNT"}}
	for i := range e.Steps {
		s := &e.Steps[i]
		t.Rows = append(t.Rows, []string{s.Container, string(s.Resource), s.Bound, s.Step, cli.FormatAmount(s.kind, s.Amount)})
	}
	return []cli.Table{t}
}

// Notes implements cli.Report.
func (e *stepsReport) Notes() []string { return cli.Warnings(e.Problems) }
