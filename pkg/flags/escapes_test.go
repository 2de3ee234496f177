package flags

import (
	"bytes"
	"errors"
	"flag"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

func TestLogs_EscapeControlCharacters(t *testing.T) {
	var out bytes.Buffer
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	logging := DefaultLogging()
	require.NoError(t, logging.Apply())
	require.NoError(t, fs.Set("logtostderr", "false"))
	require.NoError(t, fs.Set("one_output", "true"))
	require.NoError(t, fs.Set("stderrthreshold", "FATAL"))
	klog.SetOutput(&out)
	defer func() {
		klog.SetLogFilter(nil)
		require.NoError(t, fs.Set("logtostderr", "true"))
		require.NoError(t, fs.Set("one_output", "false"))
		require.NoError(t, fs.Set("stderrthreshold", "INFO"))
	}()
	const hostile = "a\nI1127 forged\x1b[2J\u202e\x9b"
	var none *nothing
	log := klog.FromContext(withEscapes(t.Context())).WithValues("vpa", hostile).WithName("loop")
	for name, write := range map[string]func(){
		"value":             func() { log.Info("Read", "name", hostile) },
		"error":             func() { log.Error(errors.New(hostile), "Failed", "name", hostile) },
		"error as a value":  func() { log.V(2).Info("Read", "reason", errors.New(hostile)) },
		"single line":       func() { log.Error(errors.New("a\x1bb"), "Failed", "name", "a\x1bb") },
		"list":              func() { log.Info("Read", "names", []string{hostile}) },
		"error without one": func() { log.Error(nil, "Failed"); log.Error(none, "Failed", "reason", none) },
		"without a context": func() { klog.Background().Info("Read", "name", hostile) },
		"formatted":         func() { klog.Errorf("read %s", hostile) },
		"unformatted":       func() { klog.Warning("read", hostile) },
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			write()
			klog.Flush()
			printed := out.String()
			require.Contains(t, printed, "escapes_test.go:") // the line of the caller
			for _, r := range printed {
				require.True(t, r == '\n' || r == '\t' || unicode.IsPrint(r), "%q has %U", printed, r)
			}
			if !regexp.MustCompile(`^(un)?formatted$`).MatchString(name) { // only libraries log such lines
				require.False(t, strings.Contains(printed, "\nI1127 forged"), printed)
			}
		})
	}
}

// nothing is an error type with a method that panics on nil.
type nothing struct{ text string }

func (n *nothing) Error() string { return n.text }
