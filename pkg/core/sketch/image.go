package sketch

import (
	"errors"
	"fmt"
	"math"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Parts of an image. A number is never used for anything else.
const (
	partFrame      = 1
	partPeaks      = 2
	partKills      = 3
	partLoad       = 4  // and 5, by kind
	partPoints     = 6  // and 7
	partHours      = 8  // and 9
	partWeighted   = 10 // and 11
	partModels     = 12 // and 13
	partPressed    = 14
	partLimitRatio = 15
	partDeclared   = 16
)

// Image returns the sketch as bytes, of which Load makes the same sketch.
func (t *Sketch) Image() []byte {
	var image imageWriter
	part := func(tag int64, write func(*imageWriter)) {
		var content imageWriter
		write(&content)
		image.Part(tag, content)
	}
	part(partFrame, func(w *imageWriter) {
		w.Int(t.Now)
		for _, at := range t.begun {
			w.Int(at)
		}
	})
	if t.Peaks != nil {
		part(partPeaks, t.Peaks.Write)
	}
	if t.Kills != nil {
		part(partKills, t.Kills.write)
	}
	if t.Pressed != nil {
		part(partPressed, t.Pressed.Write)
	}
	if t.LimitRatio != Unseen {
		part(partLimitRatio, func(w *imageWriter) { w.Int(int64(t.LimitRatio)) })
	}
	if t.first != 0 {
		part(partDeclared, func(w *imageWriter) { w.Int(int64(t.first)) })
	}
	for k := range int64(resources.Kinds) {
		if l := t.Load[k]; l != nil {
			part(partLoad+k, l.Write)
		}
		if m := t.Models[k]; m != nil {
			part(partModels+k, m.Write)
		}
		if p := t.Points[k]; p != nil {
			part(partPoints+k, p.Write)
		}
		if h := t.Hours[k]; h != nil {
			part(partHours+k, h.Write)
		}
		if w := t.Weighted[k]; w != nil {
			part(partWeighted+k, w.Write)
		}
	}
	return image
}

// ErrFuture says that an image has times that cannot be yet.
var ErrFuture = errors.New("it has uses in the future: was it written while a clock was wrong?")

// Read returns a sketch of some needs, filled from an image as far as that has what
// is needed. Parts that are not known are skipped. It fails if the image cannot be
// read, or was written more than ahead after now; 0 = that does not matter.
func Read(n Needs, image []byte, now time.Time, ahead time.Duration) (*Sketch, error) {
	t := New(n)
	had := map[int64]bool{}
	for r := newImageReader(image); !r.Empty(); {
		tag, content := r.Part()
		if r.Err() != nil {
			return nil, r.Err()
		}
		had[tag] = t.read(tag, content)
		if content.Err() != nil {
			return nil, fmt.Errorf("part %d: %w", tag, content.Err())
		}
	}
	if ahead > 0 && time.Unix(0, t.Now).Sub(now) > ahead {
		return nil, ErrFuture
	}
	t.forget(resources.Memory, t.Peaks != nil && !had[partPeaks])
	for k := range resources.Kind(resources.Kinds) {
		of := int64(k)
		t.forget(k, t.Load[k] != nil && !had[partLoad+of] || t.Models[k] != nil && !had[partModels+of] || t.Points[k] != nil && !had[partPoints+of] || t.Hours[k] != nil && !had[partHours+of] || t.Weighted[k] != nil && !had[partWeighted+of])
	}
	return t, nil
}

// forget notes that a part of a kind begins anew.
func (t *Sketch) forget(k resources.Kind, anew bool) {
	if anew {
		t.begun[k] = 0
	}
}

// read fills a part, and tells whether it is needed and what it was.
func (t *Sketch) read(tag int64, r *imageReader) bool {
	kind := tag % resources.Kinds
	switch tag {
	case partFrame:
		t.Now = r.Within(0, math.MaxInt64)
		for k := range t.begun {
			t.begun[k] = r.Within(0, math.MaxInt64)
		}
		return true
	case partPeaks:
		return fill(t.Peaks, func(p *DailyPeaks) bool { p.Read(r); return true })
	case partLoad, partLoad + 1:
		return fill(t.Load[kind], func(l *Load) bool { return l.Read(r) })
	case partKills:
		return fill(t.Kills, func(k *Kills) bool { k.read(r); return true })
	case partPressed:
		if t.waits {
			t.Pressed = &Hours{}
			t.Pressed.Read(r)
		}
		return t.waits
	case partLimitRatio:
		if t.limited {
			t.LimitRatio = LimitRatio(r.Within(0, int64(Free)))
		}
		return t.limited
	case partDeclared:
		if t.early > 0 {
			t.first = uint16(r.Within(0, math.MaxUint16))
		}
		return t.early > 0
	case partModels, partModels + 1:
		return fill(t.Models[kind], func(m *Models) bool { return m.Read(r) })
	case partPoints, partPoints + 1:
		return fill(t.Points[kind], func(p *Points) bool { p.Read(r); return true })
	case partHours, partHours + 1:
		return fill(t.Hours[kind], func(h *Hours) bool { h.Read(r); return true })
	case partWeighted, partWeighted + 1:
		return fill(t.Weighted[kind], func(w *Weighted) bool { return w.Read(r) })
	}
	return false
}

func fill[P any](part *P, read func(*P) bool) bool { return part != nil && read(part) }
