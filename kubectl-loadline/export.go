package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

// exportForms are the forms in which sizes are written for those who keep manifests in Git.
var exportForms = []string{"patch", "kustomize", "helm"}

const exportHelp = `Writes what is recommended as YAML for those who keep their manifests in Git: patches
of the workloads, a kustomization with these patches, or values for a Helm chart, by
workload and container. Arguments are KIND/NAME or NAME, as for recommend.

Only containers of the pod template are written. Standard error names the rest with the
reason: injected containers, Jobs, whose templates are immutable, workloads that
another controller owns, pods without a controller, and kinds that Kubernetes does
not have.`

func exportCommand() *cobra.Command {
	c, form := &sizesConfig{}, ""
	cmd := &cobra.Command{Use: "export [flags] [[KIND/]NAME...]", Short: "write what is recommended as patches, a kustomization or Helm values", Long: exportHelp}
	c.addFlags(cmd)
	cmd.Flags().StringVarP(&form, "output", "o", exportForms[0], "Form: "+strings.Join(exportForms, ", ")+".")
	// The flag is there, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(exportForms, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := wrong(flags.Check(slices.Contains(exportForms, form), "output", form, "must be "+strings.Join(exportForms, ", "))); err != nil {
			return err
		}
		s, err := c.read(cmd.Context(), sizesScope{Names: args})
		if err != nil {
			return err
		}
		problems, err := sizesAs(cmd.OutOrStdout(), form, s.sizes)
		for _, problem := range append(s.problems, problems...) {
			printable.Fprintln(cmd.ErrOrStderr(), "!", problem)
		}
		return errors.Join(err, s.missing)
	}
	return cmd
}

// exported are the patches of workloads, and what is left out.
type exported struct {
	patches  []manifest
	values   []map[string]any // containers of the patch of the same index, for Helm
	problems []string
}

// exportedOf returns patches of the workloads whose pod templates can be changed, for the containers that
// these have.
func exportedOf(all sizeList) (e exported) {
	for at := 0; at < len(all); {
		w, end := all[at].of, at+1
		for end < len(all) && all[end].of == w {
			end++
		}
		rows := all[at:end]
		at = end
		version, known := versionOf(w.key)
		switch {
		case w.fixed != "":
			e.leaveOut(w.key.String(), w.key, w.fixed)
			continue
		case !known:
			e.leaveOut(w.key.String(), w.key, "the API version of its kind is not known here")
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
		metadata := map[string]any{"name": w.key.Name, "namespace": w.key.Namespace}
		e.patches = append(e.patches, manifest{version, w.key.Kind, metadata, template(w.key, containers)})
		e.values = append(e.values, values)
	}
	return e
}

// leaveOut adds the reason why a workload or a container is not exported.
func (e *exported) leaveOut(object string, key target.Key, why string) {
	e.problems = append(e.problems, fmt.Sprintf("%s in namespace %s is left out: %s", object, key.Namespace, why))
}

// containersOf returns the containers of a workload that are exported.
func (e *exported) containersOf(w *managed, rows sizeList) (all []patchedContainer) {
	for i := range rows {
		c := &rows[i]
		name := fmt.Sprintf("container %s of %s", c.Container, w.key)
		switch {
		case !slices.Contains(w.template, c.Container):
			e.leaveOut(name, w.key, "its pod template does not have this container")
		case len(c.Target) == 0:
			e.leaveOut(name, w.key, "there is no recommendation for it")
		default:
			all = append(all, patchedContainer{c.Container, patchedResources{c.Target, c.NewLimits}})
		}
	}
	return all
}

// sizesAs writes sizes in one of the forms, and returns what is left out.
func sizesAs(out io.Writer, form string, all sizeList) (problems []string, err error) {
	e := exportedOf(all)
	if len(e.patches) == 0 {
		return e.problems, nil
	}
	var documents []any
	switch form {
	case "kustomize":
		var patches []any
		for _, p := range e.patches {
			text, err := marshalYAML(p)
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

// helmValues returns containers by the name of their workload. Workloads that share a name have their
// namespace and kind in front of it.
func (e *exported) helmValues() map[string]any {
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

// patchedContainer is a container of a patch.
type patchedContainer struct {
	Name      string           `json:"name"`
	Resources patchedResources `json:"resources"`
}

type patchedResources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// template puts containers where a workload has them.
func template(key target.Key, containers []patchedContainer) map[string]any {
	pod := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}
	if key.Kind == "CronJob" {
		return map[string]any{"jobTemplate": map[string]any{"spec": pod}}
	}
	return pod
}
