package flags

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/printable"
)

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
