// Package resources is the arithmetic at the bottom of Loadline: how much CPU or
// memory, without units of the Kubernetes API and without fractions.
//
// Its types are Kind (CPU or Memory), Amount (an integer number of millicores
// or bytes), List (an optional amount for each kind) and Bounds (a
// recommendation: lower, target and upper). Arithmetic saturates, so that no
// absurd input can turn a large amount into a negative one.
//
// It does not parse or print quantities; package convert does.
package resources
