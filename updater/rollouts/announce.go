package rollouts

import (
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
)

// announcePolicyConflict writes an event about two policies of the same priority, and reports whether it was due.
func (h *Holds) announcePolicyConflict(name cache.ObjectName, e *policies.Effective) bool {
	policy := e.PolicyName()
	return h.Announcer.Announce(report.Event{VPA: name, Reason: report.EventPolicyConflict, About: policy + " " + e.Rival},
		"SizingPolicies "+policy+" and "+e.Rival+" select the workload and have the same priority: "+policy+" is responsible alone, since its name is smaller; give them different values of spec.priority, or let only one of them select it", h.now)
}

// announce writes events about the rollout of a VPA, each at most once an hour.
func (h *Holds) announce(name cache.ObjectName, hold *Hold) {
	announce := func(event, about, message string) {
		h.Announcer.Announce(report.Event{VPA: name, Reason: event, About: about}, message, h.now)
	}
	if hold.stored && hold.before.Phase == rollout.PhaseCanary && hold.State.Phase == rollout.PhaseFullRollout {
		announce(report.EventCanaryPromoted, "", "The canary did well: all pods may be changed")
	}
	if why := obstacles[hold.Canary]; why != "" && (hold.Canary != rollout.NotObserved || !hold.State.CanarySince.IsZero()) {
		announce(report.EventCanaryHeld, why, why)
	}
	if hold.HPA {
		announce(report.EventHPAConflict, hold.PolicyName(), "A HorizontalPodAutoscaler looks at resources of the pods that SizingPolicy "+hold.PolicyName()+" would change: spec.rollout.hpa says what becomes of these")
	}
	due := slices.ContainsFunc(hold.Pods, func(a rollout.PodHold) bool { return a.Reason == reason.CoolingDown })
	if due && !hold.Next.IsZero() {
		announce(report.EventCooldownActive, "", "Pods are not changed before "+hold.Next.UTC().Format(time.RFC3339)+": the last round of changes ended a short time ago")
	}
	if hold.State.ScheduleBlocked.Reason != "" {
		opens := "never: its zone or its windows cannot be read"
		if !hold.Next.IsZero() {
			opens = hold.Next.UTC().Format(time.RFC3339)
		}
		h.Announcer.Announce(report.Event{VPA: name, Reason: report.EventScheduleSkipped, About: hold.PolicyName(), Next: hold.Next.Unix()},
			"Pods are not changed outside of the schedule of SizingPolicy "+hold.PolicyName()+"; it opens "+opens, h.now)
	}
}

// obstacles are the messages about canaries that are not promoted after their round.
var obstacles = map[rollout.Obstacle]string{
	rollout.MemberNotSuccessful: "The canary is not promoted: the change of a member did not end well, or is still to come",
	rollout.NotObserved:         "The canary is not promoted: no change of it was observed to its end",
	rollout.MembersBlocked:      "The canary is not promoted: the nodes of its members do not grant the change",
	rollout.AutoPromoteOff:      "The canary did well and waits to be promoted: set spec.rollout.canary.autoPromote",
}
