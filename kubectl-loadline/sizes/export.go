package sizes

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

var exportForms = []string{"patch", "kustomize", "helm"}

const exportHelp = `Writes what is recommended as YAML for those who keep their manifests in Git: patches
of the workloads, a kustomization with these patches, or values for a Helm chart, by
workload and container. Arguments are KIND/NAME or NAME, as for recommend.

Only containers of the pod template are written. Standard error names the rest with the
reason: injected containers, Jobs, whose templates are immutable, workloads that
another controller owns, pods without a controller, and kinds that Kubernetes does
not have.`

func exportCommand() *cobra.Command {
	c, form := &sizesFlags{}, ""
	cmd := &cobra.Command{Use: "export [flags] [[KIND/]NAME...]", Short: "write recommendations as patches, a kustomization or Helm values", Long: exportHelp}
	c.addFlags(cmd)
	cmd.Flags().StringVarP(&form, "output", "o", exportForms[0], "Form: "+strings.Join(exportForms, ", ")+".")
	// This only fails without the flag.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(exportForms, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.Invalid(flags.Check(slices.Contains(exportForms, form), "output", form, "must be "+strings.Join(exportForms, ", "))); err != nil {
			return err
		}
		s, err := c.read(cmd.Context(), inventory.Selection{Names: args})
		if err != nil {
			return err
		}
		problems, err := writeSizes(cmd.OutOrStdout(), form, s.sizes)
		for _, problem := range append(s.problems, problems...) {
			printable.Fprintln(cmd.ErrOrStderr(), "!", problem)
		}
		return errors.Join(err, s.missing)
	}
	return cmd
}

type patchSet struct {
	patches  []manifest
	values   []map[string]any // Helm values by the index of the patch
	problems []string
}

func patchesOf(all sizeList) (e patchSet) {
	for start := 0; start < len(all); {
		w, end := all[start].workload, start+1
		for end < len(all) && all[end].workload == w {
			end++
		}
		rows := all[start:end]
		start = end
		version, known := versionOf(w.Key)
		switch {
		case w.Immutable != "":
			e.skip(w.Key.String(), w.Key, w.Immutable)
			continue
		case !known:
			e.skip(w.Key.String(), w.Key, "the API version of its kind is not known here")
			continue
		}
		containers := e.containersOf(w, rows)
		if len(containers) == 0 {
			continue
		}
		values := map[string]any{}
		for _, c := range containers {
			values[c.Name] = map[string]any{"resources": c.Resources}
		}
		metadata := map[string]any{"name": w.Key.Name, "namespace": w.Key.Namespace}
		e.patches = append(e.patches, manifest{version, w.Key.Kind, metadata, template(w.Key, containers)})
		e.values = append(e.values, values)
	}
	return e
}

func (e *patchSet) skip(object string, key target.Key, why string) {
	e.problems = append(e.problems, fmt.Sprintf("%s in namespace %s is left out: %s", object, key.Namespace, why))
}

func (e *patchSet) containersOf(w *inventory.Workload, rows sizeList) (all []patchedContainer) {
	for i := range rows {
		c := &rows[i]
		name := fmt.Sprintf("container %s of %s", c.Container, w.Key)
		switch {
		case !slices.Contains(w.Containers, c.Container):
			e.skip(name, w.Key, "its pod template does not have this container")
		case len(c.Target) == 0:
			e.skip(name, w.Key, "there is no recommendation for it")
		default:
			all = append(all, patchedContainer{c.Container, corev1.ResourceRequirements{Requests: c.Target, Limits: c.NewLimits}})
		}
	}
	return all
}

func writeSizes(out io.Writer, form string, all sizeList) (problems []string, err error) {
	e := patchesOf(all)
	if len(e.patches) == 0 {
		return e.problems, nil
	}
	var documents []any
	switch form {
	case "kustomize":
		var patches []any
		for _, p := range e.patches {
			text, err := cli.MarshalYAML(p)
			if err != nil {
				return e.problems, err
			}
			object := map[string]any{"kind": p.Kind, "name": p.Metadata["name"], "namespace": p.Metadata["namespace"]}
			patches = append(patches, map[string]any{"target": object, "patch": string(text)})
		}
		documents = []any{map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "patches": patches}}
	case "helm":
		documents = []any{e.helmValues()}
	default:
		for _, p := range e.patches {
			documents = append(documents, p)
		}
	}
	return e.problems, printYAML(out, documents)
}

// helmValues returns containers by workload name. Ambiguous names are prefixed with namespace and kind.
func (e *patchSet) helmValues() map[string]any {
	same := map[any]int{}
	for _, p := range e.patches {
		same[p.Metadata["name"]]++
	}
	values := map[string]any{}
	for i, p := range e.patches {
		name := fmt.Sprint(p.Metadata["name"])
		if same[name] > 1 {
			name = fmt.Sprintf("%s/%s/%s", p.Metadata["namespace"], strings.ToLower(p.Kind), name)
		}
		values[name] = e.values[i]
	}
	return values
}

type patchedContainer struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

func template(key target.Key, containers []patchedContainer) map[string]any {
	pod := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}
	if key.Kind == "CronJob" {
		return map[string]any{"jobTemplate": map[string]any{"spec": pod}}
	}
	return pod
}
