package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Bounds of one JSON document, far above the limits of Kubernetes objects. They keep the memory and
// the time of a hostile review proportional to its bytes.
const (
	maxParts      = 20_000  // members and elements, without skipped values
	maxQuantities = 4_000   // a VPA for 300 containers with all bounds of both resources has 3,600
	maxDepth      = 100     // managedFields have some ten levels
	maxText       = 512     // bytes of a name, label or number, as written
	maxUnescaped  = 1 << 18 // bytes of names and labels with escapes or non-ASCII characters, which no valid one has
	maxExcerpt    = 20      // bytes of the document in an error

	// MaxContainers limits the containers of a pod, init containers included.
	MaxContainers = 300
	// MaxVPABytes limits the size of a VPA to the default limit of etcd.
	MaxVPABytes = 3 << 19
	// MaxPolicyBytes limits the size of a SizingPolicy to twice the limit of annotations.
	MaxPolicyBytes = 512 << 10

	unlimited = math.MaxInt
)

// ErrTooComplex means that a document exceeds a bound.
var ErrTooComplex = errors.New("more than is looked at")

// CheckVPA returns ErrTooComplex for a VPA that must not be decoded: it exceeds a bound or holds a quantity
// that takes minutes to parse. Invalid JSON is no error here.
func CheckVPA(raw []byte) error { return checkBounds(raw, MaxVPABytes) }

// CheckPolicy is CheckVPA for a SizingPolicy.
func CheckPolicy(raw []byte) error { return checkBounds(raw, MaxPolicyBytes) }

func checkBounds(raw []byte, maxBytes int) error {
	if len(raw) > maxBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrTooComplex, maxBytes)
	}
	d := newDecoder(raw)
	defer d.free()
	d.checkValue(nil, false)
	if errors.Is(d.err, ErrTooComplex) {
		return d.err
	}
	return nil
}

// IsDeleted reports whether an object has a deletion timestamp.
func IsDeleted(raw []byte) (deleted bool) {
	d := newDecoder(raw)
	defer d.free()
	d.maxDepth = unlimited
	for name := range d.members() {
		if string(name) != "metadata" {
			continue
		}
		deleted = false
		for name := range d.members() {
			if string(name) == "deletionTimestamp" {
				deleted = d.text() != ""
			}
		}
	}
	return deleted && d.end() == nil
}

// HaveSameSpec reports whether the specs of two objects have the same bytes. Both may have none.
func HaveSameSpec(raw, other []byte) bool {
	spec, valid := findSpec(raw)
	otherSpec, otherValid := findSpec(other)
	return valid && otherValid && bytes.Equal(spec, otherSpec)
}

func findSpec(raw []byte) (spec []byte, valid bool) {
	d := newDecoder(raw)
	defer d.free()
	d.maxDepth = unlimited
	for name := range d.members() {
		if string(name) == "spec" {
			spec = d.raw()
		}
	}
	return spec, d.end() == nil
}

// decoder decodes selected members. Each method reads the next value, or nothing after an error.
type decoder struct {
	jsontext.Decoder
	buffer bytes.Buffer
	progress
}

type progress struct {
	in       []byte
	err      error
	inObject bool // err is in an object of the request
	maxDepth int

	parts, quantities, unescaped, containers int
}

var (
	decoders       = sync.Pool{New: func() any { return &decoder{} }}
	decoderOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

func newDecoder(raw []byte) *decoder {
	d := decoders.Get().(*decoder)
	d.buffer, d.progress = *bytes.NewBuffer(raw), progress{in: raw, maxDepth: maxDepth}
	d.Reset(&d.buffer, decoderOptions...)
	return d
}

func (d *decoder) free() {
	d.buffer, d.progress = bytes.Buffer{}, progress{}
	d.Reset(&d.buffer) // drops the document
	decoders.Put(d)
}

// end returns the first error. Data after the document is an error.
func (d *decoder) end() error {
	if d.err == nil && d.PeekKind() != jsontext.KindInvalid {
		d.reject(d.InputOffset(), "the end")
	} else if _, err := d.ReadToken(); d.err == nil && !errors.Is(err, io.EOF) {
		d.fail(err)
	}
	return d.err
}

// fail records an error without its JSON pointer, which may be as long as the document.
func (d *decoder) fail(err error) {
	var syntax *jsontext.SyntacticError
	switch {
	case d.err != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		d.err = fmt.Errorf("byte %d: unexpected end of JSON", len(d.in))
	case errors.As(err, &syntax):
		d.err = fmt.Errorf("byte %d: %w", syntax.ByteOffset, syntax.Err)
	default:
		d.err = err
	}
}

func (d *decoder) reject(offset int64, wanted string) {
	if found := d.from(offset, int64(len(d.in))); d.err == nil {
		d.err = fmt.Errorf("byte %d must be %s, not %q", len(d.in)-len(found), wanted, found[:min(len(found), maxExcerpt)])
	}
}

func (d *decoder) exceed(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrTooComplex, fmt.Sprintf(format, args...))
	}
}

// from returns the bytes between two offsets without leading space and separators.
func (d *decoder) from(start, end int64) []byte {
	for start < end && strings.IndexByte(" \n\r\t,:", d.in[start]) >= 0 {
		start++
	}
	return d.in[start:end]
}

func (d *decoder) token() jsontext.Kind {
	if d.err != nil {
		return jsontext.KindInvalid
	}
	token, err := d.ReadToken()
	if err != nil {
		d.fail(err)
	} else if d.StackDepth() > d.maxDepth {
		d.exceed("more than %d levels", d.maxDepth)
	}
	return token.Kind()
}

