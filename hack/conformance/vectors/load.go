package vectors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Case is one vector.
type Case struct {
	ID          string
	Kind        string // "<system>/<kind>" in a file about another system
	Description string
	Input       json.RawMessage
	Expected    json.RawMessage
	Tolerance   float64 // relative, for numbers with a fraction
	// DeviationAllowed is the defect of the reference that makes a safer result acceptable, mostly
	// empty.
	DeviationAllowed string
}

// Key identifies a case across all files: its ID, or "<system>/<id>" in a file about another
// system.
func (c Case) Key() string {
	if system, _, other := strings.Cut(c.Kind, "/"); other {
		return system + "/" + c.ID
	}
	return c.ID
}

// File is one file of vectors.
type File struct {
	Name  string // without the directory
	Cases []Case
	Err   error // why the file has no usable cases
}

// Load reads every .json file of a directory in the order of names. An unusable file carries its
// error. Load returns an error if the directory cannot be read or has no such file.
func Load(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read vectors: %w", err)
	}
	var files []File
	for _, entry := range entries {
		if entry.IsDir() || filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		file := File{Name: entry.Name()}
		file.Cases, file.Err = read(os.DirFS(dir), entry.Name())
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read vectors: directory %s has no .json file", dir)
	}
	return files, nil
}

// document is a file of either schema. Files of the reference VPA have a version. Files of other
// systems have the name of the system and notes.
type document struct {
	SchemaVersion     *int            `json:"schemaVersion"`
	System            string          `json:"system"`
	SchemaNotes       json.RawMessage `json:"schemaNotes"`
	RelativeTolerance float64         `json:"relativeTolerance"`
	Vectors           []entry         `json:"vectors"`
	Cases             []entry         `json:"cases"`
}

type entry struct {
	ID               string          `json:"id"`
	Kind             string          `json:"kind"`
	Description      string          `json:"description"`
	Note             string          `json:"note"`
	Input            json.RawMessage `json:"input"`
	Expected         json.RawMessage `json:"expected"`
	In               json.RawMessage `json:"in"`
	Out              json.RawMessage `json:"out"`
	DeviationAllowed string          `json:"deviationAllowed"`
}

func read(dir fs.FS, name string) ([]Case, error) {
	raw, err := fs.ReadFile(dir, name)
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("unknown schema: %w", err)
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("unknown schema: %w", err)
	}
	cases := make([]Case, 0, len(d.Vectors)+len(d.Cases))
	seen := map[string]bool{}
	var problems []error
	for i, e := range append(d.Vectors, d.Cases...) {
		c := e.toCase(d)
		switch {
		case c.ID == "" || e.Kind == "" || c.Input == nil || c.Expected == nil:
			problems = append(problems, fmt.Errorf("case %d %q: must have id, kind, input and expected output", i, c.ID))
		case seen[c.ID]:
			problems = append(problems, fmt.Errorf("case %d: id %q is taken by another case", i, c.ID))
		}
		seen[c.ID] = true
		cases = append(cases, c)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("unknown schema: %w", errors.Join(problems...))
	}
	return cases, nil
}

// check returns an error unless the file has a known schema.
func (d document) check() error {
	switch {
	case d.SchemaVersion != nil && *d.SchemaVersion != 1:
		return fmt.Errorf("schemaVersion is %d: must be 1", *d.SchemaVersion)
	case d.SchemaVersion == nil && (d.System == "" || d.SchemaNotes == nil):
		return errors.New("must have schemaVersion, or system and schemaNotes")
	case len(d.Vectors) == 0 && len(d.Cases) == 0:
		return errors.New("must have a non-empty list named vectors or cases")
	}
	return nil
}

func (e entry) toCase(d document) Case {
	c := Case{
		ID: e.ID, Kind: e.Kind, Description: e.Description, Input: e.Input, Expected: e.Expected,
		Tolerance: d.RelativeTolerance, DeviationAllowed: e.DeviationAllowed,
	}
	if d.System != "" {
		c.Kind = d.System + "/" + e.Kind
		c.Description, c.Input, c.Expected = e.Note, e.In, e.Out
	}
	return c
}
