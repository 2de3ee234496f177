package client

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

// filledObjects yields objects with all fields filled: with 10,000 short entries, with few entries
// of long strings, and with strings of the maximum length of names. Metadata that the API server
// validates is ordinary.
func filledObjects(of any) iter.Seq2[string, any] {
	shapes := []filler{
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

type filler struct {
	name    string
	entries int // number of entries of each list and map
	text    string
}

// keptTexts are values for which the trimmer keeps list entries or more of their fields.
var keptTexts = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PodConditionType](): {
		string(corev1.PodReady), string(corev1.PodResizePending), string(corev1.PodResizeInProgress), string(corev1.DisruptionTarget),
	},
	reflect.TypeFor[corev1.NodeConditionType]():        {string(corev1.NodeReady), string(corev1.NodeMemoryPressure)},
	reflect.TypeFor[appsv1.DeploymentConditionType]():  {string(appsv1.DeploymentProgressing)},
	reflect.TypeFor[corev1.LimitType]():                {string(corev1.LimitTypePod), string(corev1.LimitTypeContainer)},
	reflect.TypeFor[corev1.ContainerStateTerminated](): {"OOMKilled"}, // value of its Reason
}

// maxFillDepth bounds the depth of recursive types.
const maxFillDepth = 16

// fill fills a value recursively. The entries of a list share pointers.
func (f filler) fill(v reflect.Value, at int) {
	if at > maxFillDepth {
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
		v.SetString(f.textFor(v.Type(), 0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), at+1)
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				f.fill(field, at+1)
			}
		}
		if texts := keptTexts[v.Type()]; texts != nil {
			v.FieldByName("Reason").SetString(texts[0])
		}
	case reflect.Slice:
		f.fillSlice(v, at)
	case reflect.Map:
		f.fillMap(v, at)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	}
}

func (f filler) textFor(t reflect.Type, i int) string {
	if texts := keptTexts[t]; texts != nil {
		return texts[i%len(texts)]
	}
	return f.text
}

func (f filler) fillSlice(v reflect.Value, at int) {
	entries := f.entries
	first := reflect.New(v.Type().Elem()).Elem()
	f.fill(first, at+1)
	v.Set(reflect.MakeSlice(v.Type(), entries, entries))
	for i := range entries {
		v.Index(i).Set(first)
		f.vary(v.Index(i), i)
	}
}

// vary sets the fields of a list entry that have a type in keptTexts.
func (f filler) vary(entry reflect.Value, i int) {
	if entry.Kind() != reflect.Struct {
		return
	}
	for _, field := range entry.Fields() {
		if field.Kind() == reflect.String && keptTexts[field.Type()] != nil {
			field.SetString(f.textFor(field.Type(), i))
		}
	}
}

func (f filler) fillMap(v reflect.Value, at int) {
	v.Set(reflect.MakeMap(v.Type()))
	value := reflect.New(v.Type().Elem()).Elem()
	f.fill(value, at+1)
	for i := range f.entries {
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString(fmt.Sprintf("vpa-%d-%s", i, f.text))
		v.SetMapIndex(key, value)
	}
	if v.Type() == reflect.TypeFor[corev1.ResourceList]() {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "nvidia.com/gpu"} {
			v.SetMapIndex(reflect.ValueOf(name), value)
		}
	}
}
