package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

const (
	byVersion = `{"schemaVersion": 1, "relativeTolerance": 0.5, "vectors": [
		{"id": "a", "kind": "echo", "description": "first", "input": {"x": 1}, "expected": {"x": 1}},
		{"id": "b", "kind": "riddle", "input": 1, "expected": 2}]}`
	byCases  = `{"schemaVersion": 1, "cases": [{"id": "a", "kind": "echo", "input": 1, "expected": 1, "deviationAllowed": "D1"}]}`
	bySystem = `{"system": "other", "schemaNotes": ["n"], "cases": [{"id": "a", "kind": "echo", "note": "n", "in": null, "out": {}}]}`
)

func echo(c Case) error { return Compare(c.Expected, c.Input, c.Tolerance) }

func TestLoad_ReadsBothSchemas(t *testing.T) {
	files, err := Load(write(t, map[string]string{"c.json": bySystem, "a.json": byVersion, "b.json": byCases, "README.md": "#"}))
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		require.NoError(t, f.Err)
	}
	require.Equal(t, Case{
		ID: "a", Kind: "echo", Description: "first", Tolerance: 0.5,
		Input: json.RawMessage(`{"x": 1}`), Expected: json.RawMessage(`{"x": 1}`),
	}, files[0].Cases[0])
	require.Equal(t, "D1", files[1].Cases[0].DeviationAllowed)
	require.Equal(t, "other/echo", files[2].Cases[0].Kind, "kinds of other systems do not collide with ours")
}

func TestRun_ReportsFilesOfUnknownSchema(t *testing.T) {
	for name, c := range map[string]struct{ content, says string }{
		"not JSON":   {"no", "unknown schema: invalid character"},
		"a list":     {"[]", "unknown schema"},
		"version":    {`{"schemaVersion": 7, "vectors": [{}]}`, "schemaVersion is 7: must be 1"},
		"no version": {`{"vectors": [{}]}`, "must have schemaVersion, or system and schemaNotes"},
		"no notes":   {`{"system": "x", "cases": [{}]}`, "must have schemaVersion, or system and schemaNotes"},
		"no cases":   {`{"schemaVersion": 1, "tests": [{}]}`, "must have a non-empty list"},
		"bare case":  {`{"schemaVersion": 1, "cases": [{"id": "x"}]}`, `case 0 "x": must have id, kind, input and expected output`},
		"twice": {`{"schemaVersion": 1, "cases": [{"id": "x", "kind": "k", "input": 1, "expected": 1}, {"id": "x", "kind": "k", "input": 1, "expected": 1}]}`,
			`case 1: id "x" is taken`},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Suite{}.Run(write(t, map[string]string{"x.json": c.content, "y.json": byVersion}))
			require.NoError(t, err)
			require.ErrorContains(t, report.Files[0].Err, c.says)
			require.ErrorContains(t, report.Files[0].Err, "unknown schema")
			_, failed, skipped := report.Counts()
			require.Equal(t, 1, failed)
			require.Equal(t, 2, skipped, "the other file is still run")
		})
	}
}

func TestLoad_ReportsUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "x.json")))
	files, err := Load(dir)
	require.NoError(t, err)
	require.Error(t, files[0].Err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "y.json"), 0o700), "a directory is no vector file")
	files, err = Load(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
}

