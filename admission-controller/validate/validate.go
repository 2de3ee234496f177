// Package validate checks VerticalPodAutoscaler and SizingPolicy objects before they are stored,
// and sets the defaults of VPAs.
//
// It is never stricter about VPAs than the reference VPA, because other controllers write them.
// SizingPolicy objects have no defaults, and most of their checks are in package convert, because
// the recommender applies the same checks to policies that were never validated.
//
// Some values that the schema of the custom resource already rejects, such as unknown update modes
// of older clients, are checked again, because the message can name the valid values.
package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Config enables alpha features. Fields of others are rejected unless the old object uses them.
type Config struct {
	InPlace      bool // update mode InPlace
	PerVPAConfig bool // memory aggregation and OOM settings per VPA
	Boost        bool // CPU startup boosts
}

// Verdict is the result for one object.
type Verdict struct {
	Errors   field.ErrorList         // in field order, at most maxFindings, empty: valid
	Warnings []string                // at most maxFindings
	Patch    []client.PatchOperation // defaults, empty with errors
	// Object is the checked and Old the stored object, nil if there is none or it is not decoded.
	Object, Old *vpav1.VerticalPodAutoscaler
}

// Bounds of the findings about one object. Message, log line and each cause repeat the errors.
const (
	maxFindings = 20
	maxPolicies = 300  // containerPolicies of a checked object
	maxQuoted   = 100  // bytes of a quoted value
	maxDetail   = 1000 // bytes of an encoding/json error
)

// Check validates an object. Old is the raw stored object, nil or unreadable for none. An object
// that is being deleted is allowed if its spec is unchanged: its last update removes a finalizer.
func (c Config) Check(raw, old []byte) Verdict {
	if server.IsDeleted(raw) && server.HaveSameSpec(raw, old) {
		return Verdict{}
	}
	if err := server.CheckVPA(raw); err != nil {
		return Verdict{Errors: field.ErrorList{field.Forbidden(field.NewPath("."), err.Error())}}
	}
	var object vpav1.VerticalPodAutoscaler
	if err := vpav1.Decode(raw, &object); err != nil {
		return Verdict{Errors: field.ErrorList{decodeError(raw, err)}}
	}
	ch, verdict := checker{config: c}, Verdict{Object: &object}
	var stored vpav1.VerticalPodAutoscaler
	if len(old) > 0 && server.CheckVPA(old) == nil && vpav1.Decode(old, &stored) == nil {
		ch.oldFeatures, verdict.Old = featuresOf(&stored.Spec), &stored
	}
	ch.recipe(object.Annotations[recipe.Annotation], stored.Annotations[recipe.Annotation])
	ch.target(object.Spec.TargetRef, stored.Spec.TargetRef)
	ch.spec(&object.Spec)
	ch.size(&object.Spec, &stored.Spec)
	verdict.Errors, verdict.Warnings = ch.errors, ch.warnings
	if len(ch.errors) == 0 && object.Spec.UpdatePolicy == nil {
		recreate := vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeRecreate)}
		verdict.Patch = append(verdict.Patch, client.PatchAdd("/spec/updatePolicy", recreate))
	}
	return verdict
}

func shorten(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "") + "..."
}

// features holds the fields of an object that need a feature gate or are rejected in new objects.
type features struct {
	inPlace, perVPA, boost bool
	controlled             map[string]bool // resources in any controlledResources
}

func featuresOf(spec *vpav1.VerticalPodAutoscalerSpec) features {
	f := features{boost: spec.StartupBoost != nil, controlled: map[string]bool{}}
	if p := spec.UpdatePolicy; p != nil {
		f.inPlace = p.UpdateMode != nil && *p.UpdateMode == vpav1.UpdateModeInPlace
		f.perVPA = p.EvictAfterOOMSeconds != nil
	}
	if spec.ResourcePolicy == nil {
		return f
	}
	for _, c := range spec.ResourcePolicy.ContainerPolicies {
		f.boost = f.boost || c.StartupBoost != nil
		f.perVPA = f.perVPA || c.OOMBumpUpRatio != nil || c.OOMMinBumpUp != nil ||
			c.MemoryAggregationIntervalSeconds != nil || c.MemoryAggregationIntervalCount != nil
		if c.ControlledResources != nil {
			for _, name := range *c.ControlledResources {
				f.controlled[string(name)] = true
			}
		}
	}
	return f
}

type checker struct {
	config      Config
	oldFeatures features
	errors      field.ErrorList
	warnings    []string
}

func (ch *checker) refuse(e *field.Error) {
	if ch.full() {
		return
	}
	if text, ok := e.BadValue.(string); ok {
		e.BadValue = shorten(text, maxQuoted)
	}
	ch.errors = append(ch.errors, e)
}

