// Package status composes and writes the status of VPAs.
//
// Compose returns the whole status: recommendation, conditions and observed generation. Writer
// patches the status subresource if it differs in meaning.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
)

// TargetConflict reports that another VPA controls the same pods.
const TargetConflict vpav1.VerticalPodAutoscalerConditionType = "TargetConflict"

// Conditions that only Loadline has.
const (
	// TargetHeld reports that a published target is not lowered, because history may be incomplete.
	TargetHeld vpav1.VerticalPodAutoscalerConditionType = "TargetHeld"
	// TargetUnsaved reports that a restart may lower a target, because its history is not saved.
	TargetUnsaved vpav1.VerticalPodAutoscalerConditionType = "TargetUnsaved"
	// InvalidRecipe reports that the recipe annotation is invalid, or not allowed by a policy.
	InvalidRecipe vpav1.VerticalPodAutoscalerConditionType = "InvalidRecipe"
	// UsageAmbiguous reports that series of a container are from several clusters or replicas.
	UsageAmbiguous vpav1.VerticalPodAutoscalerConditionType = "UsageAmbiguous"
	// MemoryGrowth reports that the memory usage of a container grows daily, as with a leak.
	MemoryGrowth vpav1.VerticalPodAutoscalerConditionType = "MemoryGrowth"
	// TooManyContainers reports containers without a recommendation, because the VPA has too many.
	TooManyContainers vpav1.VerticalPodAutoscalerConditionType = "TooManyContainers"
	// StatusTooLarge reports that a recommendation exceeds MaxBytes, so the published one stays.
	StatusTooLarge vpav1.VerticalPodAutoscalerConditionType = "StatusTooLarge"
	// WriteLimited reports that the write limit of the namespace delayed the status.
	WriteLimited vpav1.VerticalPodAutoscalerConditionType = "WriteLimited"
	// SufficientHistory reports the length of the history behind the recommendation.
	SufficientHistory = convert.SufficientHistory
)

// Recommended is the recommendation of a container.
type Recommended = vpav1.RecommendedContainerResources

// Outcome is the result of an iteration for a VPA.
type Outcome struct {
	Recommendation []Recommended              // sorted by container name
	Pods           int                        // number of selected pods
	TargetError    string                     // why the target is unusable, or empty
	Conflict       string                     // why another VPA controls the same pods, or empty
	Held           string                     // held targets and the reason, or empty
	MissingPoints  string                     // containers with too few points, or empty
	Rising         string                     // containers with growing memory, or empty
	Omitted        string                     // containers above the limit of a VPA, or empty
	Outranked      bool                       // MaxVPAs other VPAs get the usage, see Conflict
	TooLarge       bool                       // the status exceeds MaxBytes
	Ambiguous      string                     // why usage of a container is ignored, or empty
	WriteLimited   bool                       // the namespace write limit delayed this status
	Unsaved        bool                       // the history could not be saved
	History        time.Duration              // min time covered by the samples of each container
	Histories      []convert.ContainerHistory // of recommended containers, sorted by name
	KeepGeneration bool                       // keep the observed generation of the status
	Observing      string                     // policy in mode Observe, or empty
	Recipe         string                     // why another recipe is used, or empty
	RecipePolicy   string                     // policy with a recipe that overrides the annotation, or empty
	MemoryLimits   string                     // describes independent memory limits, or empty
}

// Covered rounds span down to a history step, so that estimates change only with the step.
func Covered(span time.Duration) time.Duration {
	return convert.HistorySteps[convert.HistoryStep(span)].From
}

const noPods = "NoPodsMatched"

func reasonIf(lacks string) string {
	if lacks == "" {
		return ""
	}
	return "FewPoints"
}

