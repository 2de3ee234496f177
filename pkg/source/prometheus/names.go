package prometheus

import "strings"

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
	random = "bcdfghjklmnpqrstvwxz2456789" // what generated names end in
)

// consists reports whether text is least to most characters of set.
func consists(text, set string, least, most int) bool {
	return least <= len(text) && len(text) <= most && strings.Trim(text, set) == ""
}

// CommonPodNames returns what the name of a pod has in common with the other pods
// of its workload, the narrowest first: for web-7d9f8b6c5d-x2k4p that is
// "web-7d9f8b6c5d-" (the same ReplicaSet) and "web". A name without a generated
// or numbered end has nothing in common with others.
func CommonPodNames(name string) []string {
	front, end, found := cutLast(name)
	switch {
	case found && consists(end, random, 5, 5):
		names := []string{front + "-"}
		// Below are the hash of a ReplicaSet or the number of a run of a CronJob.
		if owner, middle, more := cutLast(front); more && (consists(middle, random, 6, 10) || consists(middle, digits, 8, 12)) {
			front = owner
		}
		return append(names, front)
	case found && consists(end, digits, 1, 10):
		return []string{front}
	}
	return nil
}

func cutLast(name string) (front, end string, found bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// FoldLabelName returns what remains of a label name in every exporter: letters in lower
// case, digits, and underscores for all else and between words.
func FoldLabelName(name string) string {
	var folded strings.Builder
	for i, c := range []byte(name) {
		upper := 'A' <= c && c <= 'Z'
		switch {
		case upper && i > 0 && (strings.IndexByte(lower+digits, name[i-1]) >= 0):
			folded.WriteByte('_')
			fallthrough
		case upper:
			folded.WriteByte(c - 'A' + 'a')
		case strings.IndexByte(lower+digits, c) >= 0:
			folded.WriteByte(c)
		default:
			folded.WriteByte('_')
		}
	}
	return folded.String()
}
