package prometheus

import "strings"

// FoldLabelName returns what remains of a label name in every exporter: letters in lower
// case, digits, and underscores for all else and between words.
func FoldLabelName(name string) string {
	var folded strings.Builder
	for i, c := range []byte(name) {
		upper := 'A' <= c && c <= 'Z'
		switch {
		case upper && i > 0 && (within(lower, name[i-1]) || within(labelDigits, name[i-1])):
			folded.WriteByte('_')
			fallthrough
		case upper:
			folded.WriteByte(c - 'A' + 'a')
		case within(lower, c), within(labelDigits, c):
			folded.WriteByte(c)
		default:
			folded.WriteByte('_')
		}
	}
	return folded.String()
}

const (
	lower       = "abcdefghijklmnopqrstuvwxyz"
	labelDigits = "0123456789"
)

func within(set string, c byte) bool { return strings.IndexByte(set, c) >= 0 }
