package flags

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Logging holds the flags of klog, with a default verbosity of 4. Values are stored as text until
// Apply passes them to klog, so that parsing does not change the process.
type Logging struct {
	values []*logValue
}

const verbosity = "v"

type logValue struct {
	name, kind, text string
	check            func(string) error
	usage            string
	changed          bool
}

// DefaultLogging returns klog's defaults with verbosity 4.
func DefaultLogging() Logging {
	boolean := func(s string) error { _, err := strconv.ParseBool(s); return err }
	size := func(s string) error { _, err := strconv.ParseUint(s, 10, 64); return err }
	text := func(string) error { return nil }
	return Logging{values: []*logValue{
		{name: verbosity, kind: "level", text: "4", check: checkNumber, usage: "Verbosity: 0 problems for the operator, 1 startup and configuration, 2 changed pods, 4 skipped pods with reasons, 6 single samples."},
		{name: "vmodule", kind: "moduleSpec", text: "", check: checkModules, usage: "Verbosity for single source files: pattern=N, separated by commas."},
		{name: "logtostderr", kind: "bool", text: "true", check: boolean, usage: "Log to standard error instead of files."},
		{name: "alsologtostderr", kind: "bool", text: "false", check: boolean, usage: "Log to standard error as well as to files. No effect while --logtostderr is on."},
		{name: "alsologtostderrthreshold", kind: "severity", text: "", check: checkSeverity, usage: "Minimum severity of lines that --alsologtostderr copies."},
		{name: "stderrthreshold", kind: "severity", text: "0", check: checkSeverity, usage: "Minimum severity (INFO, WARNING, ERROR, FATAL or 0 to 3) of lines on standard error when logging to files."},
		{name: "legacy-stderr-threshold-behavior", kind: "bool", text: "true", check: boolean, usage: "Ignore --stderrthreshold while --logtostderr is on."},
		{name: "log-dir", kind: "string", text: "", check: text, usage: "Directory of the log files. No effect while --logtostderr is on."},
		{name: "log-file", kind: "string", text: "", check: text, usage: "Single log file. No effect while --logtostderr is on."},
		{name: "log-file-max-size", kind: "uint64", text: "1800", check: size, usage: "Largest size of a log file in MB. 0: unlimited."},
		{name: "log-backtrace-at", kind: "traceLocation", text: ":0", check: checkLocation, usage: "Write a stack trace when logging reaches file.go:line."},
		{name: "add-dir-header", kind: "bool", text: "false", check: boolean, usage: "Add the directory of the source file to the header of each line."},
		{name: "skip-headers", kind: "bool", text: "false", check: boolean, usage: "Write lines without header."},
		{name: "skip-log-headers", kind: "bool", text: "false", check: boolean, usage: "Write no header when a log file is opened."},
		{name: "one-output", kind: "bool", text: "false", check: boolean, usage: "Write a line only at its own severity, not at the lower ones too."},
	}}
}

// AddFlags binds the group to fs.
func (l *Logging) AddFlags(fs *pflag.FlagSet) {
	for _, v := range l.values {
		shorthand := ""
		if v.name == verbosity {
			shorthand = v.name
		}
		f := fs.VarPF(v, v.name, shorthand, v.usage)
		if v.kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// Apply configures klog.
func (l *Logging) Apply() error {
	known := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(known)
	klog.SetLogFilter(logFilter{})
	var problems []error
	for _, v := range l.values {
		if !v.changed && v.name != verbosity {
			continue
		}
		if err := known.Set(strings.ReplaceAll(v.name, "-", "_"), v.text); err != nil {
			problems = append(problems, Problem(v.name, v.text, err.Error()))
		}
	}
	return errors.Join(problems...)
}

// String returns the text of the value.
func (v *logValue) String() string { return v.text }

// Type returns the type name for help texts.
func (v *logValue) Type() string { return v.kind }

// Set stores a text that klog accepts.
func (v *logValue) Set(s string) error {
	if err := v.check(s); err != nil {
		return err
	}
	v.text, v.changed = s, true
	return nil
}

func checkNumber(s string) error {
	if _, err := strconv.ParseInt(s, 10, 32); err != nil {
		return errors.New("want a number, for example 4")
	}
	return nil
}

func checkSeverity(s string) error {
	switch strings.ToUpper(s) {
	case "INFO", "WARNING", "ERROR", "FATAL":
		return nil
	}
	if checkNumber(s) != nil {
		return errors.New("want INFO, WARNING, ERROR, FATAL or 0 to 3")
	}
	return nil
}

func checkModules(s string) error {
	for _, item := range List(s) {
		pattern, level, found := strings.Cut(item, "=")
		if !found || pattern == "" || checkNumber(level) != nil {
			return fmt.Errorf("%q: want pattern=N, for example loop=6", item)
		}
	}
	return nil
}

func checkLocation(s string) error {
	file, line, found := strings.Cut(s, ":")
	if s == "" || s == ":0" {
		return nil
	}
	if n, err := strconv.Atoi(line); !found || err != nil || n <= 0 || !strings.Contains(file, ".") {
		return errors.New("want file.go:line, for example loop.go:42")
	}
	return nil
}
