package sketch

import (
	"encoding/binary"
	"errors"
	"math"
)

// imageWriter is bytes in the making.
type imageWriter []byte

// Int adds a number.
func (w *imageWriter) Int(n int64) { *w = binary.AppendVarint(*w, n) }

// Float adds a number with all its digits.
func (w *imageWriter) Float(f float64) {
	*w = binary.LittleEndian.AppendUint64(*w, math.Float64bits(f))
}

// Short adds a number of four bytes.
func (w *imageWriter) Short(f float32) {
	*w = binary.LittleEndian.AppendUint32(*w, math.Float32bits(f))
}

// Codes adds the slots of a ring. Empty ones at both ends take no room.
func (w *imageWriter) Codes(slots []uint16) {
	first, end := 0, len(slots)
	for end > 0 && slots[end-1] == 0 {
		end--
	}
	for first < end && slots[first] == 0 {
		first++
	}
	w.Int(int64(first))
	w.Int(int64(end - first))
	for _, code := range slots[first:end] {
		*w = binary.LittleEndian.AppendUint16(*w, code)
	}
}

// Part adds bytes that a reader can skip.
func (w *imageWriter) Part(tag int64, content imageWriter) {
	w.Int(tag)
	w.Int(int64(len(content)))
	*w = append(*w, content...)
}

// ErrImage says that bytes are not what a Writer has written.
var ErrImage = errors.New("it is cut short, or was not written by us")

// imageReader takes numbers from bytes. Once it has failed all are 0.
type imageReader struct {
	rest []byte
	err  error
}

// newImageReader returns a reader of bytes, which it does not change.
func newImageReader(bytes []byte) *imageReader { return &imageReader{rest: bytes} }

// Err returns what is wrong, nil if nothing is.
func (r *imageReader) Err() error { return r.err }

// Fail notes that a number makes no sense.
func (r *imageReader) Fail() { r.rest, r.err = nil, ErrImage }

// Empty tells whether all is read.
func (r *imageReader) Empty() bool { return len(r.rest) == 0 }

// Int returns the next number.
func (r *imageReader) Int() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// Within returns the next number, which must be in a range.
func (r *imageReader) Within(least, most int64) int64 {
	n := r.Int()
	if n < least || n > most {
		r.Fail()
		return least
	}
	return n
}

// Float returns the next number, which must be finite and not negative.
func (r *imageReader) Float() float64 {
	raw := r.take(8)
	if raw == nil {
		return 0
	}
	return r.sound(math.Float64frombits(binary.LittleEndian.Uint64(raw)))
}

// Short returns the next number of four bytes, under the same conditions.
func (r *imageReader) Short() float32 {
	raw := r.take(4)
	if raw == nil {
		return 0
	}
	return float32(r.sound(float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))))
}

func (r *imageReader) sound(f float64) float64 {
	if !(f >= 0) || math.IsInf(f, 0) {
		r.Fail()
		return 0
	}
	return f
}

// Codes fills the slots of a ring.
func (r *imageReader) Codes(slots []uint16) {
	clear(slots)
	first := r.Within(0, int64(len(slots)))
	n := r.Within(0, int64(len(slots))-first)
	raw := r.take(int(2 * n))
	for i := range len(raw) / 2 {
		slots[int(first)+i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
}

// Part returns the next part.
func (r *imageReader) Part() (tag int64, content *imageReader) {
	tag = r.Int()
	return tag, newImageReader(r.take(int(r.Within(0, math.MaxInt32))))
}

func (r *imageReader) take(n int) []byte {
	if r.err != nil || n > len(r.rest) {
		r.Fail()
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}
