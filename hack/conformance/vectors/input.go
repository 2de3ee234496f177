package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Typed converts a function from input to output into a Handler that compares the output with the
// expected one. An unknown input field fails the case.
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

// ValueOr returns the value of an optional input field, or its default.
func ValueOr[T any](v *T, otherwise T) T {
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

// Seconds converts seconds to a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
