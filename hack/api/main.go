// Command api generates docs/api.md, the reference of all object fields, from the CRDs in
// deploy/crds.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const page = "docs/api.md"

// definitions are the CRD files in page order, user-written objects first.
var definitions = []string{
	"deploy/crds/autoscaling.k8s.io_verticalpodautoscalers.yaml",
	"deploy/crds/loadline.dev_sizingpolicies.yaml",
	"deploy/crds/loadline.dev_sizingrecords.yaml",
	"deploy/crds/autoscaling.k8s.io_verticalpodautoscalercheckpoints.yaml",
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run() error {
	var out bytes.Buffer
	out.WriteString("# Objects\n\nLook up the fields of all Loadline objects. Generated from `deploy/crds`, like the output of `kubectl explain`.\n" +
		"Required fields are in bold. Loadline writes the status fields.\n")
	for _, path := range definitions {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := d.write(&out); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if old, err := os.ReadFile(page); err == nil && bytes.Equal(old, out.Bytes()) {
		return nil
	}
	return os.WriteFile(page, out.Bytes(), 0o644)
}

type definition struct {
	Spec struct {
		Group string
		Scope string
		Names struct {
			Kind       string
			Plural     string
			ShortNames []string
		}
		Versions []struct {
			Name    string
			Storage bool
			Schema  struct {
				OpenAPIV3Schema schema
			}
		}
	}
}

type schema struct {
	Type                 string
	Description          string
	Enum                 []any
	Required             []string
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties *schema
	Quantity             bool `json:"x-kubernetes-int-or-string"`
}

func (d *definition) write(out *bytes.Buffer) error {
	names := d.Spec.Names
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Storage {
			continue
		}
		fmt.Fprintf(out, "\n## %s\n\n`%s/%s`, %s", names.Kind, d.Spec.Group, v.Name, strings.ToLower(d.Spec.Scope))
		for _, short := range names.ShortNames {
			fmt.Fprintf(out, ", `kubectl get %s`", short)
		}
		object := &v.Schema.OpenAPIV3Schema
		fmt.Fprintf(out, "\n\n%s\n\n| field | | |\n|---|---|---|\n", tableCell(object.Description))
		for _, part := range []string{"spec", "status"} {
			if s, there := object.Properties[part]; there {
				s.fields(out, part)
			}
		}
		return nil
	}
	return fmt.Errorf("%s has no version that is stored", names.Kind)
}

func (s *schema) fields(out *bytes.Buffer, path string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		shown := "`" + path + "." + name + "`"
		if slices.Contains(s.Required, name) {
			shown = "**" + shown + "**"
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", shown, field.kind(), tableCell(field.Description))
		inner, suffix := &field, ""
		for inner.Items != nil || inner.AdditionalProperties != nil {
			if inner.Items != nil {
				inner, suffix = inner.Items, suffix+"[]"
			} else {
				inner, suffix = inner.AdditionalProperties, suffix+".*"
			}
		}
		if kubernetesType(inner) == "" {
			inner.fields(out, path+"."+name+suffix)
		}
	}
}

// kubernetesType returns the well-known Kubernetes type of an object, or an empty string.
func kubernetesType(s *schema) string {
	has := func(name string) bool { _, there := s.Properties[name]; return there }
	switch {
	case has("matchLabels") && has("matchExpressions"):
		return "LabelSelector"
	case has("lastTransitionTime") && has("status"):
		return "Condition"
	}
	return ""
}

// kind returns the type of a value, or its allowed values.
func (s *schema) kind() string {
	switch {
	case s.Quantity:
		return "quantity"
	case kubernetesType(s) != "":
		return kubernetesType(s)
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind()
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = fmt.Sprintf("`%v`", value)
		}
		return strings.Join(values, ", ")
	}
	return s.Type
}

func tableCell(description string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(description), " "), "|", "\\|")
}
