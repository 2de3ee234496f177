package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Compare returns nil if got, written as JSON, has the value of expected, else all differences with
// their paths. A null equals a missing field. Numbers may differ by the relative tolerance if one
// of them has a fraction. All other values must be equal.
func Compare(expected json.RawMessage, got any, tolerance float64) error {
	raw, err := json.Marshal(got)
	if err != nil {
		return fmt.Errorf("output cannot be written as JSON: %w", err)
	}
	want, err := decode(expected)
	if err != nil {
		return fmt.Errorf("expected output: %w", err)
	}
	have, err := decode(raw)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	c := comparison{tolerance: tolerance}
	c.values("", want, have)
	return errors.Join(c.differences...)
}

func decode(raw []byte) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err
}

type comparison struct {
	tolerance   float64
	differences []error
}

func (c *comparison) differ(path string, want, have any) {
	c.differences = append(c.differences, fmt.Errorf("%s: expected %s, got %s", displayPath(path), text(want), text(have)))
}

func displayPath(path string) string {
	if path == "" {
		return "output"
	}
	return strings.TrimPrefix(path, ".")
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

func (c *comparison) values(path string, want, have any) {
	switch w := want.(type) {
	case map[string]any:
		if h, ok := have.(map[string]any); ok {
			c.objects(path, w, h)
			return
		}
	case []any:
		if h, ok := have.([]any); ok {
			c.lists(path, w, h)
			return
		}
	case json.Number:
		if h, ok := have.(json.Number); ok {
			if !c.near(w, h) {
				c.differ(path, want, have)
			}
			return
		}
	default:
		if want == have {
			return
		}
	}
	c.differ(path, want, have)
}

func (c *comparison) objects(path string, want, have map[string]any) {
	names := maps.Clone(want)
	maps.Copy(names, have)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c.values(path+"."+name, want[name], have[name])
	}
}

func (c *comparison) lists(path string, want, have []any) {
	if len(want) != len(have) {
		c.differ(path, want, have)
		return
	}
	for i := range want {
		c.values(fmt.Sprintf("%s[%d]", path, i), want[i], have[i])
	}
}

func (c *comparison) near(want, have json.Number) bool {
	if want == have {
		return true
	}
	w, err1 := want.Float64()
	h, err2 := have.Float64()
	if err1 != nil || err2 != nil {
		return false
	}
	if w == math.Trunc(w) && h == math.Trunc(h) {
		return w == h
	}
	return math.Abs(w-h) <= c.tolerance*max(math.Abs(w), math.Abs(h))
}
