package excerpt

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
)

// Reader steps over JSON. Each method takes the value that is next. After the
// first that does not fit, all take nothing, and Done is false.
type Reader struct {
	in     []byte
	at     int
	failed bool
}

// Read returns a Reader at the beginning of a JSON text.
func Read(in []byte) *Reader { return &Reader{in: in} }

// Done tells whether the whole text was taken and all of it fitted.
func (r *Reader) Done() bool {
	r.space()
	return !r.failed && r.at == len(r.in)
}

// Members returns the names of the members of an object, none for null. The body
// of the loop takes the value of the member; if it takes nothing, the value is
// skipped. Names keep their escapes, so those that have some are never wanted.
func (r *Reader) Members() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if r.null() || !r.expect('{') {
			return
		}
		for first := true; !r.next('}'); first = false {
			if !first && !r.expect(',') {
				return
			}
			r.space()
			start := r.at
			r.text()
			if r.failed {
				return
			}
			name := r.in[start+1 : r.at-1]
			if !r.expect(':') {
				return
			}
			start = r.at
			if !yield(name) {
				r.failed = true
			}
			if r.at == start {
				r.Skip()
			}
			if r.failed {
				return
			}
		}
	}
}

// Elements repeats the body of a loop for each element of a list, not at all for
// null. The body takes the element, else it is skipped.
func (r *Reader) Elements() iter.Seq[int] {
	return func(yield func(int) bool) {
		if r.null() || !r.expect('[') {
			return
		}
		for i := 0; !r.next(']'); i++ {
			if i > 0 && !r.expect(',') {
				return
			}
			start := r.at
			if !yield(i) {
				r.failed = true
			}
			if r.at == start {
				r.Skip()
			}
			if r.failed {
				return
			}
		}
	}
}

// Text takes a string, "" for null.
func (r *Reader) Text() string {
	raw := r.Raw()
	if len(raw) == 0 {
		return ""
	}
	if raw[0] != '"' {
		r.failed = true
		return ""
	}
	if plain(raw[1 : len(raw)-1]) {
		return string(raw[1 : len(raw)-1])
	}
	var text string
	r.decode(raw, &text)
	return text
}

// key returns the text of a name of Members.
func (r *Reader) key(name []byte) string {
	if plain(name) {
		return string(name)
	}
	var text string
	r.decode(slices.Concat([]byte{'"'}, name, []byte{'"'}), &text)
	return text
}

// Truth takes true or false, nil for null.
func (r *Reader) Truth() *bool {
	switch raw := r.Raw(); string(raw) {
	case "":
		return nil
	case "true", "false":
		return new(raw[0] == 't')
	}
	r.failed = true
	return nil
}

// Into takes a value of any form with encoding/json.
func (r *Reader) Into(value any) {
	if raw := r.Raw(); raw != nil {
		r.decode(raw, value)
	}
}

func (r *Reader) decode(raw []byte, value any) {
	if json.Unmarshal(raw, value) != nil {
		r.failed = true
	}
}

// Raw takes a value of any form and returns its bytes, which are part of the
// text: nil for null.
func (r *Reader) Raw() []byte {
	r.space()
	start := r.at
	r.Skip()
	if r.failed {
		return nil
	}
	if raw := r.in[start:r.at]; string(raw) != "null" {
		return raw
	}
	return nil
}

// null steps over null, if that is next.
func (r *Reader) null() bool {
	r.space()
	if r.failed || r.at == len(r.in) || r.in[r.at] != 'n' {
		return false
	}
	start := r.at
	r.word()
	r.failed = r.failed || string(r.in[start:r.at]) != "null"
	return true
}

func (r *Reader) space() {
	for r.at < len(r.in) && (r.in[r.at] == ' ' || r.in[r.at] == '\n' || r.in[r.at] == '\t' || r.in[r.at] == '\r') {
		r.at++
	}
}

// next steps over white space and then over b, if that is there. It is true at
// the end of what fits, too, so that loops end.
func (r *Reader) next(b byte) bool {
	r.space()
	if r.at < len(r.in) && r.in[r.at] == b {
		r.at++
		return true
	}
	return r.failed
}

// expect steps over white space and b.
func (r *Reader) expect(b byte) bool {
	if r.failed || !r.next(b) {
		r.failed = true
	}
	return !r.failed
}

// structural are the bytes that matter inside of an object or list.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// Skip takes a value of any form.
func (r *Reader) Skip() {
	if r.failed {
		return
	}
	r.space()
	if r.at == len(r.in) {
		r.failed = true
		return
	}
	switch r.in[r.at] {
	case '"':
		r.text()
	case '{', '[':
		r.nested()
	default:
		r.word()
	}
}

// word steps over a number, true, false or null: up to what may follow one.
func (r *Reader) word() {
	start := r.at
	for ; r.at < len(r.in); r.at++ {
		switch r.in[r.at] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			r.failed = r.at == start
			return
		case '"', '{', '[', ':':
			r.failed = true
			return
		}
	}
}

// nested steps over an object or a list.
func (r *Reader) nested() {
	in, at, open := r.in, r.at, 0
	for at < len(in) {
		b := in[at]
		if !structural[b] {
			at++
			continue
		}
		switch b {
		case '"':
			r.at = at
			if r.text(); r.failed {
				return
			}
			at = r.at
			continue
		case '{', '[':
			open++
		default:
			open--
		}
		if at++; open == 0 {
			r.at = at
			return
		}
	}
	r.failed = true
}

// text steps over a string.
func (r *Reader) text() {
	if r.at == len(r.in) || r.in[r.at] != '"' {
		r.failed = true
		return
	}
	for from := r.at + 1; ; {
		length := bytes.IndexByte(r.in[from:], '"')
		if length < 0 {
			r.failed = true
			return
		}
		end := from + length
		slashes := 0
		for r.in[end-1-slashes] == '\\' {
			slashes++
		}
		from = end + 1
		if slashes%2 == 0 {
			r.at = from
			return
		}
	}
}

// plain tells whether a string of JSON means itself.
func plain(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b >= 0x80 || b == '\\' {
			return false
		}
	}
	return true
}
