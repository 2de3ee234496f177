package validate

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// decodeError returns why an object cannot be decoded: with the field whose value has the wrong type, if
// it is that.
func decodeError(raw []byte, err error) *field.Error {
	internal := field.InternalError(field.NewPath("."), errors.New(shorten(err.Error(), mostDetail)))
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
	return field.TypeInvalid(at, shown(value), wanted(wrong.Type, names[len(names)-1], value))
}

// locate finds the first value at or below a path whose type is not the wanted one. Elements of lists are
// not part of the names.
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

// decodes reports whether a value can be read as a type.
func decodes(value any, as reflect.Type) bool {
	raw, err := json.Marshal(value)
	return err == nil && json.Unmarshal(raw, reflect.New(as).Interface()) == nil
}

// shown is what an error quotes of a value.
func shown(value any) any {
	switch value := value.(type) {
	case string:
		return shorten(value, mostQuoted)
	case bool, float64:
		return value
	}
	return "a value of another type"
}

// wanted returns what would be right for a field. YAML reads some words without quotation marks as
// true and false.
func wanted(want reflect.Type, name string, value any) string {
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
