package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

const maxLineBytes = 64 << 10

type lines struct {
	file      string
	columns   []string
	content   *bufio.Reader
	positions []int // position of each column, -1 if missing
	width     int   // fields per line
	line      int   // from 1
	fields    [][]byte
}

// newLines reads a header with columns in any order. The first needed columns are required.
func newLines(content io.Reader, file string, columns []string, needed int) (*lines, *Problem) {
	l := &lines{file: file, columns: columns, content: bufio.NewReaderSize(content, maxLineBytes), positions: slices.Repeat([]int{-1}, len(columns))}
	if magic, err := l.content.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unpacked, err := gzip.NewReader(l.content)
		if err != nil {
			return l, l.problem("", "gzip: %v: expected a file as gzip writes it", err)
		}
		l.content = bufio.NewReaderSize(unpacked, maxLineBytes)
	}
	line, problem := l.read()
	if problem == nil && line == nil {
		return l, l.problem("", "is empty: expected a first line %s", l.names())
	}
	if problem == nil {
		problem = l.split(line)
	}
	if problem != nil {
		return l, problem
	}
	for at, field := range l.fields {
		name := strings.TrimSpace(strings.TrimPrefix(string(field), "\ufeff"))
		column := slices.Index(columns, name)
		switch {
		case column < 0:
			return l, l.problem(name, "is not known: expected the columns %s", l.names())
		case l.positions[column] >= 0:
			return l, l.problem(name, "is there twice: expected each of %s once", l.names())
		}
		l.positions[column] = at
	}
	if missing := slices.Index(l.positions[:needed], -1); missing >= 0 {
		return l, l.problem(columns[missing], "is missing: expected the columns %s", l.names())
	}
	l.width = len(l.fields)
	return l, nil
}

func (l *lines) names() string { return strings.Join(l.columns, ",") }

func (l *lines) problem(column, text string, values ...any) *Problem {
	return &Problem{File: l.file, Line: l.line, Column: column, Text: fmt.Sprintf(text, values...)}
}

// next reports whether there is a line. A problem without a line ends the file.
func (l *lines) next() (more bool, problem *Problem) {
	line, problem := l.read()
	if line == nil {
		return false, problem
	}
	if problem = l.split(line); problem == nil && len(l.fields) != l.width {
		problem = l.problem("", "has %d fields: expected %d", len(l.fields), l.width)
	}
	return true, problem
}

// read returns the next line, nil at the end. The line is only valid until the next call.
func (l *lines) read() ([]byte, *Problem) {
	line, err := l.content.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) == 0 {
		return nil, nil
	}
	l.line++
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, l.problem("", "is longer than %d bytes: expected a line of %d columns", maxLineBytes, len(l.columns))
	case err != nil && !errors.Is(err, io.EOF):
		return nil, l.problem("", "cannot be read: %v: expected a whole file", err)
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func (l *lines) split(line []byte) *Problem {
	l.fields = l.fields[:0]
	if bytes.IndexByte(line, '"') < 0 {
		fields := l.fields
		for comma := bytes.IndexByte(line, ','); comma >= 0; comma = bytes.IndexByte(line, ',') {
			fields, line = append(fields, line[:comma]), line[comma+1:]
		}
		l.fields = append(fields, line)
		return nil
	}
	record, err := csv.NewReader(bytes.NewReader(line)).Read()
	if err != nil {
		return l.problem("", "the quotes do not match: expected %s", l.names())
	}
	for _, field := range record {
		l.fields = append(l.fields, []byte(field))
	}
	return nil
}

func (l *lines) text(column int) []byte {
	if at := l.positions[column]; at >= 0 {
		return l.fields[at]
	}
	return nil
}

// value returns the non-negative number of a column, NaN if it is empty or missing.
func (l *lines) value(column int) (float64, *Problem) {
	field := l.text(column)
	if len(field) == 0 {
		return math.NaN(), nil
	}
	if value, ok := decimal(field); ok {
		return value, nil
	}
	value, err := strconv.ParseFloat(string(field), 64)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
		return math.NaN(), l.problem(l.columns[column], "is %q: expected a number, or nothing if unknown", field)
	case value < 0:
		return math.NaN(), l.problem(l.columns[column], "is %s: expected 0 or more", field)
	}
	return value, nil
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal parses numbers of up to fifteen digits with or without a point. Digits and power of ten
// are exact, so their quotient is rounded only once.
func decimal(field []byte) (value float64, ok bool) {
	const most = 15
	digits, after, point := int64(0), 0, false
	for _, c := range field {
		switch {
		case '0' <= c && c <= '9':
			digits = 10*digits + int64(c-'0')
			if point {
				after++
			}
		case c == '.' && !point:
			point = true
		default:
			return 0, false
		}
	}
	if len(field) > most || len(field) == 0 || point && len(field) == 1 {
		return 0, false
	}
	return float64(digits) / powersOfTen[after], true
}

// Problem is an error in a recording.
type Problem struct {
	File    string // or address of a server
	Line    int    // from 1, 0 for the whole file
	Column  string // name, empty for the whole line
	Series  string // workload/container, empty if unknown
	Text    string // the error, and the expected content
	Warning bool   // not a failure: a container with a warning is still used
}

// Error returns the problem in one line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Column != "" {
		fmt.Fprintf(&b, ": column %s", p.Column)
	}
	if p.Series != "" {
		fmt.Fprintf(&b, ": %s", p.Series)
	}
	b.WriteString(": " + p.Text)
	if p.Warning && p.Series != "" {
		b.WriteString(" (used nevertheless)")
	}
	return b.String()
}
