package printable

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestLine_EscapesNonPrintable(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{name: "plain", text: `web-1: 50% of "a\b", ümlaut`, want: `web-1: 50% of "a\b", ümlaut`},
		{name: "empty"},
		{name: "escape sequence", text: "\x1b[31mred\x1b[0m", want: `\x1b[31mred\x1b[0m`},
		{name: "window title", text: "a\x1b]0;owned\x07b", want: `a\x1b]0;owned\ab`},
		{name: "C1 control", text: "a\u009b2Jb", want: `a\u009b2Jb`},
		{name: "raw C1 byte", text: "a\x9b2Jb", want: `a\x9b2Jb`},
		{name: "delete and backspace", text: "a\x7f\bb", want: `a\x7f\bb`},
		{name: "line breaks", text: "a\r\nb\u2028c\u0085d", want: `a\r\nb\u2028c\u0085d`},
		{name: "tab", text: "a\tb", want: `a\tb`},
		{name: "bidirectional override", text: "a\u202eb\u2066c", want: `a\u202eb\u2066c`},
		{name: "zero width", text: "a\u200bb\ufeff", want: `a\u200bb\ufeff`},
		{name: "tag character", text: "a\U000e0041", want: `a\U000e0041`},
		{name: "quote before a control", text: "'\x1b'", want: `'\x1b'`},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, Line(tc.text)) })
	}
	require.Equal(t, "a\n\tb\\x1b", Lines("a\n\tb\x1b"))
}

func TestFprintf_EscapesOperandsOnly(t *testing.T) {
	var out bytes.Buffer
	Fprintf(&out, "%s\t%-6s|%d %.1f %v %q\n", "a\nb", "c\t", 7, 1.25, errors.New("d\x1be"), "f\n")
	require.Equal(t, "a\\nb\tc\\t    |7 1.2 d\\x1be \"f\\n\"\n", out.String())
	out.Reset()
	Fprintln(&out, "!", errors.New("a\nb"))
	Row(&out, "a\tb", "c")
	require.Equal(t, "! a\\nb\na\\tb\tc\n", out.String())
}

func TestCSV_WritesNoFormulas(t *testing.T) {
	for _, tc := range []struct{ name, cell, want string }{
		{name: "text", cell: "web", want: "web"},
		{name: "formula", cell: `=HYPERLINK("http://x","y")`, want: `'=HYPERLINK("http://x","y")`},
		{name: "plus", cell: "+cmd|' /C calc'!A0", want: "'+cmd|' /C calc'!A0"},
		{name: "minus", cell: "-2+3", want: "'-2+3"},
		{name: "at", cell: "@SUM(1)", want: "'@SUM(1)"},
		{name: "tab", cell: "\t=1", want: `'\t=1`},
		{name: "carriage return", cell: "\r=1", want: `'\r=1`},
		{name: "spaces", cell: "  =1", want: "'  =1"},
		{name: "full width", cell: "＝1", want: "'＝1"},
		{name: "number", cell: "-1.5e-3", want: "-1.5e-3"},
		{name: "infinity", cell: "+Inf", want: "+Inf"},
		{name: "no value", cell: "-", want: "-"},
		{name: "control character", cell: "a\x1b", want: `a\x1b`},
		{name: "line break", cell: "a\n=1", want: `a\n=1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, CSV(&out, [][]string{{tc.cell, "x"}}))
			rows, err := csv.NewReader(&out).ReadAll()
			require.NoError(t, err)
			require.Equal(t, [][]string{{tc.want, "x"}}, rows)
		})
	}
}

// FuzzPrintable checks that no text breaks the format: control characters, additional lines or
// columns, and CSV formulas.
func FuzzPrintable(f *testing.F) {
	for _, text := range []string{"web", "\x1b[2J", "=1+1", "-1", "-0x1p-2", "+Inf", "\u009b", "a\u202eb", "\xff", "a\tb\nc", "' =1", "\U000e0041"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		clean := func(printed, allowed string) {
			for _, r := range printed {
				require.True(t, unicode.IsPrint(r) || strings.ContainsRune(allowed, r), "%q has %U", printed, r)
			}
		}
		var out bytes.Buffer
		Fprintf(&out, "%s\t%v\n", text, errors.New(text))
		Row(&out, text, text)
		Fprintln(&out, text, "a", text)
		clean(out.String(), "\t\n")
		require.Equal(t, 3, strings.Count(out.String(), "\n"))
		require.Equal(t, 2, strings.Count(out.String(), "\t"))
		clean(Line(text), "")
		clean(Lines(text), "\n\t")
		require.Equal(t, Line(text), Line(Line(text)))

		out.Reset()
		require.NoError(t, CSV(&out, [][]string{{text, "x"}}))
		clean(out.String(), "\n")
		rows, err := csv.NewReader(&out).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 1)
		if cell := strings.TrimLeft(rows[0][0], " "); strings.IndexAny(cell, "=+-@") == 0 && cell != "-" {
			require.Regexp(t, `^[+-](Inf|[0-9.]+([eE][+-]?[0-9]+)?)$`, rows[0][0])
		}

		out.Reset()
		encoder := json.NewEncoder(JSON(&out))
		encoder.SetIndent("", "  ")
		require.NoError(t, encoder.Encode([]string{text, "x"}))
		clean(out.String(), "\n")
		var back []string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		plain, err := json.Marshal(text)
		require.NoError(t, err)
		var want string
		require.NoError(t, json.Unmarshal(plain, &want))
		require.Equal(t, want, back[0])
	})
}