func (ch *checker) full() bool { return len(ch.errors) >= maxFindings }

func (ch *checker) warn(format string, args ...any) {
	if len(ch.warnings) < maxFindings {
		ch.warnings = append(ch.warnings, fmt.Sprintf(format, args...))
	}
}

// recipe rejects an invalid recipe. An already stored one does not block other changes.
func (ch *checker) recipe(text, stored string) {
	problem := recipe.Problem(text)
	at := field.NewPath("metadata", "annotations").Key(recipe.Annotation)
	switch {
	case problem == "":
	case text == stored:
		ch.warn("%s: %s; the recommender's default recipe applies until you correct it", at, problem)
	default:
		ch.refuse(field.Invalid(at, text, problem))
	}
}

// target rejects an impossible target. An already stored one does not block other changes.
func (ch *checker) target(ref, stored *autoscalingv1.CrossVersionObjectReference) {
	if ref == nil {
		return
	}
	at, problem := field.NewPath("spec", "targetRef"), target.CheckRef(ref)
	switch {
	case problem == nil:
	case stored != nil && *stored == *ref:
		ch.warn("%s: %s. No pod is changed until you correct it", at, problem)
	default:
		ch.refuse(field.Invalid(at, ref.Kind+" "+ref.Name, problem.Error()))
	}
}

// size rejects a spec too large for the caches. An already stored one does not block changes.
func (ch *checker) size(spec, stored *vpav1.VerticalPodAutoscalerSpec) {
	problem := client.SpecTooLarge(spec)
	switch {
	case problem == "":
	case client.SpecTooLarge(stored) != "":
		ch.warn("%s. No pod is changed until you correct it", problem)
	case len(ch.errors) == 0:
		ch.refuse(field.Forbidden(field.NewPath("spec"), problem))
	}
}

func (ch *checker) spec(spec *vpav1.VerticalPodAutoscalerSpec) {
	root := field.NewPath("spec")
	if spec.UpdatePolicy != nil {
		ch.updatePolicy(spec.UpdatePolicy, root.Child("updatePolicy"))
	}
	if spec.ResourcePolicy != nil {
		ch.containerPolicies(spec.ResourcePolicy.ContainerPolicies, root.Child("resourcePolicy", "containerPolicies"))
	}
	ch.startupBoost(spec.StartupBoost, root.Child("startupBoost"))
	if n := len(spec.Recommenders); n > 1 {
		ch.refuse(field.TooMany(root.Child("recommenders"), n, 1))
	}
}

func (ch *checker) updatePolicy(p *vpav1.PodUpdatePolicy, at *field.Path) {
	mode := at.Child("updateMode")
	switch {
	case p.UpdateMode == nil:
		ch.refuse(field.Required(mode, "an updatePolicy must name its mode, for example Recreate; leave out updatePolicy to get the default"))
	case *p.UpdateMode == vpav1.UpdateModeInPlace && !ch.config.InPlace && !ch.oldFeatures.inPlace:
		ch.refuse(field.Forbidden(mode, gateOff("InPlace")+", or use InPlaceOrRecreate"))
	case *p.UpdateMode == vpav1.UpdateModeAuto:
		ch.warn(`spec.updatePolicy.updateMode: "Auto" is deprecated and acts as "Recreate": write "Recreate", or "InPlaceOrRecreate" to resize without a restart`)
	default:
		oneOf(ch, mode, *p.UpdateMode, vpav1.UpdateModeOff, vpav1.UpdateModeInitial, vpav1.UpdateModeRecreate,
			vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace, vpav1.UpdateModeAuto)
	}
	if p.MinReplicas != nil && *p.MinReplicas <= 0 {
		ch.refuse(field.Invalid(at.Child("minReplicas"), *p.MinReplicas, "must be at least 1"))
	}
	if s := p.EvictAfterOOMSeconds; s != nil {
		ch.perVPA(at.Child("evictAfterOOMSeconds"), int64(*s))
	}
}

func gateOff(gate string) string {
	return "needs the alpha feature " + gate + ": start the VPA components with --feature-gates=" + gate + "=true"
}

func (ch *checker) perVPA(at *field.Path, value int64) {
	switch {
	case !ch.allowsPerVPA():
		ch.refuse(field.Forbidden(at, gateOff("PerVPAConfig")))
	case value < 1:
		ch.refuse(field.Invalid(at, value, "must be at least 1"))
	}
}

func (ch *checker) allowsPerVPA() bool { return ch.config.PerVPAConfig || ch.oldFeatures.perVPA }

