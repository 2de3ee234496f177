package convert

import (
	"slices"
	"strings"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// SufficientHistory is the VPA condition with the amount of usage behind the recommendation.
const SufficientHistory vpav1.VerticalPodAutoscalerConditionType = "SufficientHistory"

// HistorySteps are the few spans in conditions and metrics, because each step is a status write.
var HistorySteps = [...]struct {
	Name string
	From time.Duration
}{
	{"less than 1 hour", 0}, {"1 hour", time.Hour}, {"6 hours", 6 * time.Hour}, {"1 day", day},
	{"2 days", 2 * day}, {"4 days", 4 * day}, {"8 days", 8 * day},
}

const day = 24 * time.Hour

// HistoryStep returns the index of the longest of HistorySteps that does not exceed span.
func HistoryStep(span time.Duration) int {
	step := 0
	for step+1 < len(HistorySteps) && span >= HistorySteps[step+1].From {
		step++
	}
	return step
}

// StepText describes a history step, such as "at least 6 hours".
func StepText(step int) string {
	if step == 0 {
		return HistorySteps[0].Name
	}
	return "at least " + HistorySteps[step].Name
}

// ContainerHistory is the time span of the usage history of one container.
type ContainerHistory struct {
	Name string
	Span time.Duration
}

const (
	covers      = " covers "
	byContainer = "; by container: "
	allOthers   = "all others"
)

// HistoryMessage returns the message of SufficientHistory for containers sorted by name. It lists
// single containers if their steps differ. History parses the message.
func HistoryMessage(containers []ContainerHistory) string {
	shortest, longest := len(HistorySteps)-1, 0
	for _, c := range containers {
		shortest, longest = min(shortest, HistoryStep(c.Span)), max(longest, HistoryStep(c.Span))
	}
	message := "the usage seen of every container" + covers + StepText(shortest)
	if HistorySteps[shortest].From < day {
		message = "the usage seen of some container" + covers + StepText(shortest) + "; a day is enough"
	}
	if shortest == longest {
		return message
	}
	var parts []string
	for _, c := range containers {
		if step := HistoryStep(c.Span); step < longest {
			parts = append(parts, c.Name+" "+StepText(step))
		}
	}
	return message + byContainer + strings.Join(append(parts, allOthers+" "+StepText(longest)), ", ")
}

// History returns the span of usage behind a recommendation, rounded down to a step. It returns
// false if condition SufficientHistory lacks it, as with another recommender.
func History(vpa *vpav1.VerticalPodAutoscaler, container string) (span time.Duration, known bool) {
	at := slices.IndexFunc(vpa.Status.Conditions, func(c vpav1.VerticalPodAutoscalerCondition) bool {
		return c.Type == SufficientHistory
	})
	if at < 0 {
		return 0, false
	}
	message, list, _ := strings.Cut(vpa.Status.Conditions[at].Message, byContainer)
	for part := range strings.SplitSeq(list, ", ") {
		for _, name := range []string{container, allOthers} {
			text, found := strings.CutPrefix(part, name+" ")
			if step := parseStep(text); found && step >= 0 {
				return HistorySteps[step].From, true
			}
		}
	}
	if _, text, found := strings.Cut(message, covers); found {
		text, _, _ = strings.Cut(text, ";")
		if step := parseStep(text); step >= 0 {
			return HistorySteps[step].From, true
		}
	}
	return 0, false
}

func parseStep(text string) int {
	for step := range HistorySteps {
		if text == StepText(step) {
			return step
		}
	}
	return -1
}

// HasShortHistory reports whether the recommendation for a container is based on less usage than
// required. The required span is capped at the longest step.
func HasShortHistory(vpa *vpav1.VerticalPodAutoscaler, container string, required time.Duration) bool {
	if required <= 0 {
		return false
	}
	span, known := History(vpa, container)
	return known && span < min(required, HistorySteps[len(HistorySteps)-1].From)
}

// AnyHasShortHistory is HasShortHistory for any container with a recommendation.
func AnyHasShortHistory(vpa *vpav1.VerticalPodAutoscaler, required time.Duration) bool {
	r := vpa.Status.Recommendation
	return required > 0 && r != nil && slices.ContainsFunc(r.ContainerRecommendations, func(c vpav1.RecommendedContainerResources) bool {
		return HasShortHistory(vpa, c.ContainerName, required)
	})
}
