package cachesize

import (
	"math/bits"
	"reflect"
	"sync"
	"time"
	"unsafe"
)

// Of returns an estimate of the memory of an object in bytes, with everything that it refers to.
func Of(object any) int64 { return walk{}.of(object) }

// walk estimates the memory of several objects. What they share counts once.
type walk map[unsafe.Pointer]struct{}

func (w walk) of(object any) int64 {
	if object == nil {
		return 0
	}
	v := reflect.ValueOf(object)
	if v.Kind() != reflect.Pointer {
		return int64(v.Type().Size()) + w.referenced(v)
	}
	return w.referenced(v)
}

// first reports whether memory was not met before.
func (w walk) first(at unsafe.Pointer) bool {
	if _, met := w[at]; met {
		return false
	}
	w[at] = struct{}{}
	return true
}

// referenced returns the memory that a value refers to, without that of the value itself.
func (w walk) referenced(v reflect.Value) (n int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if v.IsNil() || v.Type() == location || !w.first(v.UnsafePointer()) {
			return 0
		}
		return int64(v.Type().Elem().Size()) + w.referenced(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return w.referenced(v.Elem())
	case reflect.Slice:
		return int64(v.Cap())*int64(v.Type().Elem().Size()) + w.elements(v)
	case reflect.Array:
		return w.elements(v)
	case reflect.Map:
		return w.table(v)
	case reflect.Struct:
		for _, i := range pointers(v.Type()) {
			n += w.referenced(v.Field(i))
		}
	}
	return n
}

// elements returns the memory that the elements of a slice or an array refer to.
func (w walk) elements(v reflect.Value) (n int64) {
	if len(pointers(v.Type().Elem())) > 0 {
		for i := range v.Len() {
			n += w.referenced(v.Index(i))
		}
	}
	return n
}

// table returns the memory of a map: a header, and slots for a power of two of entries, at least 8.
func (w walk) table(v reflect.Value) int64 {
	const header, group = 48, 8
	if v.IsNil() || !w.first(v.UnsafePointer()) {
		return 0
	}
	entry := int64(v.Type().Key().Size() + v.Type().Elem().Size() + 1)
	n := header + entry*max(group, int64(1)<<bits.Len(uint(v.Len())*8/7))
	for entries := v.MapRange(); entries.Next(); {
		n += w.referenced(entries.Key()) + w.referenced(entries.Value())
	}
	return n
}

// location is shared by all times of a zone.
var location = reflect.TypeFor[*time.Location]()

var pointerFields sync.Map // reflect.Type -> []int

// pointers returns the fields of a struct that refer to other memory. For other types it returns
// one element if values refer to other memory.
func pointers(t reflect.Type) []int {
	if known, found := pointerFields.Load(t); found {
		return known.([]int)
	}
	var fields []int
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if len(pointers(t.Field(i).Type)) > 0 {
				fields = append(fields, i)
			}
		}
	case reflect.Array:
		fields = pointers(t.Elem())
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		fields = []int{0}
	}
	pointerFields.Store(t, fields)
	return fields
}
