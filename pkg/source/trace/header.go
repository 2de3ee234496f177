package trace

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
)

// The columns of a file. Requests, limits and waiting may be missing, and one of the
// two uses; the order is free.
const (
	workload = iota
	container
	timestamp
	cpuUse
	memoryUse
	cpuRequest
	memoryRequest
	cpuLimit
	memoryLimit
	cpuWaiting
	columns
)

var names = [columns]string{
	"workload", "container", "timestamp", "cpu_cores", "memory_bytes",
	"cpu_request_cores", "memory_request_bytes", "cpu_limit_cores", "memory_limit_bytes",
	"cpu_waiting_share",
}

// Columns returns the names of the columns, as the first line of a file has them.
func Columns() string { return strings.Join(names[:], ",") }

// header tells at which position of a line each column is; -1 = it is missing.
type header [columns]int

// parseHeader reads the first line. The text of an error says what was expected.
func parseHeader(line []byte) (h header, width int, column string, err error) {
	for c := range h {
		h[c] = -1
	}
	fields, err := split(line, nil)
	if err != nil {
		return h, 0, "", err
	}
	for at, field := range fields {
		name := strings.TrimSpace(strings.TrimPrefix(string(field), "\ufeff"))
		c := slices.Index(names[:], name)
		switch {
		case c < 0:
			return h, 0, name, fmt.Errorf("is not known: expected the columns %s", Columns())
		case h[c] >= 0:
			return h, 0, name, fmt.Errorf("is there twice: expected each of %s once", Columns())
		}
		h[c] = at
	}
	for _, c := range []int{workload, container, timestamp} {
		if h[c] < 0 {
			return h, 0, names[c], fmt.Errorf("is missing: expected the columns %s", Columns())
		}
	}
	if h[cpuUse] < 0 && h[memoryUse] < 0 {
		return h, 0, names[cpuUse], fmt.Errorf("is missing, and %s too: expected at least one of them", names[memoryUse])
	}
	return h, len(fields), "", nil
}

// powers of ten that a float64 has exactly, as far as decimal needs them.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal reads what most numbers are: up to fifteen digits, with a point or without.
// Both they and the power of ten are exact then, so that their quotient is rounded
// once, as it must be. It is false for all else.
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
	return float64(digits) / powers[after], true
}

// split cuts a line into its fields, which are only good as long as the line is.
func split(line []byte, into [][]byte) ([][]byte, error) {
	into = into[:0]
	if bytes.IndexByte(line, '"') >= 0 {
		record, err := csv.NewReader(bytes.NewReader(line)).Read()
		if err != nil {
			return nil, fmt.Errorf("the quotes do not match: expected %s", Columns())
		}
		for _, field := range record {
			into = append(into, []byte(field))
		}
		return into, nil
	}
	for {
		comma := bytes.IndexByte(line, ',')
		if comma < 0 {
			return append(into, line), nil
		}
		into = append(into, line[:comma])
		line = line[comma+1:]
	}
}
