package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

type scheduleInput struct {
	Now        time.Time
	Start, End string
	Days       []string
	Timezone   string
}

type scheduleOutput struct {
	Open bool `json:"open"`
}

// schedule reports whether pods may be changed. Without a start the window is the whole day.
func schedule(in scheduleInput) (out scheduleOutput, err error) {
	s := rollout.Schedule{}
	if zone, err := time.LoadLocation(in.Timezone); err == nil {
		s.Zone = zone
	}
	if in.Start != "" {
		var w rollout.Window
		if w.Start, err = rollout.ParseClock(in.Start); err != nil {
			return out, err
		}
		if w.End, err = rollout.ParseClock(in.End); err != nil {
			return out, err
		}
		s.Windows = append(s.Windows, w)
	}
	days := map[string]time.Weekday{}
	for day := range time.Weekday(7) {
		days[day.String()] = day
	}
	for _, name := range in.Days {
		day, known := days[name]
		if !known {
			return out, fmt.Errorf("input: day %q", name)
		}
		s.Days = append(s.Days, day)
	}
	return scheduleOutput{s.Open(in.Now)}, nil
}

// deployment returns a workload with due pods p0, p1, ...
func deployment(mode fleet.Mode, pods int) rollout.Workload {
	w := rollout.Workload{Mode: mode}
	for i := range pods {
		name := fmt.Sprint("p", i)
		w.Pods = append(w.Pods, rollout.Pod{UID: name, Name: name, Running: true, Due: true, Node: rollout.Node{Known: true}})
	}
	return w
}

// outcomes maps the letters of the cases to outcomes of changes.
var outcomes = map[rune]rollout.Outcome{'S': rollout.Success, 'R': rollout.Reverted, 'F': rollout.Failed, 'E': rollout.Evicted}

// applyChange adds a change of the pod p0 that ends immediately with an outcome.
func applyChange(s rollout.State, o rollout.Outcome, set rollout.Settings, at time.Time) rollout.State {
	change := rollout.Change{At: at}
	return s.RecordChange(change).EndObservation(rollout.ObservationEnd{UID: "p0", Change: change, Outcome: o}, set, at)
}

func applyRound(s rollout.State, o rollout.Outcome, set rollout.Settings, at time.Time) rollout.State {
	return rollout.Hold(applyChange(s, o, set, at), rollout.Workload{Mode: fleet.Auto}, set, at).State
}

type historyInput struct {
	BaseCooldownSeconds float64
	Results             string
}

type historyOutput struct {
	BackoffMultiplier        float64 `json:"backoffMultiplier"`
	ConsecutiveReverts       int     `json:"consecutiveReverts"`
	Degraded                 bool    `json:"degraded"`
	DegradedReason           string  `json:"degradedReason,omitempty"`
	EffectiveCooldownSeconds float64 `json:"effectiveCooldownSeconds"`
}

func history(in historyInput) (out historyOutput, err error) {
	set := rollout.Settings{Cooldown: vectors.Seconds(in.BaseCooldownSeconds)}
	var s rollout.State
	for _, letter := range in.Results {
		outcome, known := outcomes[letter]
		if !known {
			return out, fmt.Errorf("input: result %q", letter)
		}
		s = applyRound(s, outcome, set, evaluationTime())
	}
	effective := rollout.Cooldown(set.Cooldown, s.Reverts()).Seconds()
	return historyOutput{
		BackoffMultiplier: effective / in.BaseCooldownSeconds, ConsecutiveReverts: s.Reverts(),
		Degraded: s.Degraded.Reason != "", DegradedReason: s.Degraded.Reason, EffectiveCooldownSeconds: effective,
	}, nil
}

type cooldownInput struct {
	ConsecutiveReverts int
	CooldownSeconds    *float64
	LastResizeAge      string
}

type cooldownOutput struct {
	Active                   bool    `json:"active"`
	EffectiveCooldownSeconds float64 `json:"effectiveCooldownSeconds"`
}

