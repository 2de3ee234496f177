package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Bounds of what is taken of one JSON text. They are far above what Kubernetes
// lets any object have, and keep a text that somebody wrote to do harm from
// taking more memory and time than its bytes alone do.
const (
	mostParts    = 20_000  // members and elements that are looked at; those that are only stepped over do not count
	mostAmounts  = 4_000   // quantities: a VPA for 300 containers with all bounds of both resources has 3,600
	mostLevels   = 100     // of objects and lists within each other; managedFields have some ten
	longestText  = 512     // bytes of a name, a label and the like, as they are written
	mostDecoded  = 1 << 18 // bytes of names, labels and the like with an escape or a character beyond ASCII: no valid one has any
	longestFound = 20      // bytes of the text that an error quotes
)

// anyLevels is the bound where nothing is decoded: to step over a value takes the same
// memory however deep it is.
const anyLevels = math.MaxInt

// anyParts is where counting begins if all parts are looked at.
const anyParts = math.MinInt

// ErrTooMuch is why a text is not read to its end: it has more parts, or longer
// ones, than are looked at.
var ErrTooMuch = errors.New("more than is looked at")

// errLeft is why a text is not read to its end whose reader knows enough.
var errLeft = errors.New("not read to its end")

// Reader steps over JSON, of which it decodes what is asked for:
// docs/dependencies.md says why encoding/json does not. Each method
// takes the value that is next. After the first that does not fit, all take nothing, and
// Err says what is wrong.
type Reader struct {
	in  []byte
	at  int
	err error // nil as long as everything fits

	parts   int // members and elements so far
	amounts int // quantities so far
	decoded int // bytes of names, labels and the like that had to be decoded so far
	level   int // objects and lists that were entered and not left
	most    int // of them, and of those that are stepped over
	sized   int // containers of a pod so far
}

// Read returns a Reader at the beginning of a JSON text.
func Read(in []byte) *Reader { return &Reader{in: in, most: mostLevels} }

// Err says what is wrong with the text, or with what follows it. It is nil when
// the whole text was taken.
func (r *Reader) Err() error {
	if r.space(); r.err == nil && r.at < len(r.in) {
		r.fail("the end")
	}
	return r.err
}

// fail remembers what should stand where the Reader is.
func (r *Reader) fail(wanted string) {
	if r.err != nil {
		return
	}
	found := "the end"
	if r.at < len(r.in) {
		found = fmt.Sprintf("%q", r.in[r.at:min(len(r.in), r.at+longestFound)])
	}
	r.err = fmt.Errorf("byte %d must be %s, not %s", r.at, wanted, found)
}

// reject fails because of the value that was taken last.
func (r *Reader) reject(raw []byte, wanted string) {
	r.at -= len(raw)
	r.fail(wanted)
}

// tooMuch ends the reading.
func (r *Reader) tooMuch(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrTooMuch, fmt.Sprintf(format, args...))
	}
}

// Members returns the names of the members of an object, none for null. The body
// of the loop takes the value of the member; if it takes nothing, the value is
// skipped. Names keep their escapes, so those that have some are never wanted.
func (r *Reader) Members() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { r.members(yield) }
}

func (r *Reader) members(yield func([]byte) bool) {
	r.items('{', '}', func(int) {
		r.space()
		start := r.at
		r.text()
		if r.err != nil {
			return
		}
		if name := r.in[start+1 : r.at-1]; r.expect(':') {
			r.value(func() bool { return yield(name) })
		}
	})
}

// Elements repeats the body of a loop for each element of a list, not at all for
// null. The body takes the element, else it is skipped.
func (r *Reader) Elements() iter.Seq[int] {
	return func(yield func(int) bool) {
		r.items('[', ']', func(i int) { r.value(func() bool { return yield(i) }) })
	}
}

// items calls a function for each member or element, which takes it.
func (r *Reader) items(open, end byte, take func(i int)) {
	if r.null() || !r.expect(open) {
		return
	}
	r.level++
	r.bound(r.level)
	for i := 0; r.err == nil && !r.next(end); i++ {
		if r.parts++; r.parts > mostParts {
			r.tooMuch("more than %d members and elements", mostParts)
		}
		if i == 0 || r.expect(',') {
			take(i)
		}
	}
	r.level--
}

// value runs the body of a loop, and skips what that does not take.
func (r *Reader) value(body func() bool) {
	start := r.at
	if !body() && r.err == nil {
		r.err = errLeft
	}
	if r.at == start {
		r.Skip()
	}
}

// bound fails when something stands in too many objects and lists.
func (r *Reader) bound(level int) {
	if level > r.most {
		r.tooMuch("more than %d levels", r.most)
	}
}

