package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

// RolloutSettings returns the rollout settings of a policy. Absent fields have their defaults.
func RolloutSettings(p *loadlinev1alpha1.SizingPolicy) rollout.Settings {
	r := p.Spec.Rollout
	if r == nil {
		r = &loadlinev1alpha1.Rollout{}
	}
	inherits := r.Mode == nil || *r.Mode == loadlinev1alpha1.RolloutModeInherit
	s := rollout.Settings{Hash: rolloutHash(p), MaxConcurrent: rollout.DefaultMaxConcurrent, Schedule: schedule(r.Schedule)}
	s.Recreate = inherits // the VPA decides in this case
	if !inherits {
		s.Cooldown, s.StartRate = rollout.DefaultCooldown, rollout.DefaultStartRate
	}
	if r.Cooldown != nil {
		s.Cooldown = r.Cooldown.Duration
	}
	if r.MaxConcurrent != nil {
		s.MaxConcurrent = int(*r.MaxConcurrent)
	}
	if r.StartRate != nil {
		s.StartRate = int(*r.StartRate)
	}
	if r.Method != nil {
		s.Recreate = *r.Method == loadlinev1alpha1.RolloutMethodInPlaceOrRecreate
	}
	safety, canary := observationPeriods(p)
	s.CanaryPeriod = rollout.ObservationPeriod(canary, safety)
	if c := r.Canary; c != nil {
		if c.Percentage != nil {
			s.Percentage = int(*c.Percentage)
		}
		s.AutoPromote = c.AutoPromote != nil && *c.AutoPromote
	}
	return s
}

// Safety returns the criteria for a harmful pod change. Absent fields have their defaults.
func Safety(p *loadlinev1alpha1.SizingPolicy) rollout.Safety {
	own, canary := observationPeriods(p)
	acts := false
	if r := p.Spec.Rollout; r != nil && r.Mode != nil {
		mode, _ := fleet.ParseMode(string(*r.Mode))
		acts = mode > fleet.Recommend
	}
	s := rollout.Safety{
		Revert: acts, Period: rollout.ObservationPeriod(own, canary),
		Restarts: rollout.DefaultRestarts, Throttle: rollout.DefaultThrottle, Pressure: rollout.DefaultPressure,
	}
	o := p.Spec.Safety
	if o == nil {
		return s
	}
	if o.AutoRevert != nil {
		s.Revert = *o.AutoRevert
	}
	if o.Restarts != nil {
		s.Restarts = int(*o.Restarts)
	}
	s.Throttle, s.Pressure = parseFraction(o.Throttle, s.Throttle), parseFraction(o.Pressure, s.Pressure)
	return s
}

func parseFraction(text *string, def float64) float64 {
	if text == nil || !fraction.MatchString(*text) {
		return def
	}
	f, err := strconv.ParseFloat(*text, 64)
	if err != nil {
		return def
	}
	return f
}

func observationPeriods(p *loadlinev1alpha1.SizingPolicy) (safety, canary time.Duration) {
	if s := p.Spec.Safety; s != nil && s.ObservationPeriod != nil {
		safety = s.ObservationPeriod.Duration
	}
	if r := p.Spec.Rollout; r != nil && r.Canary != nil && r.Canary.ObservationPeriod != nil {
		canary = r.Canary.ObservationPeriod.Duration
	}
	return safety, canary
}

