package flags

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantity is a flag that holds an optional quantity of the Kubernetes API. Bind
// it with pflag.FlagSet.Var. The zero value is unset.
type Quantity struct {
	Value resource.Quantity
	Given bool
}

// String returns the canonical form, or nothing while unset.
func (q *Quantity) String() string {
	if !q.Given {
		return ""
	}
	return q.Value.String()
}

// Type names the type in help texts.
func (q *Quantity) Type() string { return "quantity" }

// Set parses a quantity; an empty text unsets the flag.
func (q *Quantity) Set(s string) error {
	if s == "" {
		*q = Quantity{}
		return nil
	}
	value, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf(`%w: want a quantity, for example "500m" or "2Gi"`, err)
	}
	*q = Quantity{Value: value, Given: true}
	return nil
}

// Check returns a problem with the named flag if the quantity is negative.
func (q *Quantity) Check(flag string) error {
	return Check(q.Value.Sign() >= 0, flag, q, "must not be negative")
}
