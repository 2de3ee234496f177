package rollouts

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
)

// Save stores and announces transitions without a pod change. It records the free pods that the
// plan did not change, so that the next iteration prefers others.
func (h *Holds) Save(ctx context.Context, planned []disruption.Action) {
	passed, changes := map[string]time.Time{}, map[string]bool{}
	for i := range planned {
		if a := &planned[i]; !a.SharesOnly() {
			changes[a.UID] = true
		}
	}
	observed, conflicts := 0, 0
	var turned []*Hold
	for v := range h.view.VPAs {
		name := h.name(v)
		if e := h.policy(v); e != nil && e.Conflicting != "" && conflicts < report.MaxEvents && h.announcePolicyConflict(name, e) {
			conflicts++
		}
		hold := h.holds[name]
		if hold == nil {
			continue
		}
		for i := range hold.input.Pods {
			pod := &hold.input.Pods[i]
			if hold.Pods[i].Free && !changes[pod.UID] {
				passed[pod.UID] = h.now
			} else if at, known := h.passedOver[pod.UID]; known {
				passed[pod.UID] = at
			}
			if !pod.ObservedSince.IsZero() {
				observed++
			}
		}
		if !hold.stored && hold.hasTransition() {
			turned = append(turned, hold)
		}
	}
	h.storeDeferred(ctx, turned)
	for v := range h.view.VPAs {
		name := h.name(v)
		if hold := h.holds[name]; hold != nil {
			h.announce(name, hold)
		}
	}
	h.Announcer.Forget(h.now)
	if len(h.holds) > 0 || len(h.passedOver) > 0 {
		h.Metrics.Observed(observed)
	}
	h.passedOver = passed
	h.reportFuses(ctx)
}

// hasTransition is false for rounds without changes and workloads without a record.
func (h *Hold) hasTransition() bool {
	return len(h.before.Rounds) > 0 && h.State.HasAdvanced(h.before)
}

// maxDeferredWrites bounds the records per iteration that are written without a pod change.
const maxDeferredWrites = 100

// storeDeferred serves namespaces in turns, so that none delays others by over an iteration.
func (h *Holds) storeDeferred(ctx context.Context, all []*Hold) {
	namespace := func(one *Hold) string { return one.Workload.Key.Namespace }
	if next := slices.IndexFunc(all, func(one *Hold) bool { return namespace(one) > h.lastStored }); next > 0 {
		all = slices.Concat(all[next:], all[:next])
	}
	written := 0
	fairwork.Run(fairwork.RoundRobin(all, namespace), 1, namespace,
		func(*Hold) bool { return written < maxDeferredWrites && ctx.Err() == nil },
		func(_ int, one *Hold) {
			if h.limited[namespace(one)] {
				return // the next iteration retries
			}
			written++
			h.lastStored = namespace(one)
			_ = h.store(ctx, one) // failures are logged, and the next iteration retries
		})
}

// announcePolicyConflict reports whether the event about the two policies was due.
func (h *Holds) announcePolicyConflict(name cache.ObjectName, e *policies.Effective) bool {
	policy := e.PolicyName()
	return h.Announcer.Announce(report.Event{VPA: name, Reason: report.EventPolicyConflict, About: policy + " " + e.Conflicting},
		"SizingPolicies "+policy+" and "+e.Conflicting+" select the workload and have the same priority: "+policy+" applies because its name sorts first; set different values of spec.priority, or let only one of them select it", h.now)
}

// announce emits events about the rollout of a VPA, each at most once an hour.
func (h *Holds) announce(name cache.ObjectName, hold *Hold) {
	announce := func(event, about, message string) {
		h.Announcer.Announce(report.Event{VPA: name, Reason: event, About: about}, message, h.now)
	}
	if hold.stored && hold.before.Phase == rollout.PhaseCanary && hold.State.Phase == rollout.PhaseFullRollout {
		announce(report.EventCanaryPromoted, "", "Canary promoted: all pods may be changed")
	}
	if why := obstacleMessages[hold.Canary]; why != "" && (hold.Canary != rollout.NotObserved || !hold.State.CanarySince.IsZero()) {
		announce(report.EventCanaryHeld, why, why)
	}
	if hold.HasHPA {
		announce(report.EventHPAConflict, hold.PolicyName(), "A HorizontalPodAutoscaler scales on resources managed by SizingPolicy "+hold.PolicyName()+", which are handled according to spec.rollout.hpa")
	}
	due := slices.ContainsFunc(hold.Pods, func(a rollout.PodHold) bool { return a.Reason == reason.CoolingDown })
	if due && !hold.Next.IsZero() {
		announce(report.EventCooldownActive, "", "Pods are not changed before "+hold.Next.UTC().Format(time.RFC3339)+", cooling down after the last round of changes")
	}
	if hold.State.ScheduleBlocked.Reason != "" {
		opens := "never, because its time zone or windows are invalid"
		if !hold.Next.IsZero() {
			opens = hold.Next.UTC().Format(time.RFC3339)
		}
		h.Announcer.Announce(report.Event{VPA: name, Reason: report.EventScheduleSkipped, About: hold.PolicyName(), Next: hold.Next.Unix()},
			"Pods are not changed outside of the schedule of SizingPolicy "+hold.PolicyName()+"; it opens "+opens, h.now)
	}
}

var obstacleMessages = map[rollout.Obstacle]string{
	rollout.MemberNotSuccessful: "Canary not promoted: the change of a canary pod failed or is pending",
	rollout.NotObserved:         "Canary not promoted: no change completed its observation",
	rollout.MembersBlocked:      "Canary not promoted: the nodes of the canary pods do not grant the change",
	rollout.AutoPromoteOff:      "Canary succeeded but is not promoted automatically: set spec.rollout.canary.autoPromote",
}
