package main

import (
	_ "embed"
	"encoding/json"
	"maps"

	"loadline.dev/loadline/hack/conformance/estimating"
	"loadline.dev/loadline/hack/conformance/recommending"
	"loadline.dev/loadline/hack/conformance/updating"
	"loadline.dev/loadline/pkg/testkit/vectors"
)

// byDesign are the cases in which production code differs from the reference by design,
// by their name. docs/compatibility.md names them, too.
//
//go:embed by_design.json
var byDesign []byte

// suite lists the kinds that production code can run, and those cases.
func suite() (vectors.Suite, error) {
	s := vectors.Suite{Handlers: admissionHandlers(), ByDesign: map[string]vectors.Deviation{}}
	maps.Copy(s.Handlers, estimating.Handlers())
	maps.Copy(s.Handlers, recommending.Handlers())
	maps.Copy(s.Handlers, updating.Handlers())
	var cases map[string]struct {
		Reason   string
		Expected json.RawMessage
	}
	err := json.Unmarshal(byDesign, &cases)
	for name, c := range cases {
		s.ByDesign[name] = vectors.Deviation{Reason: c.Reason, Expected: string(c.Expected)}
	}
	return s, err
}