// Text takes a string of at most longestText bytes, "" for null.
func (r *Reader) Text() string {
	raw := r.Raw()
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		r.reject(raw, "a string")
		return ""
	}
	return r.key(raw[1 : len(raw)-1])
}

// key returns the text of a name of Members, or of what else stands between quotes.
func (r *Reader) key(name []byte) string {
	if !r.short(name) {
		return ""
	}
	for _, b := range name {
		if b < ' ' || b >= 0x80 || b == '\\' {
			if r.decoded += len(name); r.decoded > mostDecoded {
				r.tooMuch("more than %d bytes of names and labels with characters that none may have", mostDecoded)
				return ""
			}
			var text string
			r.decode(slices.Concat([]byte{'"'}, name, []byte{'"'}), &text)
			return text
		}
	}
	return string(name)
}

// short reports whether a text is not too long.
func (r *Reader) short(text []byte) bool {
	if len(text) > longestText {
		r.tooMuch("a name, label or number of more than %d bytes", longestText)
	}
	return r.err == nil
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
	if err := json.Unmarshal(raw, value); r.err == nil {
		r.err = err
	}
}

// sound reports whether a quantity can be computed with, by the rule that the other
// programs read VPAs with. To read one with many digits takes microseconds, so their
// number has a bound of its own.
func (r *Reader) sound(raw []byte) bool {
	if r.amounts++; r.amounts > mostAmounts {
		r.tooMuch("more than %d quantities", mostAmounts)
	}
	if err := vpav1.CheckQuantity(bytes.Trim(raw, `"`)); err != nil {
		r.tooMuch("%v", err)
	}
	return r.err == nil
}

// Raw takes a value of any form and returns its bytes, which are part of the
// text: nil for null.
func (r *Reader) Raw() []byte {
	r.space()
	start := r.at
	r.Skip()
	if r.err != nil {
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
	if r.err != nil || !bytes.HasPrefix(r.in[r.at:], []byte("null")) {
		return false
	}
	r.at += len("null")
	return true
}

func (r *Reader) space() {
	for r.at < len(r.in) && (r.in[r.at] == ' ' || r.in[r.at] == '\n' || r.in[r.at] == '\t' || r.in[r.at] == '\r') {
		r.at++
	}
}

// next steps over white space and then over b, if that is there.
func (r *Reader) next(b byte) bool {
	r.space()
	if r.at == len(r.in) || r.in[r.at] != b {
		return false
	}
	r.at++
	return true
}

// expect steps over white space and b.
func (r *Reader) expect(b byte) bool {
	if r.err == nil && !r.next(b) {
		r.fail(string([]byte{'\'', b, '\''}))
	}
	return r.err == nil
}

// Skip takes a value of any form. What an object or a list holds needs only have its
// quotes and brackets in pairs.
func (r *Reader) Skip() {
	if r.space(); r.at == len(r.in) {
		r.fail("a value")
	}
	for open := 0; r.err == nil; {
		if r.at == len(r.in) {
			r.fail("the rest of an object or a list")
			return
		}
		switch b := r.in[r.at]; {
		case b == '"':
			r.text()
		case b == '{' || b == '[':
			open++
			r.bound(r.level + open)
			r.at++
		case open == 0:
			r.word()
		case b == '}' || b == ']':
			open--
			r.at++
		default:
			r.at++
		}
		if open == 0 {
			return
		}
	}
}

// word steps over a number, true, false or null: up to what may follow one.
func (r *Reader) word() {
	start := r.at
	for r.at < len(r.in) && strings.IndexByte(",}] \n\t\r\"{[:", r.in[r.at]) < 0 {
		r.at++
	}
	if r.at == start {
		r.fail("a value")
	}
}

// text steps over a string.
func (r *Reader) text() {
	if r.at == len(r.in) || r.in[r.at] != '"' {
		r.fail("a string")
		return
	}
	const short = 16 // most strings are no longer, and a call of IndexByte takes longer than these
	for at := r.at + 1; at < len(r.in); at++ {
		if at == r.at+short {
			// Without an escape the end is found fast. With one byte by byte: who writes
			// many of them must not have the rest searched for each.
			if next := bytes.IndexByte(r.in[at:], '"'); next >= 0 && bytes.IndexByte(r.in[at:at+next], '\\') < 0 {
				at += next
			}
		}
		switch r.in[at] {
		case '"':
			r.at = at + 1
			return
		case '\\':
			at++
		}
	}
	r.at = len(r.in)
	r.fail("the rest of a string")
}