func cooldown(in cooldownInput) (out cooldownOutput, err error) {
	set := rollout.Settings{Cooldown: vectors.SecondsOr(in.CooldownSeconds, rollout.DefaultCooldown)}
	var s rollout.State
	if in.LastResizeAge != "" {
		age, err := time.ParseDuration(in.LastResizeAge)
		if err != nil {
			return out, fmt.Errorf("input: %w", err)
		}
		last := evaluationTime().Add(age)
		s = applyRound(s, rollout.Success, set, last)
		for range in.ConsecutiveReverts {
			s = applyRound(s, rollout.Reverted, set, last)
		}
	}
	held := rollout.Hold(s, deployment(fleet.Auto, 1), set, evaluationTime())
	return cooldownOutput{held.Pods[0].Reason == reason.CoolingDown, rollout.Cooldown(set.Cooldown, in.ConsecutiveReverts).Seconds()}, nil
}

type eligibleInput struct {
	Pod string
}

type eligibleOutput struct {
	Deferred   bool `json:"deferred"`
	Eligible   bool `json:"eligible"`
	Infeasible bool `json:"infeasible"`
}

func eligible(in eligibleInput) (out eligibleOutput, err error) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
	}
	switch in.Pod {
	case "running":
	case "pending phase":
		pod.Status.Phase = corev1.PodPending
	case "terminating":
		pod.DeletionTimestamp = &metav1.Time{Time: evaluationTime()}
	case "PodResizeInProgress=True":
		condition(corev1.PodResizeInProgress, corev1.ConditionTrue, "")
	case "PodResizePending=True reason Infeasible":
		condition(corev1.PodResizePending, corev1.ConditionTrue, corev1.PodReasonInfeasible)
	case "PodResizePending=True reason Deferred":
		condition(corev1.PodResizePending, corev1.ConditionTrue, corev1.PodReasonDeferred)
	case "PodResizePending=False reason Deferred":
		condition(corev1.PodResizePending, corev1.ConditionFalse, corev1.PodReasonDeferred)
	default:
		return out, fmt.Errorf("input: pod %q", in.Pod)
	}
	read := newSnapshot(&vpav1.VerticalPodAutoscaler{}, nil).Pod(pod)
	p := rollout.Pod{Running: !read.Pending, Terminating: pod.DeletionTimestamp != nil}
	switch read.Resize {
	case disruption.NotResizing:
	case disruption.ResizeDeferred:
		p.Deferred = true
	case disruption.ResizeInfeasible:
		p.Infeasible = true
	default:
		p.Resizing = true
	}
	return eligibleOutput{p.Deferred, p.Eligible(), p.Infeasible}, nil
}

type selectInput struct {
	CanaryPercentage, FirstNDeferred int
	Mode                             string
	Pods                             int
}

type selectOutput struct {
	Selected []string `json:"selected"`
}

func selectPods(in selectInput) (out selectOutput, err error) {
	mode, known := fleet.ParseMode(in.Mode)
	if !known {
		return out, fmt.Errorf("input: mode %q", in.Mode)
	}
	w := deployment(mode, in.Pods)
	for i := range in.FirstNDeferred {
		w.Pods[i].Deferred = true
	}
	held := rollout.Hold(rollout.State{}, w, rollout.Settings{Percentage: in.CanaryPercentage}, evaluationTime())
	for i, answer := range held.Pods {
		if answer.Free {
			out.Selected = append(out.Selected, w.Pods[i].Name)
		}
	}
	return out, nil
}

type phaseInput struct {
	HistorySinceStart string
	MinutesSinceStart float64
	Phase             string
}

type phaseOutput struct {
	EffectiveMode string `json:"effectiveMode"`
	PhaseAfter    string `json:"phaseAfter"`
}

