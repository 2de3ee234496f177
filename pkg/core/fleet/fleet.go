// Package fleet decides which SizingPolicy applies to a workload, and in which mode.
//
// Set.Decide selects the strongest policy that matches a Workload. Policies are not merged.
// Annotations and user VPAs can only restrict the policy. Unreadable input changes nothing: an
// invalid policy still holds its workloads, and a generated VPA without a policy causes no changes.
package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
)

// Labels and annotations of users and Loadline.
const (
	// PolicyLabel marks a generated VPA with the name of its policy.
	PolicyLabel = "loadline.dev/policy"
	// SkipAnnotation excludes a workload with the value "true". Like ModeAnnotation, it is valid on
	// the workload, on its pod template and on its VPA.
	SkipAnnotation = "loadline.dev/skip"
	// ModeAnnotation requests a more cautious mode than the policy.
	ModeAnnotation = "loadline.dev/mode"
	// UnselectedAnnotation is the time (RFC 3339) since which a generated VPA is unused.
	UnselectedAnnotation = "loadline.dev/unselected-since"
)

// Annotations of other projects that exclude a workload with the value "true".
const (
	attuneSkip         = "attune.io/skip"
	cruiseKubeExcluded = "cruisekube.truefoundry.com/excluded"
)

// Annotations returns the keys of all annotations that Decide evaluates.
func Annotations() []string {
	return append([]string{SkipAnnotation, ModeAnnotation, sharing.SharingAnnotation, sharing.RankAnnotation}, ForeignAnnotations()...)
}

// ForeignAnnotations returns the keys of other projects that Decide evaluates with Options.Foreign.
func ForeignAnnotations() []string { return []string{attuneSkip, cruiseKubeExcluded} }

// HasAnnotation reports whether any annotation is relevant for Decide.
func HasAnnotation(annotations map[string]string) bool {
	for key := range annotations {
		if IsAnnotation(key) {
			return true
		}
	}
	return false
}

// IsAnnotation reports whether Decide evaluates annotations with the key.
func IsAnnotation(key string) bool {
	switch key {
	case SkipAnnotation, ModeAnnotation, sharing.SharingAnnotation, sharing.RankAnnotation, attuneSkip, cruiseKubeExcluded:
		return true
	}
	return false
}

// Selector is a label selector.
type Selector interface {
	Matches(labels map[string]string) bool
}

// Policy is a SizingPolicy.
type Policy struct {
	Name         string
	Priority     int // 1 to 1000, the highest wins; 0 is unset and counts as 100
	Paused       bool
	Recommender  string // name of the recommender for generated VPAs
	Namespaces   Namespaces
	Workloads    []Match // a workload must match one
	GenerateVPAs bool    // for workloads without a VPA
	Mode         Mode
	Recipe       string // for VPAs without one, empty is the default of the recommender
	Initial      InitialSizing
	// RolloutHash covers the fields that restart a rollout.
	RolloutHash string

	// MinHistory is the minimum length of usage history for a change of a pod; 0: none.
	MinHistory time.Duration

	// IgnoresHPAs allows changes of resources that a HorizontalPodAutoscaler scales by.
	IgnoresHPAs bool

	Sharing Sharing

	// Unusable is why the policy cannot be used, or empty. It still holds the workloads that it
	// selects, so an unreadable selector is replaced with the last readable one, or with
	// everything.
	Unusable string
}

// AllNamespaces as a name selects all namespaces except system namespaces.
const AllNamespaces = "*"

// Namespaces selects the namespaces of a policy.
type Namespaces struct {
	Names    []string // "*" selects all except system namespaces
	Selector Selector // by namespace labels, nil selects none
	Exclude  []string // takes precedence over the other two
}

// Match selects workloads of one kind.
type Match struct {
	Group, Kind string
	Name        string   // empty matches any
	Selector    Selector // by workload labels, nil matches any
}