// rolloutHash identifies the fields that start a new rollout when they change.
func rolloutHash(p *loadlinev1alpha1.SizingPolicy) string {
	fields := struct {
		Recipe         *string
		ResourcePolicy *vpav1.PodResourcePolicy
		Containers     *loadlinev1alpha1.ContainerSelection
		Mode           *loadlinev1alpha1.RolloutMode
		Canary         *loadlinev1alpha1.Canary
		Method         *loadlinev1alpha1.RolloutMethod
	}{p.Spec.Recipe, p.Spec.ResourcePolicy, p.Spec.Containers, nil, nil, nil}
	if r := p.Spec.Rollout; r != nil {
		fields.Mode, fields.Method = r.Mode, r.Method
		if r.Canary != nil { // autoPromote only promotes a canary and starts no new rollout
			fields.Canary = &loadlinev1alpha1.Canary{Percentage: r.Canary.Percentage, ObservationPeriod: r.Canary.ObservationPeriod}
		}
	}
	text, _ := json.Marshal(fields) // all fields were parsed from JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// schedule returns nil if changes are always allowed. An invalid schedule is never open.
func schedule(s *loadlinev1alpha1.Schedule) *rollout.Schedule {
	if s == nil {
		return nil
	}
	zone := time.UTC
	if s.Timezone != nil {
		if !knownZone(*s.Timezone) {
			return &rollout.Schedule{}
		}
		zone, _ = time.LoadLocation(*s.Timezone)
	}
	all := &rollout.Schedule{Zone: zone}
	for _, w := range s.Windows {
		start, err := rollout.ParseClock(w.Start)
		end, err2 := rollout.ParseClock(w.End)
		if err != nil || err2 != nil {
			return &rollout.Schedule{}
		}
		all.Windows = append(all.Windows, rollout.Window{Start: start, End: end})
	}
	for _, d := range s.DaysOfWeek {
		at := slices.Index(days, d)
		if at < 0 {
			return &rollout.Schedule{}
		}
		all.Days = append(all.Days, time.Weekday((at+1)%len(days))) // days begins with Monday
	}
	return all
}

// RolloutState converts the status of a record. Invalid values are dropped.
func RolloutState(r *loadlinev1alpha1.SizingRecordStatus) rollout.State {
	s := rollout.State{
		Phase: rollout.Phase(r.Phase), Hash: r.PolicyHash, Started: timeOf(r.StartedAt), CanarySince: timeOf(r.CanarySince), HaltedTarget: containersOf(r.HaltedTarget),
		CooldownUntil: timeOf(r.CooldownUntil), ProvenResources: containersOf(r.Kept),
	}
	s.Mode, _ = fleet.ParseMode(string(r.Mode))
	for _, m := range r.CanaryMembers {
		s.Members = append(s.Members, rollout.Member{UID: string(m.UID), Outcome: rollout.Outcome(m.Outcome)})
	}
	for i := range r.Reverted {
		s.RevertedResources = append(s.RevertedResources, rollout.RevertedResources{Container: containerOf(&r.Reverted[i].ContainerSizes), At: r.Reverted[i].Time.Time})
	}
	s.Rounds = slices.Grow(s.Rounds, len(r.Rounds)) // caches hold them for a long time
	for i := range r.Rounds {
		one := &r.Rounds[i]
		s.Rounds = append(s.Rounds, rollout.Round{
			Time: one.Time.Time, Last: timeOf(one.LastChange), Pods: int(one.Pods), From: containersOf(one.From), To: containersOf(one.To),
			Outcome: rollout.Outcome(one.Outcome), SoFar: rollout.Outcome(one.SoFar), Reason: rollout.Harm(one.Reason), Ended: timeOf(one.EndedAt),
		})
	}
	for _, c := range r.Conditions {
		if into := conditionField(&s, c.Type); into != nil && c.Status == metav1.ConditionTrue {
			*into = rollout.Condition{Reason: c.Reason, Since: c.LastTransitionTime.Time}
		}
	}
	if s.Started.IsZero() && s.StartPending.Reason == "" {
		s.Started = firstChange(s.Rounds)
	}
	return s
}

// firstChange returns the start of the oldest round with pods, for records of earlier versions.
func firstChange(rounds []rollout.Round) time.Time {
	for _, r := range slices.Backward(rounds) {
		if r.Pods > 0 {
			return r.Time
		}
	}
	return time.Time{}
}

// Condition types of a SizingRecord.
const (
	ConditionDegraded        = "Degraded"
	ConditionResizeBlocked   = "ResizeBlocked"
	ConditionScheduleBlocked = "ScheduleBlocked"
	ConditionEvidenceMissing = "EvidenceMissing"
	ConditionStartPending    = "StartPending"
)

func conditionField(s *rollout.State, kind string) *rollout.Condition {
	switch kind {
	case ConditionDegraded:
		return &s.Degraded
	case ConditionResizeBlocked:
		return &s.ResizeBlocked
	case ConditionScheduleBlocked:
		return &s.ScheduleBlocked
	case ConditionEvidenceMissing:
		return &s.EvidenceMissing
	case ConditionStartPending:
		return &s.StartPending
	}
	return nil
}

var conditionMessages = map[string]string{
	"HighRevertRate":             "At least three of the last five rounds were reverted.",
	"PodsDeferred":               "No node of the pods to change has room for the resize now.",
	"PodsInfeasible":             "The resize can never fit on the nodes of the pods to change.",
	"PodsDeferredAndInfeasible":  "No node of the pods to change has room for the resize now, or the resize can never fit.",
	string(reason.OutsideWindow): "The schedule of the policy does not allow changes now.",
	rollout.NoPrometheus:         "Throttling and CPU pressure of changed pods are not observed: the updater has no --prometheus-address.",
	rollout.PolicyChanged:        "The policy has changed since the last round, and no pod has been changed since.",
}

// RecordStatus converts a rollout state to a record status. Times must be in whole seconds.
// Resources that do not fit are dropped, oldest rounds first.
func RecordStatus(s rollout.State) loadlinev1alpha1.SizingRecordStatus {
	r := loadlinev1alpha1.SizingRecordStatus{
		Mode: loadlinev1alpha1.RolloutMode(s.Mode.String()), Phase: loadlinev1alpha1.RolloutPhase(s.Phase), PolicyHash: s.Hash,
		StartedAt: metaTime(s.Started), CanarySince: metaTime(s.CanarySince), CooldownUntil: metaTime(s.CooldownUntil),
		ConsecutiveReverts: int32(min(s.Reverts(), math.MaxInt32)),
	}
	for _, m := range s.Members {
		r.CanaryMembers = append(r.CanaryMembers, loadlinev1alpha1.CanaryMember{UID: types.UID(m.UID), Outcome: loadlinev1alpha1.RoundOutcome(m.Outcome)})
	}
	space := recordSpace(maxRecordBytes - len(s.Members)*memberBytes)
	for _, one := range s.RevertedResources {
		if !space.reserve(mapBytes(one.Container)) {
			break
		}
		r.Reverted = append(r.Reverted, loadlinev1alpha1.RevertedSizes{ContainerSizes: sizes(one.Container), Time: metav1.NewTime(one.At.UTC())})
	}
	r.Kept = space.fit(s.ProvenResources)
	r.HaltedTarget = space.fit(s.HaltedTarget)
	for _, one := range s.Rounds { // newest round first
		if !space.reserve(roundBytes(one)) {
			one.From, one.To = nil, nil
		}
		r.Rounds = append(r.Rounds, loadlinev1alpha1.Round{
			Time: metav1.NewTime(one.Time.UTC()), LastChange: metaTime(one.Last), Pods: int32(min(one.Pods, math.MaxInt32)), From: sizesOf(one.From), To: sizesOf(one.To),
			Outcome: loadlinev1alpha1.RoundOutcome(one.Outcome), SoFar: loadlinev1alpha1.RoundOutcome(one.SoFar), Reason: string(one.Reason), EndedAt: metaTime(one.Ended),
		})
	}
	for _, kind := range []string{ConditionDegraded, ConditionResizeBlocked, ConditionScheduleBlocked, ConditionEvidenceMissing, ConditionStartPending} {
		if c := conditionField(&s, kind); c.Reason != "" {
			r.Conditions = append(r.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: c.Reason,
				LastTransitionTime: metav1.NewTime(c.Since.UTC()), Message: conditionMessages[c.Reason]})
		}
	}
	return r
}

