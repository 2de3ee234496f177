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

// longestProblem is how many bytes of what is wrong with an object are kept.
const longestProblem = 500

// wire is a policy, by a name that UnmarshalJSON does not hide.
type wire = SizingPolicy

// UnmarshalJSON reads a policy of the cluster. The schema lets quantities pass that
// cannot be read, or take minutes to read. One such policy must not spoil the list it
// is in: it keeps what could be read, and the annotation vpav1.UnreadableAnnotation says
// what is wrong with its spec. Nothing may be changed because of it. A status that cannot
// be read counts as none.
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

// Decode reads a policy of which every part can be read, else it returns an error. It
// must not be given outsized quantities.
func Decode(raw []byte, p *SizingPolicy) error {
	type SizingPolicy wire // without UnmarshalJSON; errors name the type
	*p = wire{}
	if err := json.Unmarshal(raw, (*SizingPolicy)(p)); err != nil {
		return err
	}
	mark(&p.ObjectMeta, "")
	return nil
}

// mark notes what is wrong with an object; empty: nothing is. A note of somebody else goes.
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

// read reads what can be read of a spec, and returns what is wrong with the rest; empty:
// nothing is.
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
	// A VPA knows how to read it.
	var vpa vpav1.VerticalPodAutoscaler
	if err := json.Unmarshal(fmt.Appendf(nil, `{"spec":{"resourcePolicy":%s}}`, limits), &vpa); err != nil {
		return "spec.resourcePolicy: " + err.Error()
	}
	s.ResourcePolicy = vpa.Spec.ResourcePolicy
	return vpa.Annotations[vpav1.UnreadableAnnotation]
}

// UnmarshalJSON reads a record of the cluster. One that cannot be read must not spoil the
// list it is in: it remembers nothing, and the annotation vpav1.UnreadableAnnotation says
// why.
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

// UnmarshalJSON reads amounts. It returns an error for those that cannot be read in
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
