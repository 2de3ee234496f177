package v1

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnreadableAnnotation contains the decoding error of a VPA's spec. It exists only in memory and
// never in the cluster. Such a VPA keeps the readable parts, including target, pods and
// recommender, but no pods are changed for it.
const UnreadableAnnotation = "loadline.dev/unreadable"

const (
	longestQuantity = 64 // bytes of the text
	mostExponent    = 2  // digits of the exponent, such as 18 in 1E18
	longestProblem  = 500
)

// wire is a VPA. The alias is usable where UnmarshalJSON shadows the name of the type.
type wire = VerticalPodAutoscaler

// UnmarshalJSON decodes a VPA of the cluster. The schema accepts some invalid quantities, such as
// 1e.5, and some for which the Kubernetes library takes minutes, such as 1e-2147483647. Without
// protection any user with write access to one VPA could stop every program that lists it.
// Therefore the readable parts are decoded, and UnreadableAnnotation contains the problem of the
// spec. An unreadable status is dropped, because the recommender writes it again.
func (v *VerticalPodAutoscaler) UnmarshalJSON(raw []byte) error {
	if !suspicious(raw) && Decode(raw, v) == nil {
		delete(v.Annotations, UnreadableAnnotation) // set by a user
		return nil
	}
	var parts struct {
		Spec   json.RawMessage `json:"spec"`
		Status json.RawMessage `json:"status"`
	}
	var identity metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &identity); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	*v = wire{TypeMeta: identity.TypeMeta, ObjectMeta: identity.ObjectMeta}
	delete(v.Annotations, UnreadableAnnotation)
	if problem := v.Spec.salvage(parts.Spec); problem != "" {
		if len(problem) > longestProblem {
			problem = strings.ToValidUTF8(problem[:longestProblem], "") + "..."
		}
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, UnreadableAnnotation, problem)
	}
	if part("status", parts.Status, &v.Status) != "" {
		v.Status = VerticalPodAutoscalerStatus{}
	}
	return nil
}

// Decode decodes a VPA strictly: it returns an error if any part cannot be decoded. The input must
// not contain outsized quantities.
func Decode(raw []byte, v *VerticalPodAutoscaler) error {
	type VerticalPodAutoscaler wire // without UnmarshalJSON, but with the type name in errors
	*v = wire{}
	return json.Unmarshal(raw, (*VerticalPodAutoscaler)(v))
}

// salvage decodes the readable parts of a spec and returns the first problem, empty if there is
// none. An unreadable part is replaced by a value with which no pods are changed.
func (s *VerticalPodAutoscalerSpec) salvage(raw json.RawMessage) (problem string) {
	var fields map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &fields); err != nil {
			problem = "spec: " + err.Error()
		}
	}
	read := func(name string, into any) (fine bool) {
		wrong := part("spec."+name, fields[name], into)
		problem = cmp.Or(problem, wrong)
		return wrong == ""
	}
	if !read("targetRef", &s.TargetRef) {
		s.TargetRef = nil
	}
	if !read("updatePolicy", &s.UpdatePolicy) {
		off := UpdateModeOff
		s.UpdatePolicy = &PodUpdatePolicy{UpdateMode: &off}
	}
	if !read("resourcePolicy", &s.ResourcePolicy) {
		s.ResourcePolicy = nil
	}
	if !read("recommenders", &s.Recommenders) {
		s.Recommenders = []*VerticalPodAutoscalerRecommenderSelector{{}} // no recommender has an empty name
	}
	if !read("startupBoost", &s.StartupBoost) {
		s.StartupBoost = nil
	}
	return problem
}

// part decodes one part of a VPA and returns the problem, empty if there is none.
func part(path string, raw json.RawMessage, into any) string {
	if len(raw) == 0 {
		return ""
	}
	var whole any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&whole); err != nil {
		return path + ": " + err.Error()
	}
	if problem := unreadable(path, whole, false); problem != "" {
		return problem
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return path + ": " + err.Error()
	}
	return ""
}

// suspicious reports whether a text may contain an outsized quantity. It is a fast check with false
// positives, such as names like 7e1234.
func suspicious(raw []byte) bool {
	digits, exponent := 0, false // of the current number
	for i, b := range raw {
		switch {
		case '0' <= b && b <= '9' || b == '.':
			if digits++; exponent && digits > mostExponent || digits > longestQuantity/2 {
				return true
			}
		case (b == 'e' || b == 'E') && digits > 0:
			digits, exponent = 0, true
		case (b == '+' || b == '-') && exponent && digits == 0:
		case b == '\\' && i+1 < len(raw) && raw[i+1] == 'u': // an escape of any character
			return true
		default:
			digits, exponent = 0, false
		}
	}
	return false
}

// quantities are the fields of a VPA with a quantity or a resource list.
var quantities = map[string]bool{
	"minAllowed": true, "maxAllowed": true, "oomBumpUpRatio": true, "oomMinBumpUp": true, "quantity": true,
	"target": true, "lowerBound": true, "upperBound": true, "uncappedTarget": true,
}

// unreadable returns the problem of the first invalid quantity at or below a path, empty if there
// is none. The parameter within means that the value is part of a quantity.
func unreadable(path string, value any, within bool) string {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if problem := unreadable(path+"."+name, value[name], within || quantities[name]); problem != "" {
				return problem
			}
		}
	case []any:
		for i, element := range value {
			if problem := unreadable(fmt.Sprintf("%s[%d]", path, i), element, within); problem != "" {
				return problem
			}
		}
	case string:
		if within {
			return unsound(path, value)
		}
	case json.Number:
		if within {
			return unsound(path, value.String())
		}
	}
	return ""
}

// unsound returns the problem of the quantity at a path, empty if there is none.
func unsound(path, quantity string) string {
	if err := CheckQuantity(quantity); err != nil {
		return path + ": " + err.Error()
	}
	if _, err := resource.ParseQuantity(quantity); err != nil {
		return fmt.Sprintf("%s: %q is not a quantity: use a unit, such as 250m or 1Gi", path, quantity)
	}
	return ""
}

// CheckQuantity returns an error for a quantity that the Kubernetes library would need minutes or
// gigabytes to parse. Call it before parsing user input that no API server has validated, such as
// annotations, events and custom resources.
func CheckQuantity[T string | []byte](text T) error {
	if len(text) > longestQuantity {
		return fmt.Errorf("quantity %q... is longer than %d bytes", text[:longestQuantity], longestQuantity)
	}
	digits, exponent := 0, false
	for i := range len(text) {
		switch b := text[i]; {
		case b == 'e' || b == 'E':
			digits, exponent = 0, true
		case exponent && '0' <= b && b <= '9':
			digits++
		}
	}
	if digits > mostExponent {
		return fmt.Errorf("quantity %q has an exponent of more than %d digits: write it with a unit, such as 250m or 1Gi", text, mostExponent)
	}
	return nil
}
