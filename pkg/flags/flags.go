// Package flags holds the flag groups and the main loop that all programs share.
//
// Each group has AddFlags, which binds to a given flag set with the current values as defaults, and
// Validate, which returns all problems joined. A problem names the flag, the value and the
// requirement.
//
// The package keeps no state and touches no global flag set, so tests can parse in parallel. Only
// Logging.Apply changes the process, by configuring klog. The package reads no file and never exits
// the process.
package flags

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/printable"
)

// New returns an empty flag set for the named program. It accepts "_" for "-" in flag names and
// returns errors instead of exiting.
func New(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	fs.Usage = func() {}
	return fs
}

// Problem describes a wrong flag value. The requirement begins with "must be", or is an
// instruction.
func Problem(flag string, value any, requirement string) error {
	return fmt.Errorf("--%s=%v: %s", flag, value, requirement)
}

// Check returns a Problem unless ok.
func Check(ok bool, flag string, value any, requirement string) error {
	if ok {
		return nil
	}
	return Problem(flag, value, requirement)
}

// List splits at commas and drops empty items. Blanks stay, as in the reference programs.
func List(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Describe describes each flag in two lines, syntax and meaning, the same for every terminal width.
func Describe(fs *pflag.FlagSet) string {
	var text strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		kind, meaning := pflag.UnquoteUsage(f)
		text.WriteString("  ")
		if f.Shorthand != "" {
			fmt.Fprintf(&text, "-%s, ", f.Shorthand)
		}
		text.WriteString("--" + f.Name)
		if kind != "" {
			text.WriteString(" " + kind)
		}
		if !isZeroDefault(f.DefValue) {
			fmt.Fprintf(&text, " (default %s)", f.DefValue)
		}
		fmt.Fprintf(&text, "\n        %s\n", meaning)
	})
	return text.String()
}

func isZeroDefault(value string) bool {
	return value == "" || value == "false" || value == "0" || value == "[]"
}

// Quantity is a flag with an optional Kubernetes quantity, for FlagSet.Var. Zero is unset.
type Quantity struct {
	Value resource.Quantity
	IsSet bool
}

// String returns the canonical form, or an empty string while unset.
func (q *Quantity) String() string {
	if !q.IsSet {
		return ""
	}
	return q.Value.String()
}

// Type returns the type name for help texts.
func (q *Quantity) Type() string { return "quantity" }

// Set parses a quantity. An empty text unsets the flag.
func (q *Quantity) Set(s string) error {
	if s == "" {
		*q = Quantity{}
		return nil
	}
	value, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf(`%w: want a quantity, for example "500m" or "2Gi"`, err)
	}
	*q = Quantity{Value: value, IsSet: true}
	return nil
}

// Check returns a problem with the named flag if the quantity is negative.
func (q *Quantity) Check(flag string) error {
	return Check(q.Value.Sign() >= 0, flag, q, "must not be negative")
}

// logFilter escapes log lines: klog writes multi-line values unquoted, including control characters
// from names, messages and errors of other servers.
type logFilter struct{}

// Filter implements klog.LogFilter.
func (logFilter) Filter(args []any) []any {
	return []any{printable.Lines(fmt.Sprint(args...))}
}

// FilterF implements klog.LogFilter.
func (logFilter) FilterF(format string, args []any) (string, []any) {
	return "%s", []any{printable.Lines(fmt.Sprintf(format, args...))}
}

// FilterS implements klog.LogFilter. Other types become JSON, which escapes control characters.
func (logFilter) FilterS(msg string, keysAndValues []any) (string, []any) {
	escaped := slices.Clone(keysAndValues)
	for i, value := range escaped {
		switch value := value.(type) {
		case string:
			escaped[i] = escapeMultiline(value)
		case error:
			escaped[i] = escapedError(value)
		case []string:
			lines := make([]string, len(value))
			for j, text := range value {
				lines[j] = printable.Line(text)
			}
			escaped[i] = lines
		}
	}
	return msg, escaped
}

func escapeMultiline(text string) string {
	if strings.Contains(text, "\n") {
		return printable.Lines(text)
	}
	return text
}

// escapedError returns the same error unless its text changes.
func escapedError(err error) (escaped error) {
	if err == nil {
		return nil
	}
	defer func() { // a nil pointer may be an error without text, which klog reports
		if recover() != nil {
			escaped = err
		}
	}()
	if text := err.Error(); escapeMultiline(text) != text {
		return errors.New(escapeMultiline(text))
	}
	return err
}

// withEscapes also escapes errors, which klog does not pass to filters.
func withEscapes(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.New(&errorEscapes{klog.FromContext(ctx).GetSink()}))
}

type errorEscapes struct{ klog.LogSink }

// Init drops the call depth that logr adds, because only Error adds a frame, and it adjusts the
// depth itself.
func (s *errorEscapes) Init(klog.RuntimeInfo) {}

// Error implements klog.LogSink.
func (s *errorEscapes) Error(err error, msg string, keysAndValues ...any) {
	sink := s.LogSink
	if deep, ok := sink.(callDepth); ok {
		sink = deep.WithCallDepth(1)
	}
	sink.Error(escapedError(err), msg, keysAndValues...)
}

// WithValues implements klog.LogSink.
func (s *errorEscapes) WithValues(keysAndValues ...any) klog.LogSink {
	return &errorEscapes{s.LogSink.WithValues(keysAndValues...)}
}

// WithName implements klog.LogSink.
func (s *errorEscapes) WithName(name string) klog.LogSink {
	return &errorEscapes{s.LogSink.WithName(name)}
}

type callDepth interface {
	WithCallDepth(depth int) klog.LogSink
}

// WithCallDepth supports loggers that skip frames.
func (s *errorEscapes) WithCallDepth(depth int) klog.LogSink {
	if deep, ok := s.LogSink.(callDepth); ok {
		return &errorEscapes{deep.WithCallDepth(depth)}
	}
	return s
}

// Gates are the feature gates of the API level, all alpha and off by default. Package featuregate
// of component-base would add a quarter of a megabyte to each binary for three booleans.
type Gates struct {
	PerVPAConfig    bool // use OOM and memory aggregation settings of a VPA
	CPUStartupBoost bool // use startup boosts of a VPA
	InPlace         bool // accept update mode InPlace
}

// AddFlags binds --feature-gates to fs. Parsing sets the booleans.
func (g *Gates) AddFlags(fs *pflag.FlagSet) {
	fs.Var(&gateValue{gates: g, switches: map[string]bool{}}, "feature-gates", "Switches name=true|false, separated by commas, of alpha features: "+knownGates+".")
}

const (
	knownGates = "PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha, AllBeta"
	allAlpha   = "AllAlpha"
	allBeta    = "AllBeta"
)

func (g *Gates) byName() map[string]*bool {
	return map[string]*bool{"PerVPAConfig": &g.PerVPAConfig, "CPUStartupBoost": &g.CPUStartupBoost, "InPlace": &g.InPlace}
}

// gateValue accumulates repeated flags.
type gateValue struct {
	gates    *Gates
	given    []string // items as written
	switches map[string]bool
}

// String returns the items as written.
func (v *gateValue) String() string { return strings.Join(v.given, ",") }

// Type returns the type name for help texts.
func (v *gateValue) Type() string { return "mapStringBool" }

// Set switches gates. AllAlpha switches gates that are not named. AllBeta is accepted, but empty.
func (v *gateValue) Set(s string) error {
	switches, gates := map[string]bool{}, v.gates.byName()
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
