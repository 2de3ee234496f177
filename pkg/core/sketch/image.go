package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// frame is the number of the part that holds the times of a sketch.
const frame = 1

// Image returns the serialized sketch. Read restores an identical sketch from it.
func (t *Sketch) Image() []byte {
	var image, content imageWriter
	content.Int(t.Now)
	for _, at := range t.firstUsage {
		content.Int(at)
	}
	image.Part(frame, content)
	for i := range parts {
		content = content[:0]
		if parts[i].write(t, &content); len(content) > 0 {
			image.Part(parts[i].number, content)
		}
	}
	return image
}

// ErrFuture means that an image holds times in the future.
var ErrFuture = errors.New("usage in the future: written while a clock was wrong?")

// Read fills a sketch with the given needs from an image as far as possible. It skips unknown
// parts, and fails if the image is corrupt or has usage after now + ahead. 0 = no check.
func Read(n Needs, image []byte, now time.Time, ahead time.Duration) (*Sketch, error) {
	t, had := New(n), [len(parts)]bool{}
	for r := newImageReader(image); !r.Empty(); {
		number, content := r.Part()
		if r.Err() != nil {
			return nil, r.Err()
		}
		if number == frame {
			t.readFrame(content)
		}
		if former, found := formerParts[number]; found {
			number, content.formerUnit = former.present, former.unit
		}
		for i := range parts {
			if parts[i].number == number {
				had[i] = parts[i].read(t, content)
			}
		}
		if content.Err() != nil {
			return nil, fmt.Errorf("part %d: %w", number, content.Err())
		}
	}
	if ahead > 0 && t.hasUsageAfter(now.Add(ahead)) {
		return nil, ErrFuture
	}
	for k, l := range t.Load {
		if l != nil && l.first == 0 && len(l.uses.weights) > 0 { // older images lack it, and no other part began later
			l.first = t.firstUsage[k]
		}
	}
	for i, p := range parts {
		if p.begins != anyKind && p.needed(t) && !had[i] {
			t.firstUsage[p.begins] = 0
		}
	}
	return t, nil
}

// hasUsageAfter finds usage that would never expire, because the rings drop older samples.
func (t *Sketch) hasUsageAfter(than time.Time) bool {
	at := than.UnixNano()
	for _, h := range [...]*Hours{t.Hours[cpu], t.Hours[ram], t.PressureHours} {
		if h != nil && (h.running > at/int64(time.Hour) || h.minute > at/int64(time.Minute)) {
			return true
		}
	}
	return t.Now > at
}

func (t *Sketch) readFrame(r *imageReader) {
	t.Now = r.Within(0, math.MaxInt64)
	for k := range t.firstUsage {
		t.firstUsage[k] = r.Within(0, math.MaxInt64)
	}
}

type imageWriter []byte

func (w *imageWriter) Int(n int64) { *w = binary.AppendVarint(*w, n) }

func (w *imageWriter) Float(f float64) {
	*w = binary.LittleEndian.AppendUint64(*w, math.Float64bits(f))
}

func (w *imageWriter) Short(f float32) {
	*w = binary.LittleEndian.AppendUint32(*w, math.Float32bits(f))
}

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

func (w *imageWriter) Part(tag int64, content imageWriter) {
	w.Int(tag)
	w.Int(int64(len(content)))
	*w = append(*w, content...)
}

// ErrImage means that an image is truncated or corrupt.
var ErrImage = errors.New("truncated or corrupt image")

// imageReader reads numbers from an image. After an error it returns only zeros.
type imageReader struct {
	rest       []byte
	err        error
	mismatch   bool    // content does not fit the needs, e.g. bucket sizes differ
	formerUnit float64 // codes per millicore or byte in older images, 0 = scale codes
}

func newImageReader(bytes []byte) *imageReader { return &imageReader{rest: bytes} }

func (r *imageReader) Err() error { return r.err }

func (r *imageReader) Fail() { r.rest, r.err = nil, ErrImage }

func (r *imageReader) Empty() bool { return len(r.rest) == 0 }

func (r *imageReader) Int() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *imageReader) Within(least, most int64) int64 {
	n := r.Int()
	if n < least || n > most {
		r.Fail()
		return least
	}
	return n
}

// Float fails for negative and infinite numbers.
func (r *imageReader) Float() float64 {
	raw := r.take(8)
	if raw == nil {
		return 0
	}
	return r.checkFinite(math.Float64frombits(binary.LittleEndian.Uint64(raw)))
}

func (r *imageReader) Short() float32 {
	raw := r.take(4)
	if raw == nil {
		return 0
	}
	return float32(r.checkFinite(float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))))
}

func (r *imageReader) checkFinite(f float64) float64 {
	if !(f >= 0) || math.IsInf(f, 0) {
		r.Fail()
		return 0
	}
	return f
}

func (r *imageReader) Codes(slots []uint16) {
	clear(slots)
	first := r.Within(0, int64(len(slots)))
	n := r.Within(0, int64(len(slots))-first)
	raw := r.take(int(2 * n))
	for i := range len(raw) / 2 {
		slots[int(first)+i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
}

func (r *imageReader) Scaled(s *scale, slots []uint16) {
	if r.Codes(slots); r.formerUnit > 0 {
		for i, code := range slots {
			slots[i] = s.recode(code, r.formerUnit)
		}
	}
}

// Code reads one scale code, or an unscaled number with a nil scale.
func (r *imageReader) Code(s *scale) uint16 {
	code := uint16(r.Within(0, math.MaxUint16))
	if s != nil && r.formerUnit > 0 {
		return s.recode(code, r.formerUnit)
	}
	return code
}

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
