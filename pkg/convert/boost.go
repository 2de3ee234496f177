package convert

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
)

// original is the value of a boost annotation. Both lists are always there.
type original struct {
	Requests noted `json:"requests"`
	Limits   noted `json:"limits"`
}

// noted are resources that stand in an annotation, which anybody may have written.
type noted corev1.ResourceList

// UnmarshalJSON reads quantities after it has checked that they can be read at all.
func (n *noted) UnmarshalJSON(raw []byte) error {
	var texts map[corev1.ResourceName]json.RawMessage
	if err := json.Unmarshal(raw, &texts); err != nil {
		return err
	}
	if texts == nil {
		return nil
	}
	*n = make(noted, len(texts))
	for name, text := range texts {
		if err := vpav1.CheckQuantity(string(text)); err != nil {
			return err
		}
		var q resource.Quantity
		if err := json.Unmarshal(text, &q); err != nil {
			return err
		}
		(*n)[name] = q
	}
	return nil
}

// BoostAnnotation prints the annotation that marks a boosted container and
// keeps its original CPU and memory.
func BoostAnnotation(c corev1.Container) (key, value string) {
	text, _ := json.Marshal(original{sized(c.Resources.Requests), sized(c.Resources.Limits)}) // quantities never fail
	return BoostAnnotationPrefix + c.Name, string(text)
}

// sized returns the CPU and memory of a list; it is never nil.
func sized(list corev1.ResourceList) noted {
	kept := noted{}
	for k := range resources.Kind(resources.Kinds) {
		if q, ok := list[ResourceName(k)]; ok {
			kept[ResourceName(k)] = q
		}
	}
	return kept
}

// Boosted returns the containers of a pod that carry a boost annotation with
// their original resources. An annotation that cannot be read gives an error
// and empty resources, so that the container still counts as boosted.
func Boosted(pod *corev1.Pod) (map[string]corev1.ResourceRequirements, error) {
	var boosted map[string]corev1.ResourceRequirements
	var broken error
	for key, value := range pod.Annotations {
		name, ok := strings.CutPrefix(key, BoostAnnotationPrefix)
		if !ok {
			continue
		}
		var o original
		if err := json.Unmarshal([]byte(value), &o); err != nil {
			broken = fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, key, err)
			o = original{}
		}
		if boosted == nil {
			boosted = map[string]corev1.ResourceRequirements{}
		}
		boosted[name] = corev1.ResourceRequirements{Requests: corev1.ResourceList(o.Requests), Limits: corev1.ResourceList(o.Limits)}
	}
	return boosted, broken
}

// HasBoosted tells whether a container of the pod carries a boost annotation.
func HasBoosted(pod *corev1.Pod) bool {
	for key := range pod.Annotations {
		if strings.HasPrefix(key, BoostAnnotationPrefix) {
			return true
		}
	}
	return false
}
