// Command api writes docs/api.md, every field of the objects, from the definitions in deploy/crds.
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

// definitions are those of the objects, in the order of the page: what people write comes first.
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
	out.WriteString("# Objects\n\nFor those who write VPAs and SizingPolicies, or read what the programs write. Generated from `deploy/crds`; `kubectl explain` prints the same.\n" +
		"Fields that are required are in bold. The fields of the status are written by the programs.\n")
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

// definition is what the page needs of a CustomResourceDefinition.
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

// schema is what the page needs of a JSON schema.
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
		fmt.Fprintf(out, "\n\n%s\n\n| field | | |\n|---|---|---|\n", sentence(object.Description))
		for _, part := range []string{"spec", "status"} {
			if s, there := object.Properties[part]; there {
				s.fields(out, part)
			}
		}
		return nil
	}
	return fmt.Errorf("%s has no version that is stored", names.Kind)
}

// fields writes a row for each field of an object, those of one beside each other.
func (s *schema) fields(out *bytes.Buffer, path string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		shown := "`" + path + "." + name + "`"
		if slices.Contains(s.Required, name) {
			shown = "**" + shown + "**"
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", shown, field.kind(), sentence(field.Description))
		inner, suffix := &field, ""
		for inner.Items != nil || inner.AdditionalProperties != nil {
			if inner.Items != nil {
				inner, suffix = inner.Items, suffix+"[]"
			} else {
				inner, suffix = inner.AdditionalProperties, suffix+".*"
			}
		}
		if known(inner) == "" {
			inner.fields(out, path+"."+name+suffix)
		}
	}
}

// known returns the type of Kubernetes that an object is, whose fields everybody knows; empty: it is none.
func known(s *schema) string {
	has := func(name string) bool { _, there := s.Properties[name]; return there }
	switch {
	case has("matchLabels") && has("matchExpressions"):
		return "LabelSelector"
	case has("lastTransitionTime") && has("status"):
		return "Condition"
	}
	return ""
}

// kind returns what a value is, with the values that it may have.
func (s *schema) kind() string {
	switch {
	case s.Quantity:
		return "quantity"
	case known(s) != "":
		return known(s)
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

// sentence makes a description fit into a table.
func sentence(description string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(description), " "), "|", "\\|")
}
