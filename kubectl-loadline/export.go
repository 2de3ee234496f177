package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/target"
)

// exportForms are the forms in which sizes are written for those who keep manifests in Git.
var exportForms = []string{"patch", "kustomize", "helm"}

const exportHelp = `Writes what is recommended as YAML for those who keep their manifests in Git: patches
of the workloads, a kustomization with these patches, or values for a Helm chart, by
workload and container. Arguments are KIND/NAME or NAME, as for recommend.`

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
			fmt.Fprintln(cmd.ErrOrStderr(), "!", problem)
		}
		return err
	}
	return cmd
}

// sizesAs writes sizes in one of the forms, and returns what is left out.
func sizesAs(out io.Writer, form string, all sizeList) (problems []string, err error) {
	var documents []any
	values := map[string]map[string]map[string]any{}
	var patches []any
	for at := 0; at < len(all); {
		end := at + 1
		for end < len(all) && all[end].key == all[at].key {
			end++
		}
		key, containers := all[at].key, containersOf(all[at:end])
		at = end
		if len(containers) == 0 {
			continue
		}
		version, known := versionOf(key)
		if !known && form != "helm" {
			problems = append(problems, fmt.Sprintf("%s in namespace %s is left out: the API version of its kind is not known here", key, key.Namespace))
			continue
		}
		patch := manifest{version, key.Kind, map[string]any{"name": key.Name, "namespace": key.Namespace}, template(key, containers)}
		documents = append(documents, patch)
		text, err := yaml.Marshal(patch)
		if err != nil {
			return problems, err
		}
		patches = append(patches, map[string]any{"target": map[string]string{"kind": key.Kind, "name": key.Name, "namespace": key.Namespace}, "patch": string(text)})
		values[key.Name] = map[string]map[string]any{}
		for _, c := range containers {
			values[key.Name][c.Name] = map[string]any{"resources": c.Resources}
		}
	}
	switch form {
	case "kustomize":
		documents = []any{map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "patches": patches}}
	case "helm":
		documents = []any{values}
	}
	return problems, printYAML(out, documents)
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

// containersOf returns those of a workload for which something is recommended.
func containersOf(of sizeList) (all []patchedContainer) {
	for i := range of {
		if c := &of[i]; len(c.Target) > 0 {
			all = append(all, patchedContainer{c.Container, patchedResources{c.Target, c.NewLimits}})
		}
	}
	return all
}

// template puts containers where a workload has them.
func template(key target.Key, containers []patchedContainer) map[string]any {
	pod := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}
	if key.Kind == "CronJob" {
		return map[string]any{"jobTemplate": map[string]any{"spec": pod}}
	}
	return pod
}
