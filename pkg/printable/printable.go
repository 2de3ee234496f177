// Package printable writes texts of cluster objects safely to terminals, spreadsheets and logs.
//
// Names, labels, annotations, messages of conditions and errors of other servers may contain
// anything. Each character that is not printable is replaced by its Go escape sequence, such as
// \x1b or \u202e: control characters, bidirectional overrides, line breaks, invalid UTF-8.
package printable

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Line returns the text as a single line of printable characters.
func Line(text string) string { return escape(text, "") }

// Lines is Line for a text of several lines. It keeps line breaks and tabs.
func Lines(text string) string { return escape(text, "\n\t") }

func escape(text, allowed string) string {
	var b strings.Builder
	copied := 0 // length of the text already in b
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		valid := r != utf8.RuneError || size > 1
		if valid && (strconv.IsPrint(r) || strings.ContainsRune(allowed, r)) {
			at += size
			continue
		}
		b.WriteString(text[copied:at])
		if valid {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			fmt.Fprintf(&b, `\x%02x`, text[at])
		}
		at += size
		copied = at
	}
	if copied == 0 {
		return text
	}
	return b.String() + text[copied:]
}

type operand struct{ v any }

// Format implements fmt.Formatter.
func (o operand) Format(state fmt.State, verb rune) {
	_, _ = io.WriteString(state, Line(fmt.Sprintf(fmt.FormatString(state, verb), o.v)))
}

// Fprintf is fmt.Fprintf with escaped operands, not format. It ignores errors of the writer.
func Fprintf(w io.Writer, format string, operands ...any) {
	values := make([]any, len(operands))
	for i, v := range operands {
		values[i] = operand{v}
	}
	_, _ = fmt.Fprintf(w, format, values...)
}

// Fprintln writes operands as one line, separated by spaces. It ignores errors of the writer.
func Fprintln(w io.Writer, operands ...any) {
	_, _ = io.WriteString(w, Line(strings.TrimSuffix(fmt.Sprintln(operands...), "\n"))+"\n")
}

// Row writes cells as a line of a text/tabwriter.
func Row(w io.Writer, cells ...string) {
	lines := make([]string, len(cells))
	for i, cell := range cells {
		lines[i] = Line(cell)
	}
	_, _ = io.WriteString(w, strings.Join(lines, "\t")+"\n")
}

// CSV writes rows for a spreadsheet. It puts a single quote before a cell that would be a formula.
func CSV(w io.Writer, rows [][]string) error {
	out := csv.NewWriter(w)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Line(cell)
			if isFormula(cell) {
				cells[i] = "'" + cells[i]
			}
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// number matches a decimal number or infinity, which a spreadsheet evaluates to itself.
var number = regexp.MustCompile(`^[+-]?(Inf|\d+(\.\d*)?([eE][+-]?\d+)?)$`)

// isFormula reports whether a spreadsheet may evaluate a cell other than a number or a dash.
func isFormula(cell string) bool {
	start, _ := utf8.DecodeRuneInString(strings.TrimLeft(cell, " "))
	if !strings.ContainsRune("=+-@\t\r\n＝＋－＠", start) {
		return false
	}
	return cell != "-" && !number.MatchString(cell)
}

// JSON returns a writer of JSON that replaces unprintable characters that encoding/json keeps by \u
// sequences. The value of the text does not change. A call of Write must not end within a
// character, which json.Encoder guarantees.
func JSON(w io.Writer) io.Writer { return jsonWriter{w, false} }

// FlowYAML is JSON for YAML readers, which support no surrogates.
func FlowYAML(w io.Writer) io.Writer { return jsonWriter{w, true} }

type jsonWriter struct {
	io.Writer
	yaml bool
}

// Write implements io.Writer.
func (w jsonWriter) Write(text []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r < ' ' || strconv.IsPrint(r): // the only line breaks are between values
			b.WriteRune(r)
		case r > 0xffff && w.yaml:
			fmt.Fprintf(&b, `\U%08x`, r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if _, err := io.WriteString(w.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
