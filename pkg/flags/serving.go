package flags

import (
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// Serving says where a program shows its metrics and health.
type Serving struct {
	Address   string // host:port; an empty host means all
	Profiling bool   // also serve /debug/pprof/
}

// AddFlags binds the group to fs; the address present in s is the default.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Address, "address", s.Address, "Address of /metrics and /health-check.")
	fs.BoolVar(&s.Profiling, "profiling", s.Profiling, "Also serve /debug/pprof/ on that address.")
}

// Validate returns all problems of the group.
func (s *Serving) Validate() error {
	_, port, err := net.SplitHostPort(s.Address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return Check(err == nil, "address", s.Address, `must be host:port or :port, for example ":8942"`)
}
