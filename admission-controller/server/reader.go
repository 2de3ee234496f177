package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Bounds of what is taken of one JSON text. They are far above what Kubernetes
// lets any object have, and keep a text that somebody wrote to do harm from
// taking more memory and time than its bytes alone do.
const (
	mostParts    = 20_000 // members and elements that are looked at; those that are only stepped over do not count
	mostLevels   = 100    // of objects and lists within each other; managedFields have some ten
	longestText  = 512    // bytes of a name, a label and the like, as they are written
	longestFound = 20     // bytes of the text that an error quotes
)

// anyLevels is the bound where nothing is decoded: to step over a value takes the same
// memory however deep it is.
const anyLevels = math.MaxInt

// ErrTooMuch is why a text is not read to its end: it has more parts, or longer
// ones, than are looked at.
var ErrTooMuch = errors.New("more than is looked at")

// Reader steps over JSON. Each method takes the value that is next. After the
// first that does not fit, all take nothing, and Err says what is wrong.
type Reader struct {
	in     []byte
	at     int
	failed bool
	err    error // why failed is true
	much   bool  // because there is too much

	parts int // members and elements so far
	level int // objects and lists that were entered and not left
	most  int // of them, and of those that are stepped over
	sized int // containers of a pod so far
}

// Read returns a Reader at the beginning of a JSON text.
func Read(in []byte) *Reader { return &Reader{in: in, most: mostLevels} }

// Err says what is wrong with the text, or with what follows it. It is nil when
// the whole text was taken.
func (r *Reader) Err() error {
	if r.space(); !r.failed && r.at < len(r.in) {
		r.fail("the end")
	}
	return r.err
}

// fail remembers what should stand where the Reader is.
func (r *Reader) fail(wanted string) {
	if r.failed {
		return
	}
	found := "the end"
	if r.at < len(r.in) {
		found = fmt.Sprintf("%q", r.in[r.at:min(len(r.in), r.at+longestFound)])
	}
	r.failed, r.err = true, fmt.Errorf("byte %d must be %s, not %s", r.at, wanted, found)
}

// tooMuch ends the reading.
func (r *Reader) tooMuch(of string) {
	if !r.failed {
		r.failed, r.much, r.err = true, true, fmt.Errorf("%w: %s", ErrTooMuch, of)
	}
}

// part counts a member or an element. It is false when there are too many.
func (r *Reader) part() bool {
	if r.parts++; r.parts > mostParts {
		r.tooMuch(fmt.Sprintf("more than %d members and elements", mostParts))
	}
	return !r.failed
}

// enter counts an object or list. It is false when there are too many around it.
func (r *Reader) enter() bool {
	r.level++
	r.bound(r.level)
	return !r.failed
}

// bound fails when something stands in too many objects and lists.
func (r *Reader) bound(level int) {
	if level > r.most {
		r.tooMuch(fmt.Sprintf("more than %d levels", r.most))
	}
}

// Members returns the names of the members of an object, none for null. The body
// of the loop takes the value of the member; if it takes nothing, the value is
// skipped. Names keep their escapes, so those that have some are never wanted.
func (r *Reader) Members() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if r.null() || !r.expect('{') || !r.enter() {
			return
		}
		for first := true; !r.next('}'); first = false {
			if !first && !r.expect(',') || !r.part() {
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
				r.fail("taken")
			}
			if r.at == start {
				r.Skip()
			}
			if r.failed {
				return
			}
		}
		r.level--
	}
}

// Elements repeats the body of a loop for each element of a list, not at all for
// null. The body takes the element, else it is skipped.
func (r *Reader) Elements() iter.Seq[int] {
	return func(yield func(int) bool) {
		if r.null() || !r.expect('[') || !r.enter() {
			return
		}
		for i := 0; !r.next(']'); i++ {
			if i > 0 && !r.expect(',') || !r.part() {
				return
			}
			start := r.at
			if !yield(i) {
				r.fail("taken")
			}
			if r.at == start {
				r.Skip()
			}
			if r.failed {
				return
			}
		}
		r.level--
	}
}

// Text takes a string of at most longestText bytes, "" for null.
func (r *Reader) Text() string {
	raw := r.Raw()
	switch {
	case len(raw) == 0 || !r.short(raw):
		return ""
	case raw[0] != '"':
		r.reject(raw, "a string")
		return ""
	case plain(raw[1 : len(raw)-1]):
		return string(raw[1 : len(raw)-1])
	}
	var text string
	r.decode(raw, &text)
	return text
}

// short reports whether a text, with its quotes, is not too long.
func (r *Reader) short(text []byte) bool {
	if len(text) > longestText+2 {
		r.tooMuch(fmt.Sprintf("a name, label or number of more than %d bytes", longestText))
	}
	return !r.failed
}

// key returns the text of a name of Members.
func (r *Reader) key(name []byte) string {
	if !r.short(name) {
		return ""
	}
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
	default:
		r.reject(raw, "true or false")
		return nil
	}
}

// Into takes a value of any form and at most longestText bytes with encoding/json.
func (r *Reader) Into(value any) {
	if raw := r.Raw(); raw != nil && r.short(raw) {
		r.decode(raw, value)
	}
}

func (r *Reader) decode(raw []byte, value any) {
	if err := json.Unmarshal(raw, value); err != nil && !r.failed {
		r.failed, r.err = true, err
	}
}

// reject fails because of the value that was taken last.
func (r *Reader) reject(raw []byte, wanted string) {
	r.at -= len(raw)
	r.fail(wanted)
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
	if word := r.in[start:r.at]; !r.failed && string(word) != "null" {
		r.reject(word, "null")
	}
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
	if !r.failed && !r.next(b) {
		r.fail(string([]byte{'\'', b, '\''}))
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
		r.fail("a value")
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
			if r.at == start {
				r.fail("a value")
			}
			return
		case '"', '{', '[', ':':
			r.fail("the end of a value")
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
			if r.bound(r.level + open); r.failed {
				r.at = at
				return
			}
		default:
			open--
		}
		if at++; open == 0 {
			r.at = at
			return
		}
	}
	r.at = len(in)
	r.fail("the rest of an object or a list")
}

// text steps over a string.
func (r *Reader) text() {
	if r.at == len(r.in) || r.in[r.at] != '"' {
		r.fail("a string")
		return
	}
	at := r.at + 1
	for end := min(len(r.in), at+shortText); at < end; at++ { // most are shorter than a call of IndexByte takes
		if b := r.in[at]; b == '"' {
			r.at = at + 1
			return
		} else if b == '\\' {
			r.escaped(at)
			return
		}
	}
	length := bytes.IndexByte(r.in[at:], '"')
	if length < 0 {
		r.at = len(r.in)
		r.fail("the rest of a string")
		return
	}
	if bytes.IndexByte(r.in[at:at+length], '\\') >= 0 {
		r.escaped(at)
		return
	}
	r.at = at + length + 1
}

// shortText is the length in bytes of most strings.
const shortText = 16

// escaped steps over the rest of a string that has escapes.
func (r *Reader) escaped(at int) {
	for at < len(r.in) {
		switch r.in[at] {
		case '"':
			r.at = at + 1
			return
		case '\\':
			at++
		}
		at++
	}
	r.at = len(r.in)
	r.fail("the rest of a string")
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
