package prometheus

import "strings"

const (
	digits = "0123456789"
	random = "bcdfghjklmnpqrstvwxz2456789" // what generated names end in
)

// consists tells whether text is least to most characters of set.
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
