package server

import (
	"bytes"
	"errors"
)

// LargestVPA is how large a VPA may be in bytes: the default of what etcd stores.
const LargestVPA = 3 << 19

// LargestPolicy is how large a SizingPolicy may be in bytes: twice what annotations of an
// object may have, as it has some for the VPAs that are made for it, too.
const LargestPolicy = 512 << 10

// CheckVPA reports why a VPA must not be decoded: with ErrTooMuch because it has
// more parts or levels than any VPA, or holds a quantity that takes minutes to read. What
// is no VPA is no error; decoding says more about that.
func CheckVPA(raw []byte) error { return check(raw, LargestVPA) }

// CheckPolicy does for a SizingPolicy what CheckVPA does for a VPA.
func CheckPolicy(raw []byte) error { return check(raw, LargestPolicy) }

func check(raw []byte, most int) error {
	r := Read(raw)
	if len(raw) > most {
		r.tooMuch("more than %d bytes", most)
		return r.err
	}
	r.walk(nil, false)
	if errors.Is(r.err, ErrTooMuch) {
		return r.err
	}
	return nil
}

// quantityLists and quantityFields are the members of a VPA that hold quantities.
var (
	quantityLists  = [][]byte{[]byte("minAllowed"), []byte("maxAllowed"), []byte("target"), []byte("lowerBound"), []byte("upperBound"), []byte("uncappedTarget")}
	quantityFields = [][]byte{[]byte("oomBumpUpRatio"), []byte("oomMinBumpUp"), []byte("quantity")}
)

// walk takes a value and counts what is in it. Name is that of its member, and
// listed means that it stands in a list of quantities.
func (r *Reader) walk(name []byte, listed bool) {
	if r.space(); r.at == len(r.in) {
		r.fail("a value")
		return
	}
	switch r.in[r.at] {
	case '{':
		within := holds(quantityLists, name)
		for member := range r.Members() {
			r.walk(member, within)
		}
	case '[':
		for range r.Elements() {
			r.walk(name, listed)
		}
	default:
		if raw := r.Raw(); raw != nil && (listed || holds(quantityFields, name)) {
			r.sound(raw)
		}
	}
}

// holds reports whether name is one of some, as encoding/json compares names. Of
// one with escapes nobody knows.
func holds(some [][]byte, name []byte) bool {
	if bytes.IndexByte(name, '\\') >= 0 {
		return true
	}
	for _, one := range some {
		if bytes.EqualFold(one, name) {
			return true
		}
	}
	return false
}

// Deleting reports whether an object is on its way out.
func Deleting(raw []byte) bool {
	deleting := false
	r := Read(raw)
	r.most = anyLevels
	for name := range r.Members() {
		if string(name) != "metadata" {
			continue
		}
		deleting = false
		for name := range r.Members() {
			if string(name) == "deletionTimestamp" {
				deleting = r.Text() != ""
			}
		}
	}
	return deleting && r.Err() == nil
}

// SameSpec reports whether two objects, as the API server writes them, have one spec, or
// both none.
func SameSpec(raw, other []byte) bool {
	one, ok := spec(raw)
	another, too := spec(other)
	return ok && too && bytes.Equal(one, another)
}

// spec returns the text of the spec of an object. It is false if the object cannot be read.
func spec(raw []byte) (found []byte, ok bool) {
	r := Read(raw)
	r.most = anyLevels
	for name := range r.Members() {
		if string(name) == "spec" {
			found = r.Raw()
		}
	}
	return found, r.Err() == nil
}