// Workload is a workload with its VPA.
type Workload struct {
	Group, Kind, Namespace, Name string

	Labels map[string]string
	// LabelsUnknown means that a policy that selects by labels holds the workload.
	LabelsUnknown bool

	Annotations         map[string]string
	TemplateAnnotations map[string]string
	// NamespaceLabels are nil if unknown. A policy that selects by them then holds the workload.
	NamespaceLabels map[string]string

	VPA VPA
}

// VPA is the VPA of a workload; zero: missing. A user VPA takes precedence over a generated one.
type VPA struct {
	Origin      VPAOrigin
	Passive     bool // mode Off or Initial: no changes of running pods
	Annotations map[string]string
}

// VPAOrigin distinguishes user VPAs from generated ones.
type VPAOrigin uint8

// Origins of a VPA.
const (
	NoVPA VPAOrigin = iota // the workload has no VPA
	UserVPA
	GeneratedVPA // created by Loadline for a policy
)

// Decision is the policy decision for a workload; zero: no policy, only the VPA controls it.
type Decision struct {
	Policy *Policy       // read-only, nil if no policy selects the workload
	Mode   Mode          // at most Policy.Mode, and at most Recommend if Reason stops changes
	Reason reason.Reason // why running pods do not change, empty if they may
	// Problem describes invalid annotations and the valid values, without the workload's name.
	Problem     string
	GenerateVPA bool // a VPA is missing and must be generated
	KeepVPA     bool // a generated VPA is still required

	// SharingOptedOut reports that an annotation excludes the pods from sharing, see SharingMode.
	SharingOptedOut bool
	annotations     [3]map[string]string // of workload, pod template and VPA
}

// listed contains the kinds that a policy can select without a name, with their API versions.
var listed = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}

// ListedKinds returns the kinds that can be selected without a name, sorted.
func ListedKinds() []string { return slices.Sorted(maps.Keys(listed)) }

// ListedVersion returns the API version of a listed kind.
func ListedVersion(kind string) (apiVersion string, is bool) {
	apiVersion, is = listed[kind]
	return apiVersion, is
}

// Listed reports whether a kind can be selected without a name.
func Listed(group, kind string) bool {
	_, is := listed[kind]
	return is && BuiltIn(group)
}

// Maximum lengths. A checkpoint name, <VPA>-<container>, has at most 253 characters.
const (
	maxNameLength          = 253
	maxContainerNameLength = 63
	maxGeneratedNameLength = maxNameLength - maxContainerNameLength - len("-")

	hashBytes = 5 // two characters each
)

// GeneratedVPAName returns the name of the generated VPA for a workload: <kind>-<workload> in lower
// case. A hash is appended for custom kinds, for names that would make checkpoint names too long,
// and for invalid names. The result is a DNS subdomain name.
func GeneratedVPAName(kind, group, name string) string {
	plain := strings.ToLower(kind) + "-" + name
	if BuiltInKind(kind) && BuiltIn(group) && len(plain) <= maxGeneratedNameLength && isSubdomain(name) {
		return plain
	}
	if BuiltInKind(kind) && BuiltIn(group) {
		group = "" // ignores variants of the API group in references
	}
	sum := sha256.Sum256([]byte(group + "\x00" + kind + "\x00" + name))
	hash := hex.EncodeToString(sum[:hashBytes])
	room := maxGeneratedNameLength - len("-") - len(hash)
	// The text is ASCII here, so cutting it leaves no partial character.
	readable := strings.Trim(strings.Map(letterOrDash, plain), "-")
	readable = strings.TrimRight(readable[:min(len(readable), room)], "-")
	if readable == "" {
		return hash
	}
	return readable + "-" + hash
}

// BuiltInKind reports whether a workload kind is part of Kubernetes.
func BuiltInKind(kind string) bool {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob":
		return true
	}
	return false
}

func letterOrDash(r rune) rune {
	if isAlphanumeric(r) {
		return r
	}
	return '-'
}

func isAlphanumeric(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

func isSubdomain(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if !isAlphanumeric(r) && r != '-' {
				return false
			}
		}
	}
	return true
}
