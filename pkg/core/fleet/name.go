package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// A checkpoint is called <VPA>-<container>, and the API takes 253 characters.
const (
	longestName      = 253
	longestContainer = 63
	longestMade      = longestName - longestContainer - len("-")

	hashBytes = 5 // two characters each
)

// MadeName returns the name of the VPA that is made for a workload: <kind>-<workload> in
// lower case. A hash is added where another workload could have the same name (its kind is
// not one of Kubernetes itself), where the name had to be cut so that those of checkpoints
// are not too long, and where it would be no name. The result is a DNS subdomain name.
func MadeName(kind, group, name string) string {
	plain := strings.ToLower(kind) + "-" + name
	if BuiltInKind(kind) && BuiltIn(group) && len(plain) <= longestMade && subdomain(name) {
		return plain
	}
	if BuiltInKind(kind) && BuiltIn(group) {
		group = "" // the same workload, however the reference to it is written
	}
	sum := sha256.Sum256([]byte(group + "\x00" + kind + "\x00" + name))
	hash := hex.EncodeToString(sum[:hashBytes])
	room := longestMade - len("-") - len(hash)
	// One byte each, so that cutting leaves no half character.
	readable := strings.Trim(strings.Map(letterOrDash, plain), "-")
	readable = strings.TrimRight(readable[:min(len(readable), room)], "-")
	if readable == "" {
		return hash
	}
	return readable + "-" + hash
}

// BuiltInKind reports whether a kind of workload comes with Kubernetes.
func BuiltInKind(kind string) bool {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob":
		return true
	}
	return false
}

func letterOrDash(r rune) rune {
	if alphanumeric(r) {
		return r
	}
	return '-'
}

func alphanumeric(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

// subdomain reports whether the API takes a text as a name.
func subdomain(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if !alphanumeric(r) && r != '-' {
				return false
			}
		}
	}
	return true
}