func (ch *checker) startupBoost(b *vpav1.StartupBoost, at *field.Path) {
	if b == nil {
		return
	}
	if !ch.config.Boost && !ch.oldFeatures.boost {
		ch.refuse(field.Forbidden(at, gateOff("CPUStartupBoost")))
		return
	}
	if b.CPU == nil {
		return
	}
	at = at.Child("cpu")
	switch b.CPU.Type {
	case "":
		ch.refuse(field.Required(at.Child("type"), "must be Factor or Quantity"))
	case vpav1.StartupBoostTypeFactor:
		if b.CPU.Factor == nil {
			ch.refuse(field.Required(at.Child("factor"), "a boost of type Factor needs a factor, for example 2"))
		} else if *b.CPU.Factor < 1 {
			ch.refuse(field.Invalid(at.Child("factor"), *b.CPU.Factor, "must be at least 1"))
		}
	case vpav1.StartupBoostTypeQuantity:
		if b.CPU.Quantity == nil {
			ch.refuse(field.Required(at.Child("quantity"), "a boost of type Quantity needs a quantity, for example 500m"))
		} else {
			ch.wholeCPU(at.Child("quantity"), *b.CPU.Quantity)
		}
	default:
		oneOf(ch, at.Child("type"), b.CPU.Type, vpav1.StartupBoostTypeFactor, vpav1.StartupBoostTypeQuantity)
	}
}

// Status returns the answer: 422 with one cause for each error, nil without errors.
func (v Verdict) Status(name string) *metav1.Status {
	return invalid(schema.GroupKind{Group: vpav1.SchemeGroupVersion.Group, Kind: "VerticalPodAutoscaler"}, name, v.Errors)
}

func invalid(kind schema.GroupKind, name string, errs field.ErrorList) *metav1.Status {
	if len(errs) == 0 {
		return nil
	}
	return new(apierrors.NewInvalid(kind, name, errs).Status())
}

// decodeError converts a decoding error, and names the field if its value has the wrong type.
func decodeError(raw []byte, err error) *field.Error {
	internal := field.InternalError(field.NewPath("."), errors.New(shorten(err.Error(), maxDetail)))
	var wrong *json.UnmarshalTypeError
	var object any
	if !errors.As(err, &wrong) || wrong.Field == "" || json.Unmarshal(raw, &object) != nil {
		return internal
	}
	names := strings.Split(wrong.Field, ".")
	at, value, found := locate(object, names, nil, wrong.Type)
	if !found {
		return internal
	}
	return field.TypeInvalid(at, printableValue(value), expectedType(wrong.Type, names[len(names)-1], value))
}

// locate finds the first value at or below a path with the wrong type. Names have no list indexes.
func locate(within any, names []string, at *field.Path, want reflect.Type) (path *field.Path, value any, found bool) {
	if list, ok := within.([]any); ok && (len(names) > 0 || want.Kind() != reflect.Slice) {
		for i, element := range list {
			if path, value, found = locate(element, names, at.Index(i), want); found {
				return path, value, true
			}
		}
		return nil, nil, false
	}
	if len(names) == 0 {
		return at, within, !decodes(within, want)
	}
	members, ok := within.(map[string]any)
	if !ok {
		return nil, nil, false
	}
	for name, member := range members {
		if strings.EqualFold(name, names[0]) { // as encoding/json compares names
			return locate(member, names[1:], at.Child(name), want)
		}
	}
	return nil, nil, false
}

func decodes(value any, as reflect.Type) bool {
	raw, err := json.Marshal(value)
	return err == nil && json.Unmarshal(raw, reflect.New(as).Interface()) == nil
}

func printableValue(value any) any {
	switch value := value.(type) {
	case string:
		return shorten(value, maxQuoted)
	case bool, float64:
		return value
	}
	return "a value of another type"
}

// expectedType describes the valid values of a field. YAML reads some words without quotation marks
// as true and false.
func expectedType(want reflect.Type, name string, value any) string {
	switch want.Kind() {
	case reflect.String:
		truth, ok := value.(bool)
		switch {
		case ok && !truth && (name == "updateMode" || name == "mode"):
			return `must be a string. Write "Off" in quotation marks: YAML reads Off as false.`
		case ok && !truth:
			return "must be a string. Write it in quotation marks: YAML reads Off, No and False as false."
		case ok:
			return "must be a string. Write it in quotation marks: YAML reads On, Yes and True as true."
		}
		return "must be a string in quotation marks"
	case reflect.Bool:
		return "must be true or false, without quotation marks"
	case reflect.Slice:
		return "must be a list"
	case reflect.Struct, reflect.Map:
		return "must be an object with fields"
	}
	return "must be a whole number, without quotation marks"
}