// Compose returns the new status of a VPA. Conditions of other writers stay.
func Compose(vpa *vpav1.VerticalPodAutoscaler, o Outcome, now time.Time) vpav1.VerticalPodAutoscalerStatus {
	c := storedConditions(vpa, now)
	switch {
	case o.Observing != "":
		c.set(vpav1.RecommendationProvided, corev1.ConditionFalse, "Observing", observingMessage(&o))
	case len(o.Recommendation) > 0:
		c.set(vpav1.RecommendationProvided, corev1.ConditionTrue, "", "")
	case o.Outranked:
		c.set(vpav1.RecommendationProvided, corev1.ConditionFalse, "TooManyVPAs", o.Conflict)
	case o.TooLarge:
		c.set(vpav1.RecommendationProvided, corev1.ConditionFalse, "StatusTooLarge", ErrTooLarge.Error())
	case o.Pods == 0:
		c.set(vpav1.RecommendationProvided, corev1.ConditionFalse, noPods, "no pod matches the target and no history is left, so nothing can be recommended")
	default:
		c.set(vpav1.RecommendationProvided, corev1.ConditionFalse, reasonIf(o.MissingPoints), o.MissingPoints)
	}
	c.setIf(o.Pods == 0, vpav1.NoPodsMatched, noPods, "no pod matches the selector of the target")
	c.setIf(false, vpav1.ConfigDeprecated, "", "")
	c.setIf(o.TargetError != "", vpav1.ConfigUnsupported, "", o.TargetError)
	c.setIf(o.Conflict != "", TargetConflict, "OtherVPAControls", o.Conflict)
	c.setIf(o.Held != "", TargetHeld, "HistoryIncomplete", o.Held)
	c.setIf(o.Omitted != "", TooManyContainers, "LimitExceeded", o.Omitted)
	c.setIf(o.TooLarge, StatusTooLarge, "LimitExceeded", ErrTooLarge.Error())
	c.setIf(o.Ambiguous != "", UsageAmbiguous, "SeriesDiffer", o.Ambiguous)
	c.setIf(o.Rising != "", MemoryGrowth, "GrowsEachDay", o.Rising)
	c.setIf(o.MemoryLimits != "" && len(o.Recommendation) > 0, convert.SeparateMemoryLimit, "RequestFollowsUse", o.MemoryLimits)
	c.setIf(o.Unsaved, TargetUnsaved, "SaveFailed", "the checkpoints behind the recommendation cannot be written: see the log of the recommender")
	if o.RecipePolicy != "" {
		c.set(InvalidRecipe, corev1.ConditionTrue, "PolicyRestricts", "annotation "+recipe.Annotation+" has no effect: SizingPolicy "+o.RecipePolicy+
			" applies its own recipe to all VPAs (spec.sharing.userVPAs is Restrict)")
	} else {
		c.setIf(o.Recipe != "", InvalidRecipe, "BadAnnotation", o.Recipe)
	}
	c.setIf(o.WriteLimited, WriteLimited, "LimitExceeded", "this status was written late, because the namespace had used its write limit")
	c.setSufficientHistory(&o)
	observed := vpa.Generation
	if o.KeepGeneration {
		observed = vpa.Status.ObservedGeneration
	}
	c.sort()
	return vpav1.VerticalPodAutoscalerStatus{
		Recommendation:     &vpav1.RecommendedPodResources{ContainerRecommendations: o.Recommendation},
		Conditions:         c.list,
		ObservedGeneration: observed,
	}
}

// ComposeRefused returns the conditions of a VPA with an incomplete cache entry, see
// client.VPARefused. Conditions for the stored recommendation stay.
func ComposeRefused(vpa *vpav1.VerticalPodAutoscaler, now time.Time) []vpav1.VerticalPodAutoscalerCondition {
	c := storedConditions(vpa, now)
	if c.find(vpav1.RecommendationProvided) < 0 {
		c.set(vpav1.RecommendationProvided, corev1.ConditionFalse, "", "")
	}
	c.set(vpav1.ConfigUnsupported, corev1.ConditionTrue, "", convert.UnreadableReason(vpa))
	c.sort()
	return c.list
}

type conditions struct {
	list []vpav1.VerticalPodAutoscalerCondition
	now  metav1.Time
}

// renamedConditions maps earlier condition types to their current names.
var renamedConditions = map[vpav1.VerticalPodAutoscalerConditionType]vpav1.VerticalPodAutoscalerConditionType{
	"WrongRecipe":  InvalidRecipe,
	"RisingMemory": MemoryGrowth,
}

func storedConditions(vpa *vpav1.VerticalPodAutoscaler, now time.Time) conditions {
	c := conditions{now: metav1.NewTime(now.Truncate(time.Second))}
	for _, x := range vpa.Status.Conditions {
		if name, old := renamedConditions[x.Type]; old {
			x.Type = name
		}
		if c.find(x.Type) < 0 {
			c.list = append(c.list, x)
		}
	}
	return c
}

