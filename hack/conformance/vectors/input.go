package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Typed makes a Handler of a function from the input of a kind to its output, which is compared with the expected one.
// An input field that the function does not know fails the case.
func Typed[In, Out any](f func(In) (Out, error)) Handler {
	return func(c Case) error {
		var in In
		d := json.NewDecoder(bytes.NewReader(c.Input))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			return fmt.Errorf("input: %w", err)
		}
		out, err := f(in)
		if err != nil {
			return err
		}
		return Compare(c.Expected, out, c.Tolerance)
	}
}

// Or returns the value of an optional input field, or its default.
func Or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// SecondsOr returns the value of an optional input field in seconds, or its default.
func SecondsOr(v *float64, otherwise time.Duration) time.Duration {
	if v == nil {
		return otherwise
	}
	return Seconds(*v)
}

// Seconds returns a number of seconds as a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
