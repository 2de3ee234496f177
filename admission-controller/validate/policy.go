package validate

import (
	"bytes"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"loadline.dev/loadline/admission-controller/server"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// PolicyVerdict is the result for one SizingPolicy.
type PolicyVerdict struct {
	Errors   field.ErrorList // at most maxFindings, empty: valid
	Warnings []string        // at most maxFindings
}

// CheckPolicy validates a SizingPolicy. Old is the raw stored object of an update, else nil. Errors
// of an unchanged spec become warnings: they must not block new labels or a deletion.
func (c Config) CheckPolicy(raw, old []byte) PolicyVerdict {
	verdict := c.checkPolicy(raw, old)
	if len(verdict.Errors) == 0 || !server.HaveSameSpec(raw, old) {
		return verdict
	}
	for _, e := range verdict.Errors {
		verdict.Warnings = append(verdict.Warnings, e.Error()+"; it is stored already, so this change is not refused")
	}
	return PolicyVerdict{Warnings: verdict.Warnings[:min(len(verdict.Warnings), maxFindings)]}
}

func (c Config) checkPolicy(raw, old []byte) PolicyVerdict {
	if err := server.CheckPolicy(raw); err != nil {
		return PolicyVerdict{Errors: field.ErrorList{field.Forbidden(field.NewPath("."), err.Error())}}
	}
	ch := checker{config: c}
	var object, stored loadlinev1alpha1.SizingPolicy
	if err := loadlinev1alpha1.Decode(raw, &object); err != nil {
		repaired, problems := repairScalars(raw)
		if len(problems) == 0 || loadlinev1alpha1.Decode(repaired, &object) != nil {
			return PolicyVerdict{Errors: append(problems, decodeError(raw, err))}
		}
		for _, e := range problems {
			ch.refuse(e)
		}
	}
	if len(old) > 0 && server.CheckPolicy(old) == nil && loadlinev1alpha1.Decode(old, &stored) == nil {
		ch.oldFeatures = featuresOf(&vpav1.VerticalPodAutoscalerSpec{ResourcePolicy: stored.Spec.ResourcePolicy})
	}
	problems, warnings := convert.CheckPolicy(&object)
	for _, e := range problems {
		ch.refuse(e)
	}
	ch.warnings = warnings
	if p := object.Spec.ResourcePolicy; p != nil {
		ch.containerPolicies(p.ContainerPolicies, field.NewPath("spec", "resourcePolicy", "containerPolicies"))
	}
	return PolicyVerdict{Errors: ch.errors, Warnings: ch.warnings}
}

// repairScalars removes invalid durations and fractions, for which encoding/json names no field.
func repairScalars(raw []byte) ([]byte, field.ErrorList) {
	var problems field.ErrorList
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if decoder.Decode(&object) != nil {
		return nil, nil
	}
	for _, one := range []struct {
		path []string
		want string
		fine func(string) bool
	}{
		{[]string{"spec", "rollout", "canary", "observationPeriod"}, "must be a duration, for example 5m or 1h30m", isDuration},
		{[]string{"spec", "rollout", "cooldown"}, "must be a duration, for example 5m or 1h30m", isDuration},
		{[]string{"spec", "rollout", "minHistory"}, "must be a duration, for example 1h or 24h", isDuration},
		{[]string{"spec", "safety", "observationPeriod"}, "must be a duration, for example 5m or 1h30m", isDuration},
		{[]string{"spec", "safety", "throttle"}, `must be a decimal from 0 to 1 in quotes, for example "0.5"`, isText},
		{[]string{"spec", "safety", "pressure"}, `must be a decimal from 0 to 1 in quotes, for example "0.5"`, isText},
	} {
		within, last := object, len(one.path)-1
		for _, name := range one.path[:last] {
			within, _ = within[name].(map[string]any)
		}
		value := within[one.path[last]]
		if text, ok := value.(string); value == nil || ok && one.fine(text) {
			continue
		}
		delete(within, one.path[last])
		problems = append(problems, field.Invalid(field.NewPath(one.path[0], one.path[1:]...), quoted(value), one.want))
	}
	var repaired bytes.Buffer
	encoder := json.NewEncoder(&repaired)
	encoder.SetEscapeHTML(false) // escaping would make "<" six times as large
	if encoder.Encode(object) != nil {
		return nil, nil
	}
	return repaired.Bytes(), problems
}

func quoted(value any) string {
	switch value := value.(type) {
	case string:
		return shorten(value, maxQuoted)
	case json.Number:
		return shorten(value.String(), maxQuoted)
	}
	return "a value of another type"
}

func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil
}

// isText accepts any text. The value is checked elsewhere.
func isText(string) bool { return true }

// Status returns the answer: 422 with one cause for each error, nil without errors.
func (v PolicyVerdict) Status(name string) *metav1.Status {
	return invalid(schema.GroupKind{Group: loadlinev1alpha1.GroupName, Kind: "SizingPolicy"}, name, v.Errors)
}
