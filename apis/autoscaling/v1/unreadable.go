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

// UnreadableAnnotation says, on a VPA as the programs hold it, which part of its spec
// could not be read. No VPA in the cluster has it. Such a VPA keeps what could be read,
// so that it has its target, its pods and its recommender, but nothing is done for it.
const UnreadableAnnotation = "loadline.dev/unreadable"

const (
	longestQuantity = 64 // bytes, as it is written
	mostExponent    = 2  // digits: of 1E18 those of 18
	longestProblem  = 500
)

// wire is a VPA, by a name that UnmarshalJSON does not hide.
type wire = VerticalPodAutoscaler

// UnmarshalJSON reads a VPA of the cluster. The schema lets values pass that cannot be
// read: quantities such as 1e.5, and such as 1e-2147483647, for which the library of
// Kubernetes takes minutes. Whoever may write one VPA could stop every program that lists
// it. So the parts that can be read are, and UnreadableAnnotation says what is wrong with
// the spec. A status that cannot be read counts as none: the recommender writes it anew.
func (v *VerticalPodAutoscaler) UnmarshalJSON(raw []byte) error {
	if !suspicious(raw) && Decode(raw, v) == nil {
		delete(v.Annotations, UnreadableAnnotation) // that of somebody else
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

// Decode reads a VPA of which every part can be read, else it returns an error. It must
// not be given outsized quantities.
func Decode(raw []byte, v *VerticalPodAutoscaler) error {
	type VerticalPodAutoscaler wire // without UnmarshalJSON; errors name the type
	*v = wire{}
	return json.Unmarshal(raw, (*VerticalPodAutoscaler)(v))
}

// salvage reads what can be read of a spec and returns the first problem, or nothing. What
// must not be guessed gets the value with which nothing is done.
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

// part reads one part of a VPA and returns why it cannot be read, or nothing.
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

// suspicious reports whether a text may hold an outsized quantity. It is quick, and
// takes some other texts, such as names like 7e1234, for one.
func suspicious(raw []byte) bool {
	digits, exponent := 0, false // of the number that ends here
	for i, b := range raw {
		switch {
		case '0' <= b && b <= '9' || b == '.':
			if digits++; exponent && digits > mostExponent || digits > longestQuantity/2 {
				return true
			}
		case (b == 'e' || b == 'E') && digits > 0:
			digits, exponent = 0, true
		case (b == '+' || b == '-') && exponent && digits == 0:
		case b == '\\' && i+1 < len(raw) && raw[i+1] == 'u': // any character, escaped
			return true
		default:
			digits, exponent = 0, false
		}
	}
	return false
}

// quantities are the fields of a VPA whose value is a quantity or a list of resources.
var quantities = map[string]bool{
	"minAllowed": true, "maxAllowed": true, "oomBumpUpRatio": true, "oomMinBumpUp": true, "quantity": true,
	"target": true, "lowerBound": true, "upperBound": true, "uncappedTarget": true,
}

// unreadable returns what is wrong with the first quantity at or below a path that cannot
// be read; empty: nothing. Within says that the value is part of a quantity.
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

// unsound returns what is wrong with the quantity at a path; empty: it can be read.
func unsound(path, quantity string) string {
	if err := CheckQuantity(quantity); err != nil {
		return path + ": " + err.Error()
	}
	if _, err := resource.ParseQuantity(quantity); err != nil {
		return fmt.Sprintf("%s: %q is no quantity: write it with a unit, such as 250m or 1Gi", path, quantity)
	}
	return ""
}

// CheckQuantity returns an error if the library of Kubernetes would need minutes, or
// gigabytes, to read a quantity. It must be asked before it reads what anybody may have
// written and no API server has read: annotations, events and custom resources.
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
