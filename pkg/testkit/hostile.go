package testkit

import (
	"fmt"
	"iter"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hostile yields objects of the type that an object points to, with every field filled: with lists and
// maps of 10,000 short entries, with long strings in few entries, and with strings as long as
// names may be. The metadata that the API server writes or checks are ordinary.
func Hostile(of any) iter.Seq2[string, any] {
	shapes := []hostile{
		{name: "many entries", entries: 10_000, text: "n"},
		{name: "long strings", entries: 12, text: strings.Repeat("x", 64<<10)},
		{name: "long names", entries: 300, text: strings.Repeat("x", 240)},
	}
	return func(yield func(string, any) bool) {
		for _, shape := range shapes {
			filled := reflect.New(reflect.TypeOf(of).Elem())
			shape.fill(filled.Elem(), 0)
			meta := filled.Interface().(metav1.Object)
			meta.SetName("name")
			meta.SetNamespace("namespace")
			meta.SetUID("uid")
			meta.SetResourceVersion("1")
			if !yield(shape.name, filled.Interface()) {
				return
			}
		}
	}
}

// hostile fills values.
type hostile struct {
	name    string
	entries int // of each list and map
	text    string
}

// known are texts for which programs keep the entry of a list, or more of it.
var known = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PodConditionType]():         {string(corev1.PodReady), string(corev1.PodResizePending), string(corev1.PodResizeInProgress), string(corev1.DisruptionTarget)},
	reflect.TypeFor[corev1.NodeConditionType]():        {string(corev1.NodeReady), string(corev1.NodeMemoryPressure)},
	reflect.TypeFor[appsv1.DeploymentConditionType]():  {string(appsv1.DeploymentProgressing)},
	reflect.TypeFor[corev1.LimitType]():                {string(corev1.LimitTypePod), string(corev1.LimitTypeContainer)},
	reflect.TypeFor[corev1.ContainerStateTerminated](): {"OOMKilled"}, // its reason
}

// maxHostileDepth ends types that refer to themselves.
const maxHostileDepth = 16

// fill fills a value. The entries of a list share what they refer to.
func (h hostile) fill(v reflect.Value, at int) {
	if at > maxHostileDepth {
		return
	}
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1234567")))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.Unix(1_700_000_000, 0)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(h.textFor(v.Type(), 0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		h.fill(v.Elem(), at+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				h.fill(v.Field(i), at+1)
			}
		}
		if texts := known[v.Type()]; texts != nil {
			v.FieldByName("Reason").SetString(texts[0])
		}
	case reflect.Slice:
		h.fillSlice(v, at)
	case reflect.Map:
		h.fillMap(v, at)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	}
}

func (h hostile) textFor(t reflect.Type, i int) string {
	if texts := known[t]; texts != nil {
		return texts[i%len(texts)]
	}
	return h.text
}

func (h hostile) fillSlice(v reflect.Value, at int) {
	entries := h.entries
	first := reflect.New(v.Type().Elem()).Elem()
	h.fill(first, at+1)
	v.Set(reflect.MakeSlice(v.Type(), entries, entries))
	for i := range entries {
		v.Index(i).Set(first)
		h.vary(v.Index(i), i)
	}
}

// vary gives the entry of a list a known text of its own.
func (h hostile) vary(entry reflect.Value, i int) {
	if entry.Kind() != reflect.Struct {
		return
	}
	for f := range entry.NumField() {
		if field := entry.Field(f); field.Kind() == reflect.String && known[field.Type()] != nil {
			field.SetString(h.textFor(field.Type(), i))
		}
	}
}

func (h hostile) fillMap(v reflect.Value, at int) {
	v.Set(reflect.MakeMap(v.Type()))
	value := reflect.New(v.Type().Elem()).Elem()
	h.fill(value, at+1)
	for i := range h.entries {
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString(fmt.Sprintf("vpa-%d-%s", i, h.text))
		v.SetMapIndex(key, value)
	}
	if v.Type() == reflect.TypeFor[corev1.ResourceList]() {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "nvidia.com/gpu"} {
			v.SetMapIndex(reflect.ValueOf(name), value)
		}
	}
}