func (c *conditions) find(t vpav1.VerticalPodAutoscalerConditionType) int {
	return slices.IndexFunc(c.list, func(x vpav1.VerticalPodAutoscalerCondition) bool { return x.Type == t })
}

// sort puts Loadline's conditions after RecommendationProvided: clients read the first by position.
func (c *conditions) sort() {
	after := func(t vpav1.VerticalPodAutoscalerConditionType) int {
		if t == InvalidRecipe || t == MemoryGrowth || t > vpav1.RecommendationProvided {
			return 1
		}
		return 0
	}
	slices.SortFunc(c.list, func(a, b vpav1.VerticalPodAutoscalerCondition) int {
		return cmp.Or(cmp.Compare(after(a.Type), after(b.Type)), cmp.Compare(a.Type, b.Type))
	})
}

// set changes the transition time of a condition only with its status.
func (c *conditions) set(t vpav1.VerticalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	if len(message) > convert.MaxConditionMessage {
		message = strings.ToValidUTF8(message[:convert.MaxConditionMessage], "")
	}
	fresh := vpav1.VerticalPodAutoscalerCondition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: c.now}
	at := c.find(t)
	if at < 0 {
		c.list = append(c.list, fresh)
		return
	}
	if c.list[at].Status == status {
		fresh.LastTransitionTime = c.list[at].LastTransitionTime
	}
	c.list[at] = fresh
}

func (c *conditions) setIf(holds bool, t vpav1.VerticalPodAutoscalerConditionType, reason, message string) {
	if holds {
		c.set(t, corev1.ConditionTrue, reason, message)
		return
	}
	c.list = slices.DeleteFunc(c.list, func(x vpav1.VerticalPodAutoscalerCondition) bool { return x.Type == t })
}

// day is the minimum history for meaningful bounds.
const day = 24 * time.Hour

func (c *conditions) setSufficientHistory(o *Outcome) {
	switch {
	case len(o.Recommendation) == 0:
		c.setIf(false, SufficientHistory, "", "")
	case o.MissingPoints != "":
		c.set(SufficientHistory, corev1.ConditionFalse, reasonIf(o.MissingPoints), o.MissingPoints+"; "+convert.HistoryMessage(o.Histories))
	case Covered(o.History) < day:
		c.set(SufficientHistory, corev1.ConditionFalse, "FewSamples", convert.HistoryMessage(o.Histories))
	default:
		c.set(SufficientHistory, corev1.ConditionTrue, "", convert.HistoryMessage(o.Histories))
	}
}

func observingMessage(o *Outcome) string {
	message := "SizingPolicy " + o.Observing + " is in mode Observe and publishes no recommendation"
	switch {
	case o.MissingPoints != "":
		return message + "; " + o.MissingPoints
	case o.Pods == 0:
		return message + "; no pod matches the target"
	}
	return message + "; the observed usage of every container covers " + convert.StepText(convert.HistoryStep(o.History)) + ", and 8 days show a whole week"
}

// Provided reports whether the status of a VPA has a valid recommendation.
func Provided(vpa *vpav1.VerticalPodAutoscaler) bool {
	return Holds(vpa, vpav1.RecommendationProvided) && vpa.Status.Recommendation != nil
}

// Holds reports whether a condition of a VPA is true.
func Holds(vpa *vpav1.VerticalPodAutoscaler, t vpav1.VerticalPodAutoscalerConditionType) bool {
	c := conditions{list: vpa.Status.Conditions}
	at := c.find(t)
	return at >= 0 && c.list[at].Status == corev1.ConditionTrue
}

// Message returns the message of a condition if it is true, else an empty string.
func Message(vpa *vpav1.VerticalPodAutoscaler, t vpav1.VerticalPodAutoscalerConditionType) string {
	if !Holds(vpa, t) {
		return ""
	}
	c := conditions{list: vpa.Status.Conditions}
	return c.list[c.find(t)].Message
}

// MaxBytes limits the JSON of a status, because every program caches all and etcd stores them.
const MaxBytes = 256 << 10

// ErrTooLarge reports that a status exceeds MaxBytes. It is also the message of StatusTooLarge.
var ErrTooLarge = fmt.Errorf("the status exceeds %d KiB, so it is not written: set mode Off for some containers, or split the workload", MaxBytes>>10)

// Writer writes the status of VPAs. It is safe for concurrent use.
type Writer struct{ Client versioned.Interface }

