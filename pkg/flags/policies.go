package flags

import (
	"strings"
	"time"

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

const sharingMinAge = "sharing-min-age"

// AddSharingMinAge binds the flag that updater and admission controller have in common.
func AddSharingMinAge(fs *pflag.FlagSet, age *time.Duration) {
	fs.DurationVar(age, sharingMinAge, *age, "Shortest age of a workload whose pods share the headroom of their nodes (spec.sharing of a SizingPolicy): younger ones have too little history of their peaks. The same for updater and admission controller.")
}

// CheckSharingMinAge returns what is wrong with the value of the flag.
func CheckSharingMinAge(age time.Duration) error {
	return Check(age > 0, sharingMinAge, age, "must be longer than 0")
}
