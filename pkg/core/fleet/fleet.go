// Package fleet answers which policy is responsible for a workload, and in which mode.
//
// A Policy is a SizingPolicy as a plain value. NewSet sorts all of them once; Set.For then decides about one Workload:
// the strongest policy that selects it is responsible alone, and nothing is merged. Annotations and a VPA that a person
// wrote can only reduce what the policy gives. What cannot be read changes nothing: a policy that is not usable still
// holds its workloads, and a made VPA without a policy is left alone.
//
// The package reads no objects and makes none; MadeName only says how a made VPA is called.
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

// Labels and annotations that people and programs write.
const (
	// PolicyLabel of a VPA says that it was made, and by which policy.
	PolicyLabel = "loadline.dev/policy"
	// SkipAnnotation takes a workload out with the value "true". It may be on the workload,
	// on its pod template, or on its VPA, like the next one.
	SkipAnnotation = "loadline.dev/skip"
	// ModeAnnotation asks for a more cautious mode than that of the policy.
	ModeAnnotation = "loadline.dev/mode"
	// UnselectedAnnotation of a made VPA says since when (RFC 3339) it is no longer needed.
	UnselectedAnnotation = "loadline.dev/unselected-since"
)

// Annotations of other projects that take a workload out with the value "true".
const (
	attuneSkip         = "attune.io/skip"
	cruiseKubeExcluded = "cruisekube.truefoundry.com/excluded"
)

// Annotations returns the keys of all annotations that For looks at.
func Annotations() []string {
	return append([]string{SkipAnnotation, ModeAnnotation, sharing.OffAnnotation, sharing.RankAnnotation}, ForeignAnnotations()...)
}

// ForeignAnnotations returns the keys of other projects that count with Options.Foreign.
func ForeignAnnotations() []string { return []string{attuneSkip, cruiseKubeExcluded} }

// Annotated reports whether there are annotations that For looks at.
func Annotated(annotations map[string]string) bool {
	for key := range annotations {
		if Counts(key) {
			return true
		}
	}
	return false
}

// Counts reports whether For looks at annotations of a key.
func Counts(key string) bool {
	switch key {
	case SkipAnnotation, ModeAnnotation, sharing.OffAnnotation, sharing.RankAnnotation, attuneSkip, cruiseKubeExcluded:
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
	Name        string
	Priority    int // 1 to 1000, the highest is the strongest; 0: not written, counts as 100
	Paused      bool
	Recommender string // that makes its VPAs
	Namespaces  Namespaces
	Workloads   []Match // a workload must match one
	MakeVPAs    bool    // for workloads without one
	Mode        Mode
	Recipe      string // for VPAs that ask for none; empty: that of the recommender
	Initial     InitialSizing
	// RolloutHash stands for the fields with which a rollout begins anew.
	RolloutHash string

	// MinHistory is the span of usage that a recommendation must rest on before it changes a pod; 0: any.
	MinHistory time.Duration

	// BesideHPAs says that also resources are changed that a HorizontalPodAutoscaler looks at.
	BesideHPAs bool

	Sharing Sharing

	// Unusable says why the policy cannot be used; empty: it can. It still holds what it selects, so a selector that
	// cannot be read is given as it was last read, or else as one that matches everything.
	Unusable string
}

// AllNamespaces among the names stands for every namespace but those of the system.
const AllNamespaces = "*"

// Namespaces says where a policy looks for workloads.
type Namespaces struct {
	Names    []string // "*": all but those of the system
	Selector Selector // of labels of namespaces; nil: selects none
	Exclude  []string // goes before the other two
}

// Match is one kind of workload, or some of a kind.
type Match struct {
	Group, Kind string
	Name        string   // empty: any
	Selector    Selector // of labels of the workload; nil: any
}

// Workload is what is known of a workload, and of the VPA that controls it.
type Workload struct {
	Group, Kind, Namespace, Name string

	Labels map[string]string
	// LabelsUnknown reports that Labels are not known, so that a policy that selects by them may be
	// responsible, and holds the workload.
	LabelsUnknown bool

	Annotations map[string]string
	// TemplateAnnotations are those of its pod template.
	TemplateAnnotations map[string]string
	// NamespaceLabels are the labels of its namespace. nil: they are not known, so that a
	// policy that selects by them may be responsible, and holds the workload.
	NamespaceLabels map[string]string

	VPA VPA
}

// VPA is the VPA that controls a workload: the one that a person wrote if there is one,
// else the made one. The zero value says that there is none.
type VPA struct {
	Author      Author
	Passive     bool // its mode is Off or Initial: no running pod is changed
	Annotations map[string]string
}

// Author is who made a VPA.
type Author uint8

// The authors.
const (
	Nobody Author = iota // there is no VPA
	Person
	Loadline // for a policy
)

// Decision is what holds for a workload. The zero value says that no policy has a say:
// the workload is treated as its VPA says.
type Decision struct {
	Policy *Policy       // responsible alone, not to be changed; nil: none selects the workload
	Mode   Mode          // never more than Policy.Mode gives; at most Recommend where Reason stops every change
	Reason reason.Reason // empty: running pods may be changed, as Mode says
	// Problem says which annotations cannot be read, and what would be right. The workload is not named.
	Problem string
	MakeVPA bool // a VPA is missing and is to be made
	KeepVPA bool // a made VPA is still needed

	// OutOfSharing says that an annotation keeps the pods from sharing what their nodes have left; see Shares.
	OutOfSharing bool
	annotations  [3]map[string]string // of the workload, its pod template and its VPA
}

// listed are the kinds whose workloads are known without a name, so that a policy can select
// them by their labels, with their API version.
var listed = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1"}

// ListedKinds returns the kinds whose workloads can be selected without a name, sorted.
func ListedKinds() []string { return slices.Sorted(maps.Keys(listed)) }

// ListedVersion returns the API version of such a kind; false: it is none.
func ListedVersion(kind string) (apiVersion string, is bool) {
	apiVersion, is = listed[kind]
	return apiVersion, is
}

// Listed reports whether workloads of a kind can be selected without a name. All others are found by their name.
func Listed(group, kind string) bool {
	_, is := listed[kind]
	return is && BuiltIn(group)
}

// A checkpoint is called <VPA>-<container>, and the API takes 253 characters.
const (
	longestName      = 253
	longestContainer = 63
	longestMade      = longestName - longestContainer - len("-")

	hashBytes = 5 // two characters each
)

// MadeName returns the name of the VPA that is made for a workload: <kind>-<workload> in lower case. A hash is added
// where another workload could have the same name (its kind is not one of Kubernetes itself), where the name had to be
// cut so that those of checkpoints are not too long, and where it would be no name. The result is a DNS subdomain name.
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
