package excerpt

import "bytes"

// Fields are the wanted members of an object, and what is wanted of their values.
// An empty value wants all. On a list it holds for each element.
type Fields map[string]Fields

// Of returns JSON with only the wanted members. It is false when raw is not JSON;
// not everything that is wrong is found.
func Of(raw []byte, wanted Fields) ([]byte, bool) {
	c := cutter{in: raw, out: make([]byte, 0, len(raw)/2)}
	if !c.value(wanted) {
		return nil, false
	}
	c.space()
	return c.out, c.at == len(c.in)
}

// Find returns values of members of an object, as parts of raw: nil for one that
// is not there or is null, and for all if raw is no object. Of members with the
// same name the last counts, as everywhere in Kubernetes.
func Find(raw []byte, names ...string) [][]byte {
	found := make([][]byte, len(names))
	c := cutter{in: raw}
	if !c.next('{') {
		return found
	}
	for first := true; !c.next('}'); first = false {
		name, ok := c.key(first)
		if !ok {
			return make([][]byte, len(names))
		}
		c.space()
		start := c.at
		if !c.skip() {
			return make([][]byte, len(names))
		}
		for i := range names {
			if names[i] == string(name) {
				found[i] = present(raw[start:c.at])
			}
		}
	}
	return found
}

func present(value []byte) []byte {
	if string(value) == "null" {
		return nil
	}
	return value
}

// cutter runs over JSON and copies parts of it.
type cutter struct {
	in, out []byte
	at      int
	depth   int
}

// deepest is the deepest nesting that is followed; encoding/json has the same.
const deepest = 10000

func (c *cutter) space() {
	for c.at < len(c.in) && (c.in[c.at] == ' ' || c.in[c.at] == '\n' || c.in[c.at] == '\t' || c.in[c.at] == '\r') {
		c.at++
	}
}

// next steps over white space and then over b, if that is there.
func (c *cutter) next(b byte) bool {
	c.space()
	if c.at < len(c.in) && c.in[c.at] == b {
		c.at++
		return true
	}
	return false
}

// key steps over the name of a member with what stands around it. Names with
// escapes match nothing that is wanted.
func (c *cutter) key(first bool) (name []byte, ok bool) {
	if !first && !c.next(',') {
		return nil, false
	}
	c.space()
	start := c.at
	if !c.text() {
		return nil, false
	}
	name = c.in[start+1 : c.at-1]
	return name, c.next(':')
}

// value copies the wanted part of the value that is next.
func (c *cutter) value(wanted Fields) bool {
	c.space()
	if c.at == len(c.in) {
		return false
	}
	start := c.at
	if len(wanted) > 0 && c.depth < deepest {
		c.depth++
		defer func() { c.depth-- }()
		switch c.in[c.at] {
		case '{':
			return c.object(wanted)
		case '[':
			return c.list(wanted)
		}
	}
	if !c.skip() {
		return false
	}
	c.out = append(c.out, c.in[start:c.at]...)
	return true
}

func (c *cutter) object(wanted Fields) bool {
	c.at++
	c.out = append(c.out, '{')
	copied := false
	for first := true; !c.next('}'); first = false {
		name, ok := c.key(first)
		if !ok {
			return false
		}
		part, want := wanted[string(name)]
		if !want {
			if !c.skip() {
				return false
			}
			continue
		}
		if copied {
			c.out = append(c.out, ',')
		}
		copied = true
		c.out = append(c.out, '"')
		c.out = append(c.out, name...)
		c.out = append(c.out, '"', ':')
		if !c.value(part) {
			return false
		}
	}
	c.out = append(c.out, '}')
	return true
}

func (c *cutter) list(wanted Fields) bool {
	c.at++
	c.out = append(c.out, '[')
	for first := true; !c.next(']'); first = false {
		if !first {
			if !c.next(',') {
				return false
			}
			c.out = append(c.out, ',')
		}
		if !c.value(wanted) {
			return false
		}
	}
	c.out = append(c.out, ']')
	return true
}

// structural are the bytes that matter inside of an object or list.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// skip steps over the value that is next.
func (c *cutter) skip() bool {
	c.space()
	start, open := c.at, 0
	for c.at < len(c.in) {
		b := c.in[c.at]
		if open > 0 && !structural[b] {
			c.at++
			continue
		}
		switch b {
		case '"':
			if !c.text() {
				return false
			}
			if open == 0 {
				return true
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			if open == 0 { // the end of what is around a number or a word
				return c.at > start
			}
			if open--; open == 0 {
				c.at++
				return true
			}
		case ',', ' ', '\n', '\t', '\r':
			if open == 0 {
				return c.at > start
			}
		}
		c.at++
	}
	return open == 0 && c.at > start
}

// text steps over the string that is next.
func (c *cutter) text() bool {
	if c.at == len(c.in) || c.in[c.at] != '"' {
		return false
	}
	for from := c.at + 1; ; {
		length := bytes.IndexByte(c.in[from:], '"')
		if length < 0 {
			return false
		}
		end := from + length
		slashes := 0
		for c.in[end-1-slashes] == '\\' {
			slashes++
		}
		from = end + 1
		if slashes%2 == 0 {
			c.at = from
			return true
		}
	}
}
