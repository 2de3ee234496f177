package flags

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Gates are the feature gates of the API level, as plain booleans. All are alpha
// and off by default.
//
// They are parsed here and not by k8s.io/component-base/featuregate, which would
// add a quarter of a megabyte to each binary for three booleans.
type Gates struct {
	PerVPAConfig    bool // OOM and memory aggregation settings of a VPA are used
	CPUStartupBoost bool // startup boosts of a VPA are used
	InPlace         bool // update mode InPlace is accepted
}

// AddFlags binds --feature-gates to fs; the booleans are set while it is parsed.
func (g *Gates) AddFlags(fs *pflag.FlagSet) {
	fs.Var(&gateValue{gates: g, switches: map[string]bool{}}, "feature-gates", "Switches name=true|false, separated by commas, of alpha features: "+knownGates+".")
}

const (
	knownGates = "PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha, AllBeta"
	allAlpha   = "AllAlpha"
	allBeta    = "AllBeta"
)

// named returns the gates by name.
func (g *Gates) named() map[string]*bool {
	return map[string]*bool{"PerVPAConfig": &g.PerVPAConfig, "CPUStartupBoost": &g.CPUStartupBoost, "InPlace": &g.InPlace}
}

// gateValue is the flag. Given several times, it adds up.
type gateValue struct {
	gates    *Gates
	given    []string // items as written
	switches map[string]bool
}

// String returns what was given.
func (v *gateValue) String() string { return strings.Join(v.given, ",") }

// Type names the type in help texts.
func (v *gateValue) Type() string { return "mapStringBool" }

// Set switches the gates that s names. AllAlpha switches those that are not
// named anywhere; AllBeta is accepted, there are no beta gates.
func (v *gateValue) Set(s string) error {
	switches, gates := map[string]bool{}, v.gates.named()
	for _, item := range List(s) {
		name, text, found := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(text))
		switch {
		case name == "InPlaceOrRecreate":
			return fmt.Errorf("unknown gate %s: it was removed with VPA 1.7, the update mode needs none; known are %s", name, knownGates)
		case gates[name] == nil && name != allAlpha && name != allBeta:
			return fmt.Errorf("unknown gate %s; known are %s", name, knownGates)
		case !found || err != nil:
			return fmt.Errorf("%q: want %s=true or %s=false", item, name, name)
		}
		switches[name] = on
	}
	v.given = append(v.given, List(s)...)
	maps.Copy(v.switches, switches)
	for name, gate := range gates {
		on, named := v.switches[name]
		if !named {
			on, named = v.switches[allAlpha]
		}
		if named {
			*gate = on
		}
	}
	return nil
}