// canaryPhase has ten pods with one canary. The effective mode is Auto if other pods may be
// changed.
func canaryPhase(in phaseInput) (out phaseOutput, err error) {
	set := rollout.Settings{Hash: "now", Percentage: 10, AutoPromote: true, CanaryPeriod: rollout.DefaultPeriod}
	start, w := evaluationTime(), deployment(fleet.Canary, 10)
	var s rollout.State
	switch in.Phase {
	case "nil":
	case "CanaryInProgress":
		s = rollout.Hold(s, w, set, start).State
	case "FullRollout":
		s.Phase, s.Hash = rollout.PhaseFullRollout, set.Hash
	case "stale-generation":
		s.Phase, s.Hash = rollout.PhaseFullRollout, "before"
	default:
		return out, fmt.Errorf("input: phase %q", in.Phase)
	}
	for _, letter := range in.HistorySinceStart {
		outcome, known := outcomes[letter]
		if !known {
			return out, fmt.Errorf("input: result %q", letter)
		}
		s = applyChange(s, outcome, set, start)
		w.Pods[0].Due = outcome != rollout.Success
	}
	held := rollout.Hold(s, w, set, start.Add(vectors.Seconds(60*in.MinutesSinceStart)))
	out = phaseOutput{fleet.Canary.String(), string(held.State.Phase)}
	if held.State.Phase == rollout.PhaseCanary {
		out.PhaseAfter = "CanaryInProgress"
	}
	if held.Pods[len(held.Pods)-1].Free {
		out.EffectiveMode = fleet.Auto.String()
	}
	return out, nil
}

type periodInput struct {
	Canary float64 `json:"canaryObservationPeriodSeconds"`
	Safety float64 `json:"safetyObservationPeriodSeconds"`
}

type periodOutput struct {
	Seconds float64 `json:"seconds"`
}

func observationPeriod(in periodInput) (periodOutput, error) {
	return periodOutput{rollout.ObservationPeriod(vectors.Seconds(in.Safety), vectors.Seconds(in.Canary)).Seconds()}, nil
}

type safetyInput struct {
	MinutesSinceResize                 float64
	OOMMinutesAfterResize              *float64
	Ready                              corev1.ConditionStatus
	RestartCount, RestartCountAtResize int
	ThrottleRatio                      float64
}

type safetyOutput struct {
	EarlyCriticalReason string `json:"earlyCriticalReason"`
	Reason              string `json:"reason"`
	Safe                bool   `json:"safe"`
	ThrottleDeferred    bool   `json:"throttleDeferred"`
}

var harmNames = map[rollout.Harm]string{
	rollout.OOMKill: "oomkill", rollout.Restart: "restart", rollout.Throttle: "throttle", rollout.NotReady: "notready",
}

// safety judges a change that lowered all resources, at the end of its observation period.
func safety(in safetyInput) (safetyOutput, error) {
	minutes := func(n float64) time.Duration { return vectors.Seconds(60 * n) }
	change := rollout.Change{At: evaluationTime(), Ready: true, Containers: []rollout.ContainerChange{{
		From:     policy.Container{Name: app, Requests: resources.NewList(2, 2), Limits: resources.NewList(2, 2)},
		To:       policy.Container{Name: app, Requests: resources.NewList(1, 1), Limits: resources.NewList(1, 1)},
		Restarts: in.RestartCountAtResize,
	}}}
	witness := rollout.ContainerEvidence{Container: change.Containers[0].To, Restarts: in.RestartCount, Throttled: in.ThrottleRatio}
	if in.OOMMinutesAfterResize != nil {
		witness.OOMKilled = change.At.Add(minutes(*in.OOMMinutesAfterResize))
	}
	evidence := rollout.Evidence{Containers: []rollout.ContainerEvidence{witness}, NotReady: in.Ready != corev1.ConditionTrue, NodeReady: true, Measured: true}
	v := rollout.Judge(change, evidence, rollout.Safety{
		Revert: true, Period: minutes(in.MinutesSinceResize), Restarts: rollout.DefaultRestarts, Throttle: rollout.DefaultThrottle,
	}, change.At.Add(minutes(in.MinutesSinceResize)))
	return safetyOutput{harmNames[v.EarlyHarm], harmNames[v.Harm], v.Outcome != rollout.Reverted, v.SharesPending}, nil
}

type rollingInput struct {
	Available, Replicas, Updated int
}

type rollingOutput struct {
	RollingOut bool `json:"rollingOut"`
}

func rolloutDeployment(in rollingInput) (rollingOutput, error) {
	return rollingOutput{rollout.RollingOut(in.Replicas, in.Updated, in.Available)}, nil
}
