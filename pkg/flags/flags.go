// Package flags holds what the command lines of the programs have in common: the flag groups Kube, Logging, Election,
// Serving and Gates, which a binary embeds in its Config, and Program, which parses, validates and runs.
//
// Each group has AddFlags, which binds to a given flag set with the group's present values as the defaults, and
// Validate, which returns all problems joined. A problem names the flag, the value and what would be right.
//
// The package keeps no state and touches no global flag set, so tests can parse in parallel; only Logging.Apply changes
// the process, by configuring klog. It reads no file and exits nowhere: main does.
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

// New returns an empty flag set for the named program. It takes "_" for "-" in
// flag names and reports mistakes as errors instead of ending the process.
func New(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	fs.Usage = func() {}
	return fs
}

// Problem describes a flag whose value is wrong; want completes the sentence "must be ..." or says what to do.
func Problem(flag string, value any, want string) error {
	return fmt.Errorf("--%s=%v: %s", flag, value, want)
}

// Check returns Problem(flag, value, want) unless ok.
func Check(ok bool, flag string, value any, want string) error {
	if ok {
		return nil
	}
	return Problem(flag, value, want)
}

// List splits a comma list and drops the empty items. Blanks are kept: they are
// part of the item, as in the reference programs.
func List(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Describe describes every flag of fs in two lines: how it is written, and what it
// means. It reads the same on a terminal of any width and in the documentation.
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
		if !zero(f.DefValue) {
			fmt.Fprintf(&text, " (default %s)", f.DefValue)
		}
		fmt.Fprintf(&text, "\n        %s\n", meaning)
	})
	return text.String()
}

// zero reports whether a default is not worth naming.
func zero(value string) bool {
	return value == "" || value == "false" || value == "0" || value == "[]"
}

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

// logFilter escapes log lines. klog quotes a value of one line, and writes one of several lines as
// it is, with control characters that a name, a message or an error of another server may contain.
type logFilter struct{}

// Filter implements klog.LogFilter.
func (logFilter) Filter(args []any) []any {
	return []any{printable.Lines(fmt.Sprint(args...))}
}

// FilterF implements klog.LogFilter.
func (logFilter) FilterF(format string, args []any) (string, []any) {
	return "%s", []any{printable.Lines(fmt.Sprintf(format, args...))}
}

// FilterS implements klog.LogFilter. Values of other types become JSON, which escapes line breaks
// and other control characters of ASCII.
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

// escapeMultiline escapes a text that klog does not quote.
func escapeMultiline(text string) string {
	if strings.Contains(text, "\n") {
		return printable.Lines(text)
	}
	return text
}

// escapedError returns the error itself unless its text changes.
func escapedError(err error) (escaped error) {
	if err == nil {
		return nil
	}
	defer func() { // a nil pointer may be an error without a text, which klog reports
		if recover() != nil {
			escaped = err
		}
	}()
	if text := err.Error(); escapeMultiline(text) != text {
		return errors.New(escapeMultiline(text))
	}
	return err
}

// withEscapes returns a context whose logger escapes errors as well, which no filter of klog gets.
func withEscapes(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.New(&errorEscapes{klog.FromContext(ctx).GetSink()}))
}

type errorEscapes struct{ klog.LogSink }

// Init leaves out the frame of Error, which is the only method that adds one.
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

// callDepth is a sink that can leave frames of its caller out.
type callDepth interface {
	WithCallDepth(depth int) klog.LogSink
}

// WithCallDepth is for loggers whose frames are left out.
func (s *errorEscapes) WithCallDepth(depth int) klog.LogSink {
	if deep, ok := s.LogSink.(callDepth); ok {
		return &errorEscapes{deep.WithCallDepth(depth)}
	}
	return s
}

// Gates are the feature gates of the API level, as plain booleans. All are alpha and off by default.
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
