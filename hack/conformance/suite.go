package main

import (
	"maps"

	"loadline.dev/loadline/hack/conformance/estimating"
	"loadline.dev/loadline/hack/conformance/recommending"
	"loadline.dev/loadline/hack/conformance/updating"
	"loadline.dev/loadline/pkg/testkit/vectors"
)

// suite lists the kinds that production code can run, and the cases in which it
// differs from the reference by design. docs/compatibility.md names the latter.
func suite() vectors.Suite {
	s := vectors.Suite{Handlers: map[string]vectors.Handler{}, ByDesign: map[string]vectors.Deviation{}}
	maps.Copy(s.Handlers, estimating.Handlers())
	maps.Copy(s.ByDesign, estimating.ByDesign())
	maps.Copy(s.Handlers, recommending.Handlers())
	maps.Copy(s.ByDesign, recommending.ByDesign())
	maps.Copy(s.Handlers, updating.Handlers())
	maps.Copy(s.ByDesign, updating.ByDesign())
	maps.Copy(s.Handlers, admissionHandlers())
	maps.Copy(s.ByDesign, admissionByDesign())
	return s
}
