package v1

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnreadableAnnotation says, on a VPA as the programs hold it, why its spec and status
// were not read. No VPA in the cluster has it.
const UnreadableAnnotation = "loadline.dev/unreadable"

const (
	longestQuantity = 64 // bytes, as it is written
	mostExponent    = 2  // digits: of 1E18 those of 18
)

// wire is a VPA, by a name that UnmarshalJSON does not hide.
type wire = VerticalPodAutoscaler

// UnmarshalJSON reads a VPA. The schema lets quantities such as 1e-2147483647 pass. The
// library of Kubernetes takes minutes to read one, so whoever may write one VPA could
// stop every program that lists it. Such a VPA is read without spec and status: nothing
// is done for it, and UnreadableAnnotation says why.
func (v *VerticalPodAutoscaler) UnmarshalJSON(raw []byte) error {
	type VerticalPodAutoscaler wire // without this method; errors name the type
	if suspicious(raw) {
		var whole map[string]any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&whole); err != nil {
			return err
		}
		if problem := cmp.Or(outsized("spec", whole["spec"], false), outsized("status", whole["status"], false)); problem != "" {
			var identity metav1.PartialObjectMetadata
			if err := json.Unmarshal(raw, &identity); err != nil {
				return err
			}
			*v = wire{TypeMeta: identity.TypeMeta, ObjectMeta: identity.ObjectMeta}
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, UnreadableAnnotation, problem)
			return nil
		}
	}
	return json.Unmarshal(raw, (*VerticalPodAutoscaler)(v))
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

// outsized returns what is wrong with the first quantity at or below a path that cannot
// be computed with; empty: nothing. Within says that the value is part of a quantity.
func outsized(path string, value any, within bool) string {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if problem := outsized(path+"."+name, value[name], within || quantities[name]); problem != "" {
				return problem
			}
		}
	case []any:
		for i, element := range value {
			if problem := outsized(fmt.Sprintf("%s[%d]", path, i), element, within); problem != "" {
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
