package server

import (
	"bytes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// sound reports whether a quantity can be computed with, by the rule that the other
// programs read VPAs with.
func (r *Reader) sound(raw []byte) bool {
	if err := vpav1.CheckQuantity(bytes.Trim(raw, `"`)); err != nil {
		r.tooMuch(err.Error())
	}
	return !r.failed
}
