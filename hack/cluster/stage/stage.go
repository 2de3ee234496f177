package stage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/itchyny/gojq"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Stage is a document that kwok reads from the API server.
type Stage struct {
	Name string
	File string // source file
	YAML []byte
}

// Read returns the stages of all files *.yaml in a folder, ordered by file and position, and all
// problems.
func Read(folder fs.FS) ([]Stage, error) {
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list stages: %w", err)
	}
	var (
		stages   []Stage
		problems []error
	)
	for _, file := range files {
		content, err := fs.ReadFile(folder, file)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
			continue
		}
		for _, document := range bytes.Split(append([]byte("\n"), content...), []byte("\n---")) {
			s, err := parse(document)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", file, err))
			} else if s.Name != "" {
				s.File = file
				stages = append(stages, s)
			}
		}
	}
	for i, s := range stages {
		if first := slices.IndexFunc(stages, func(other Stage) bool { return other.Name == s.Name }); first < i {
			problems = append(problems, fmt.Errorf("%s: duplicate stage %s, also in %s", s.File, s.Name, stages[first].File))
		}
	}
	return stages, errors.Join(problems...)
}

// parse returns a stage without name for an empty document.
func parse(document []byte) (Stage, error) {
	var content map[string]any
	if err := yaml.Unmarshal(document, &content); err != nil {
		return Stage{}, err
	}
	if len(content) == 0 {
		return Stage{}, nil
	}
	var s v1alpha1.Stage
	if err := yaml.UnmarshalStrict(document, &s); err != nil {
		return Stage{}, err
	}
	var problems []error
	addProblem := func(field, want string, got any) {
		problems = append(problems, fmt.Errorf("stage %q: %s: want %s, got %q", s.Name, field, want, got))
	}
	if want := v1alpha1.GroupVersion.String(); s.APIVersion != want {
		addProblem("apiVersion", want, s.APIVersion)
	}
	if s.Kind != v1alpha1.StageKind {
		addProblem("kind", v1alpha1.StageKind, s.Kind)
	}
	if len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
		addProblem("metadata.name", "a name of lower case letters, digits, - and .", s.Name)
	}
	if s.Spec.ResourceRef.Kind == "" {
		addProblem("spec.resourceRef.kind", "a kind, such as Pod", "")
	}
	if s.Spec.Next == nil && len(s.Spec.Steps) == 0 { //nolint:staticcheck // the earlier field
		addProblem("spec.next", "what happens", "")
	}
	for _, query := range queries(&s.Spec) {
		if _, err := gojq.Parse(query); err != nil {
			addProblem("expression", "a query in the language of jq", fmt.Sprintf("%s (%v)", query, err))
		}
	}
	return Stage{Name: s.Name, YAML: document}, errors.Join(problems...)
}

// queries returns all jq expressions, including fields that are deprecated in kwok.
func queries(s *v1alpha1.StageSpec) []string {
	var all []string
	if s.Selector != nil {
		for _, m := range s.Selector.MatchExpressions {
			all = append(all, m.Key) //nolint:staticcheck // the earlier field
			if m.JQ != nil {
				all = append(all, m.JQ.Key)
			}
		}
	}
	from := []*v1alpha1.ExpressionFrom{s.WeightFrom}
	if s.Delay != nil {
		from = append(from, s.Delay.DurationFrom, s.Delay.JitterDurationFrom)
	}
	for _, f := range from {
		if f == nil {
			continue
		}
		all = append(all, f.ExpressionFrom) //nolint:staticcheck // the earlier field
		if f.JQ != nil {
			all = append(all, f.JQ.Expression)
		}
	}
	return slices.DeleteFunc(all, func(query string) bool { return query == "" })
}

// Merge returns base and extra. A stage of extra replaces the stage of base with its name.
func Merge(base, extra []Stage) []Stage {
	kept := slices.DeleteFunc(slices.Clone(base), func(s Stage) bool {
		return slices.ContainsFunc(extra, func(other Stage) bool { return other.Name == s.Name })
	})
	return append(kept, extra...)
}