func TestLoad_RejectsEmptyFolder(t *testing.T) {
	_, err := Load(write(t, map[string]string{"README.md": "#"}))
	require.ErrorContains(t, err, "has no .json file")
	_, err = Suite{}.Run(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestReport_Print(t *testing.T) {
	dir := write(t, map[string]string{"a.json": byVersion, "b.json": `{"schemaVersion": 1, "cases": [
		{"id": "wrong", "kind": "echo", "description": "is wrong", "input": {"x": 3}, "expected": {"x": 1}},
		{"id": "better", "kind": "echo", "input": {"x": 3, "z": 1}, "expected": {"x": 1, "y": 2}},
		{"id": "scale", "kind": "replicas", "input": 1, "expected": 1},
		{"id": "bomb", "kind": "bomb", "input": 1, "expected": 1}]}`, "c.json": "{}"})
	s := Suite{
		Absent:   map[string]string{"replicas": "only containers are sized"},
		Handlers: map[string]Handler{"echo": echo, "bomb": func(Case) error { panic("boom") }},
		ByDesign: map[string]Deviation{"better": {Reason: "we can count", Expected: `{"x": 3, "y": null, "z": 1}`}},
	}
	report, err := s.Run(dir)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, report.Print(&out))
	require.Equal(t, `a.json: 1 passed, 0 failed, 1 not yet supported
  not yet supported: riddle (1)
b.json: 1 passed, 2 failed, 0 not yet supported
  FAILED wrong (echo): is wrong
    x: expected 1, got 3
  by design better (echo): we can count
  FAILED bomb (bomb): 
    panic: boom
  absent by design (1): replicas: only containers are sized
c.json: 0 passed, 1 failed, 0 not yet supported
  FAILED: unknown schema: must have schemaVersion, or system and schemaNotes
2 passed, 3 failed, 2 skipped
`, out.String())
	require.ErrorIs(t, report.Print(failingWriter{}), os.ErrClosed)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestSuite_SkipsUnsupportedCase(t *testing.T) {
	s := Suite{Handlers: map[string]Handler{"echo": func(Case) error { return fmt.Errorf("gate X: %w", ErrUnsupported) }}}
	result := s.run(Case{ID: "x", Kind: "echo"})
	require.Equal(t, Skipped, result.Outcome)
	require.Contains(t, result.Detail, "gate X")
}

func TestSuite_DeviationMustMatchDocumentedOne(t *testing.T) {
	c := Case{ID: "x", Kind: "echo", Input: json.RawMessage(`{"x": 3}`), Expected: json.RawMessage(`{"x": 1}`)}
	for name, d := range map[string]struct {
		deviation Deviation
		handler   Handler
		want      Outcome
		says      string
	}{
		"as documented": {Deviation{"D1", `{"x": 3}`}, echo, ByDesign, "D1"},
		"otherwise":     {Deviation{"D1", `{"x": 4}`}, echo, Failed, "deviates in another way than documented: x: expected 4, got 3"},
		"not at all":    {Deviation{"D1", `{"x": 3}`}, func(Case) error { return nil }, Failed, "gives the reference's output"},
		"bad patch":     {Deviation{"D1", `{`}, echo, Failed, "expected output of the deviation"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Suite{Handlers: map[string]Handler{"echo": d.handler}, ByDesign: map[string]Deviation{"x": d.deviation}}
			result := s.run(c)
			require.Equal(t, d.want, result.Outcome)
			require.Contains(t, result.Detail, d.says)
		})
	}
}

func TestCompare_ReportsDifferences(t *testing.T) {
	for name, c := range map[string]struct {
		expected string
		got      any
		says     string // empty: equal
	}{
		"equal":              {`{"a": [1, "x", true, null]}`, map[string]any{"a": []any{1, "x", true, nil}}, ""},
		"null is missing":    {`{"a": 1, "b": null}`, map[string]any{"a": 1, "c": nil}, ""},
		"missing":            {`{"a": 1}`, map[string]any{}, "a: expected 1, got null"},
		"unexpected":         {`{}`, map[string]any{"a": []int{1}}, "a: expected null, got [1]"},
		"close fraction":     {`1.0000000001`, 1.0, ""},
		"far fraction":       {`1.00001`, 1.0, "output: expected 1.00001, got 1"},
		"close integers":     {`1000000000000`, int64(1000000000001), "expected 1000000000000"},
		"same, written else": {`1e3`, 1000, ""},
		"length":             {`[1]`, []int{1, 2}, "output: expected [1], got [1,2]"},
		"deep":               {`{"a": [{"b": "x"}]}`, map[string]any{"a": []any{map[string]any{"b": "y"}}}, `a[0].b: expected "x", got "y"`},
		"kind":               {`{"a": {}}`, map[string]any{"a": "x"}, `a: expected {}, got "x"`},
		"list or not":        {`[]`, "x", `output: expected [], got "x"`},
		"number or not":      {`1`, "1", `output: expected 1, got "1"`},
		"huge number":        {`1e999`, 1, "expected 1e999"},
		"broken expectation": {`{`, 1, "expected output"},
		"unprintable":        {`1`, func() {}, "cannot be written as JSON"},
		"all differences":    {`{"a": 1, "b": 2}`, map[string]int{"a": 2, "b": 3}, "a: expected 1, got 2\nb: expected 2, got 3"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Compare(json.RawMessage(c.expected), c.got, 1e-9)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
	require.Error(t, errors.Unwrap(Compare(json.RawMessage(`1`), func() {}, 0)))
}

func TestTyped_DecodesInputAndComparesOutput(t *testing.T) {
	type input struct {
		Seconds *float64 `json:"seconds"`
	}
	double := Typed(func(in input) (string, error) {
		d := SecondsOr(in.Seconds, time.Hour)
		if d < 0 {
			return "", errors.New("negative")
		}
		return (2 * d).String(), nil
	})
	require.NoError(t, double(Case{Input: json.RawMessage(`{"seconds": 1.5}`), Expected: json.RawMessage(`"3s"`)}))
	require.NoError(t, double(Case{Input: json.RawMessage(`{}`), Expected: json.RawMessage(`"2h0m0s"`)}))
	require.EqualError(t, double(Case{Input: json.RawMessage(`{"seconds": 1}`), Expected: json.RawMessage(`"3s"`)}), `output: expected "3s", got "2s"`)
	require.EqualError(t, double(Case{Input: json.RawMessage(`{"seconds": -1}`), Expected: json.RawMessage(`"3s"`)}), "negative")
	require.ErrorContains(t, double(Case{Input: json.RawMessage(`{"minutes": 1}`), Expected: json.RawMessage(`"3s"`)}), `unknown field "minutes"`)
	require.Equal(t, 5, ValueOr(nil, 5))
	require.Equal(t, 3, ValueOr(new(3), 5))
}
