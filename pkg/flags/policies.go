package flags

import (
	"strings"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/fleet"
)

// Policies says what counts for SizingPolicies. The programs must agree.
type Policies struct {
	Foreign bool // annotations of other projects take workloads out, too
}

// AddFlags binds the group to fs.
func (p *Policies) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&p.Foreign, "foreign-annotations", p.Foreign, "Under a SizingPolicy "+strings.Join(fleet.ForeignAnnotations(), ` or `)+
		` with the value "true" takes a workload out as `+fleet.SkipAnnotation+" does. The same for recommender, updater and admission controller.")
}