// Write patches the status and reports true, unless the meaning is the same: quantities compare by
// value, and empty lists equal missing ones. It returns ErrTooLarge instead of writing more than
// MaxBytes.
func (w Writer) Write(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler, status vpav1.VerticalPodAutoscalerStatus) (bool, error) {
	if equalStatus(&vpa.Status, &status) {
		return false, nil
	}
	body, err := json.Marshal([]client.PatchOperation{client.PatchAdd("/status", status)})
	if err != nil {
		return false, fmt.Errorf("write the status of VPA %s/%s: %w", vpa.Namespace, vpa.Name, err)
	}
	if len(body) > MaxBytes {
		return false, fmt.Errorf("write the status of VPA %s/%s: %w", vpa.Namespace, vpa.Name, ErrTooLarge)
	}
	return w.patch(ctx, vpa, types.JSONPatchType, body)
}

// WriteConditions replaces only the conditions. It reports whether it sent a patch.
func (w Writer) WriteConditions(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler, list []vpav1.VerticalPodAutoscalerCondition) (bool, error) {
	if slices.EqualFunc(vpa.Status.Conditions, list, sameCondition) {
		return false, nil
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
	if err != nil {
		return false, fmt.Errorf("write the conditions of VPA %s/%s: %w", vpa.Namespace, vpa.Name, err)
	}
	return w.patch(ctx, vpa, types.MergePatchType, body)
}

func (w Writer) patch(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler, kind types.PatchType, body []byte) (bool, error) {
	_, err := w.Client.AutoscalingV1().VerticalPodAutoscalers(vpa.Namespace).Patch(ctx, vpa.Name, kind, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return false, fmt.Errorf("write the status of VPA %s/%s: %w", vpa.Namespace, vpa.Name, err)
	}
	return true, nil
}

// The functions below compare like equality.Semantic at a tenth of the cost, for every VPA with
// changed estimates.

func equalStatus(a, b *vpav1.VerticalPodAutoscalerStatus) bool {
	return SameButBounds(a, b) && (a.Recommendation == nil ||
		slices.EqualFunc(a.Recommendation.ContainerRecommendations, b.Recommendation.ContainerRecommendations, func(a, b Recommended) bool {
			return sameList(a.LowerBound, b.LowerBound) && sameList(a.UpperBound, b.UpperBound)
		}))
}

// SameButBounds reports whether two statuses differ at most in bounds. A memory bound that limits
// protect counts as a target.
func SameButBounds(a, b *vpav1.VerticalPodAutoscalerStatus) bool {
	if (a.Recommendation == nil) != (b.Recommendation == nil) ||
		a.ObservedGeneration != b.ObservedGeneration || !sameConditions(a.Conditions, b.Conditions) {
		return false
	}
	separate := convert.HasSeparateMemoryLimit(a)
	return a.Recommendation == nil ||
		slices.EqualFunc(a.Recommendation.ContainerRecommendations, b.Recommendation.ContainerRecommendations, func(a, b Recommended) bool {
			return a.ContainerName == b.ContainerName && sameList(a.Target, b.Target) && sameList(a.UncappedTarget, b.UncappedTarget) &&
				(!separate || convert.Resources(a.UpperBound).Value(resources.Memory) == convert.Resources(b.UpperBound).Value(resources.Memory))
		})
}

// sameConditions ignores WriteLimited, which describes the write of the other fields: a write that
// only changed it would use up the limit.
func sameConditions(a, b []vpav1.VerticalPodAutoscalerCondition) bool {
	skip := func(list []vpav1.VerticalPodAutoscalerCondition) []vpav1.VerticalPodAutoscalerCondition {
		if len(list) > 0 && list[0].Type == WriteLimited {
			return list[1:]
		}
		return list
	}
	for a, b = skip(a), skip(b); len(a) > 0 && len(b) > 0; a, b = skip(a[1:]), skip(b[1:]) {
		if !sameCondition(a[0], b[0]) {
			return false
		}
	}
	return len(a) == len(b)
}

func sameCondition(a, b vpav1.VerticalPodAutoscalerCondition) bool {
	at := a.LastTransitionTime
	a.LastTransitionTime = b.LastTransitionTime
	return at.Equal(&b.LastTransitionTime) && a == b
}

func sameList(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		other, found := b[name]
		if !found || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