// raw returns the bytes of the next value, which are part of the document, or nil for null. It reads token by
// token: Decoder.ReadValue recurses, and the goroutine of a connection keeps a large stack.
func (d *decoder) raw() []byte {
	start, depth := d.InputOffset(), d.StackDepth()
	kind := d.token()
	for d.err == nil && d.StackDepth() > depth {
		d.token()
	}
	if d.err != nil || kind == jsontext.KindNull {
		return nil
	}
	return d.from(start, d.InputOffset())
}

func (d *decoder) null() bool {
	return d.err == nil && d.PeekKind() == jsontext.KindNull && d.token() == jsontext.KindNull
}

// members yields the names of the members of an object, none for null. Names keep their escapes.
// The loop body may read the value of the member and must not break.
func (d *decoder) members() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { d.each(jsontext.KindBeginObject, "'{'", yield) }
}

// elements yields once for each element of a list, like members.
func (d *decoder) elements() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { d.each(jsontext.KindBeginArray, "'['", yield) }
}

func (d *decoder) each(begin jsontext.Kind, wanted string, yield func(name []byte) bool) {
	start := d.InputOffset()
	if kind := d.token(); kind != begin {
		if kind != jsontext.KindNull {
			d.reject(start, wanted)
		}
		return
	}
	for d.more() {
		var name []byte
		if begin == jsontext.KindBeginObject {
			quoted := d.raw()
			if d.err != nil {
				return
			}
			name = quoted[1 : len(quoted)-1]
		}
		start := d.InputOffset()
		if !yield(name) {
			return
		}
		if d.err == nil && d.InputOffset() == start {
			d.raw()
		}
	}
}

// more reports whether another member or element follows, or reads the end of the object or list.
func (d *decoder) more() bool {
	if d.err != nil {
		return false
	}
	if kind := d.PeekKind(); kind == jsontext.KindEndObject || kind == jsontext.KindEndArray {
		d.token()
		return false
	}
	if d.parts++; d.parts > maxParts {
		d.exceed("more than %d members and elements", maxParts)
	}
	return d.err == nil
}

func (d *decoder) text() string {
	start := d.InputOffset()
	raw := d.raw()
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		d.reject(start, "a string")
		return ""
	}
	return d.unescape(raw[1 : len(raw)-1])
}

func (d *decoder) unescape(text []byte) string {
	if !d.isShort(text) {
		return ""
	}
	if !slices.ContainsFunc(text, func(b byte) bool { return b >= 0x80 || b == '\\' }) {
		return string(text)
	}
	if d.unescaped += len(text); d.unescaped > maxUnescaped {
		d.exceed("more than %d bytes of names and labels with invalid characters", maxUnescaped)
		return ""
	}
	var unescaped string
	d.unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &unescaped)
	return unescaped
}

func (d *decoder) isShort(text []byte) bool {
	if len(text) > maxText {
		d.exceed("a name, label or number of more than %d bytes", maxText)
	}
	return d.err == nil
}

func (d *decoder) boolean() *bool {
	start := d.InputOffset()
	switch d.token() {
	case jsontext.KindTrue:
		return new(true)
	case jsontext.KindFalse:
		return new(false)
	case jsontext.KindNull:
	default:
		d.reject(start, "true or false")
	}
	return nil
}

func (d *decoder) short(into any) {
	if raw := d.raw(); raw != nil && d.isShort(raw) {
		d.unmarshal(raw, into)
	}
}

func (d *decoder) unmarshal(raw []byte, into any) {
	if err := json.Unmarshal(raw, into); d.err == nil {
		d.err = err
	}
}

// checkQuantity applies the VPA quantity bounds of the other programs. Parsing many digits takes
// microseconds, so the number of quantities is bounded too.
func (d *decoder) checkQuantity(raw []byte) bool {
	if d.quantities++; d.quantities > maxQuantities {
		d.exceed("more than %d quantities", maxQuantities)
	}
	if err := vpav1.CheckQuantity(bytes.Trim(raw, `"`)); err != nil {
		d.exceed("%v", err)
	}
	return d.err == nil
}

var (
	quantityLists  = []string{"minAllowed", "maxAllowed", "target", "lowerBound", "upperBound", "uncappedTarget"}
	quantityFields = []string{"oomBumpUpRatio", "oomMinBumpUp", "quantity"}
)

// checkValue counts the parts of a value of the member name, or of an element of its list.
func (d *decoder) checkValue(name []byte, inQuantityList bool) {
	if d.err != nil {
		return
	}
	switch d.PeekKind() {
	case jsontext.KindBeginObject:
		inQuantityList = mayBeOneOf(quantityLists, name)
		for member := range d.members() {
			d.checkValue(member, inQuantityList)
		}
	case jsontext.KindBeginArray:
		for range d.elements() {
			d.checkValue(name, inQuantityList)
		}
	default:
		if raw := d.raw(); raw != nil && (inQuantityList || mayBeOneOf(quantityFields, name)) {
			d.checkQuantity(raw)
		}
	}
}

// mayBeOneOf reports whether encoding/json may match a name with one of some fields. It ignores case.
func mayBeOneOf(fields []string, name []byte) bool {
	return bytes.IndexByte(name, '\\') >= 0 || slices.ContainsFunc(fields, func(field string) bool { return strings.EqualFold(field, string(name)) })
}