const (
	// maxRecordBytes bounds the lists of a record. The whole record stays below 256 KiB.
	maxRecordBytes = 232 << 10
	// memberBytes is the size of a canary member with its managed fields.
	memberBytes = 180
)

// recordSpace is the remaining space in a record, in bytes.
type recordSpace int

// reserve reports whether the bytes fit. After the first failure nothing fits.
func (r *recordSpace) reserve(bytes int) bool {
	*r -= recordSpace(bytes)
	return *r >= 0
}

func (r *recordSpace) fit(containers []policy.Container) (all []loadlinev1alpha1.ContainerSizes) {
	for _, c := range containers {
		if !r.reserve(mapBytes(c)) {
			break
		}
		all = append(all, sizes(c))
	}
	return all
}

// mapBytes estimates the size of a container in a list with managed fields for each container.
func mapBytes(c policy.Container) int { return containerBytes(c) + len(c.Name) + 230 }

func containerBytes(c policy.Container) int {
	const frame, amount = 48, 28 // per container, and per amount
	bytes := frame + len(c.Name)
	for k := range resources.Kind(resources.Kinds) {
		for _, list := range []resources.List{c.Requests, c.Limits} {
			if list.Has(k) {
				bytes += amount
			}
		}
	}
	return bytes
}

func roundBytes(r rollout.Round) (bytes int) {
	for _, containers := range [][]policy.Container{r.From, r.To} {
		for _, c := range containers {
			bytes += containerBytes(c)
		}
	}
	return bytes
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.UTC()))
}

func containerOf(s *loadlinev1alpha1.ContainerSizes) policy.Container {
	return policy.Container{Name: s.Name, Requests: Resources(corev1.ResourceList(s.Requests)), Limits: Resources(corev1.ResourceList(s.Limits))}
}

func containersOf(all []loadlinev1alpha1.ContainerSizes) (containers []policy.Container) {
	containers = slices.Grow(containers, len(all))
	for i := range all {
		containers = append(containers, containerOf(&all[i]))
	}
	return containers
}

func sizes(c policy.Container) loadlinev1alpha1.ContainerSizes {
	return loadlinev1alpha1.ContainerSizes{Name: c.Name, Requests: loadlinev1alpha1.Sizes(Format{}.List(c.Requests)), Limits: loadlinev1alpha1.Sizes(Format{}.List(c.Limits))}
}

func sizesOf(containers []policy.Container) (all []loadlinev1alpha1.ContainerSizes) {
	for _, c := range containers {
		all = append(all, sizes(c))
	}
	return all
}
