package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// longestProblem is the maximum length of a stored decoding problem in bytes.
const longestProblem = 500

// wire is SizingPolicy without UnmarshalJSON.
type wire = SizingPolicy

// UnmarshalJSON decodes a policy. The schema accepts quantities that are invalid or take minutes to
// parse. One such policy must not fail the whole list: it keeps its valid parts, and the annotation
// vpav1.UnreadableAnnotation describes the problem of its spec. Nothing may be changed because of
// such a policy. An unreadable status counts as empty.
func (p *SizingPolicy) UnmarshalJSON(raw []byte) error {
	var identity metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &identity); err != nil {
		return err
	}
	var parts struct {
		Spec   json.RawMessage `json:"spec"`
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	*p = wire{TypeMeta: identity.TypeMeta, ObjectMeta: identity.ObjectMeta}
	mark(&p.ObjectMeta, p.Spec.read(parts.Spec))
	if len(parts.Status) > 0 && json.Unmarshal(parts.Status, &p.Status) != nil {
		p.Status = SizingPolicyStatus{}
	}
	return nil
}

// Decode decodes a policy, or returns an error if any part is unreadable. The caller must reject
// outsized quantities first.
func Decode(raw []byte, p *SizingPolicy) error {
	type SizingPolicy wire // without UnmarshalJSON, named for error messages
	*p = wire{}
	if err := json.Unmarshal(raw, (*SizingPolicy)(p)); err != nil {
		return err
	}
	mark(&p.ObjectMeta, "")
	return nil
}

// mark records a decoding problem in an annotation, and removes an existing annotation. An empty
// problem means none.
func mark(object *metav1.ObjectMeta, problem string) {
	delete(object.Annotations, vpav1.UnreadableAnnotation)
	if problem == "" {
		return
	}
	if len(problem) > longestProblem {
		problem = strings.ToValidUTF8(problem[:longestProblem], "") + "..."
	}
	metav1.SetMetaDataAnnotation(object, vpav1.UnreadableAnnotation, problem)
}

// read decodes the valid parts of a spec and returns the problem of the rest, empty if none.
func (s *SizingPolicySpec) read(raw json.RawMessage) (problem string) {
	if len(raw) == 0 {
		return ""
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return "spec: " + err.Error()
	}
	limits := fields["resourcePolicy"]
	delete(fields, "resourcePolicy")
	rest, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(rest, s)
	}
	if err != nil {
		*s = SizingPolicySpec{}
		return "spec: " + err.Error()
	}
	if len(limits) == 0 {
		return ""
	}
	// The VPA type decodes a resource policy with its problems.
	var vpa vpav1.VerticalPodAutoscaler
	if err := json.Unmarshal(fmt.Appendf(nil, `{"spec":{"resourcePolicy":%s}}`, limits), &vpa); err != nil {
		return "spec.resourcePolicy: " + err.Error()
	}
	s.ResourcePolicy = vpa.Spec.ResourcePolicy
	return vpa.Annotations[vpav1.UnreadableAnnotation]
}

// UnmarshalJSON decodes a record. An unreadable record must not fail the whole list: it becomes
// empty, and the annotation vpav1.UnreadableAnnotation has the cause.
func (r *SizingRecord) UnmarshalJSON(raw []byte) error {
	type plain SizingRecord
	*r = SizingRecord{}
	problem := json.Unmarshal(raw, (*plain)(r))
	if problem == nil {
		mark(&r.ObjectMeta, "")
		return nil
	}
	var identity metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &identity); err != nil {
		return err
	}
	*r = SizingRecord{TypeMeta: identity.TypeMeta, ObjectMeta: identity.ObjectMeta}
	mark(&r.ObjectMeta, "status: "+problem.Error())
	return nil
}

// UnmarshalJSON decodes quantities. It returns an error for quantities that cannot be parsed in
// reasonable time.
func (s *Sizes) UnmarshalJSON(raw []byte) error {
	var texts map[corev1.ResourceName]json.RawMessage
	if err := json.Unmarshal(raw, &texts); err != nil {
		return err
	}
	*s = nil
	if texts == nil {
		return nil
	}
	*s = make(Sizes, len(texts))
	for name, text := range texts {
		if err := vpav1.CheckQuantity(string(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var q resource.Quantity
		if err := json.Unmarshal(text, &q); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		(*s)[name] = q
	}
	return nil
}
