package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
)

type drawn struct{ *rapid.T }

func (d drawn) time() time.Time {
	return time.Unix(rapid.Int64Range(0, 4102444800).Draw(d.T, "seconds"), 0).UTC()
}

func (d drawn) list() (l resources.List) {
	for k := range resources.Kind(resources.Kinds) {
		if rapid.Bool().Draw(d.T, "has") {
			l = l.With(k, resources.Amount(rapid.Int64Range(0, 1<<50).Draw(d.T, "amount")))
		}
	}
	return l
}

func (d drawn) container(name string) policy.Container {
	return policy.Container{Name: name, Requests: d.list(), Limits: d.list()}
}

func (d drawn) containers() (all []policy.Container) {
	for i := range rapid.IntRange(0, 3).Draw(d.T, "containers") {
		all = append(all, d.container(fmt.Sprintf("c%d", i)))
	}
	return all
}

func (d drawn) outcome() rollout.Outcome {
	return rapid.SampledFrom([]rollout.Outcome{"", rollout.Success, rollout.Reverted, rollout.Failed, rollout.Evicted, rollout.Superseded, rollout.Unobserved}).Draw(d.T, "outcome")
}

func (d drawn) condition(reasons ...string) rollout.Condition {
	c := rollout.Condition{Reason: rapid.SampledFrom(append(reasons, "")).Draw(d.T, "reason")}
	if c.Reason != "" {
		c.Since = d.time()
	}
	return c
}

func (d drawn) state() rollout.State {
	s := rollout.State{
		Mode:  rapid.SampledFrom([]fleet.Mode{fleet.Inherit, fleet.Observe, fleet.Recommend, fleet.OneShot, fleet.Canary, fleet.Auto}).Draw(d.T, "mode"),
		Phase: rapid.SampledFrom([]rollout.Phase{"", rollout.PhaseCanary, rollout.PhaseFullRollout, rollout.PhaseHalted}).Draw(d.T, "phase"),
		Hash:  rapid.StringMatching("[0-9a-f]{16}").Draw(d.T, "hash"), HaltedTarget: d.containers(), ProvenResources: d.containers(),
		Degraded: d.condition("HighRevertRate"), ResizeBlocked: d.condition("PodsDeferred", "PodsInfeasible"), ScheduleBlocked: d.condition(string(reason.OutsideWindow)),
	}
	for _, at := range []*time.Time{&s.CanarySince, &s.CooldownUntil} {
		if rapid.Bool().Draw(d.T, "time") {
			*at = d.time()
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(d.T, "members") {
		s.Members = append(s.Members, rollout.Member{UID: fmt.Sprintf("uid-%d", i), Outcome: d.outcome()})
	}
	for _, c := range d.containers() {
		s.RevertedResources = append(s.RevertedResources, rollout.RevertedResources{Container: c, At: d.time()})
	}
	for range rapid.IntRange(0, 3).Draw(d.T, "rounds") {
		s.Rounds = append(s.Rounds, rollout.Round{Time: d.time(), Pods: rapid.IntRange(0, 1000).Draw(d.T, "pods"), From: d.containers(), To: d.containers(),
			Outcome: d.outcome(), SoFar: d.outcome(), Reason: rapid.SampledFrom([]rollout.Harm{"", rollout.OOMKill, rollout.NotReady}).Draw(d.T, "harm")})
	}
	if rapid.Bool().Draw(d.T, "started") {
		s.Started = d.time()
	} else {
		s.StartPending = rollout.Condition{Reason: rollout.PolicyChanged, Since: d.time()}
	}
	return s
}

func TestRecordStatus_RoundTripsState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn{t}.state()
		status := RecordStatus(s)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		var read loadlinev1alpha1.SizingRecordStatus
		require.NoError(t, json.Unmarshal(text, &read))
		require.Equal(t, utc(s), utc(RolloutState(&read)))
	})
}

// utc returns a state with times in UTC, because JSON decodes them in the local zone.
func utc(s rollout.State) rollout.State {
	at := func(t *time.Time) { *t = t.UTC() }
	at(&s.CanarySince)
	at(&s.CooldownUntil)
	at(&s.Degraded.Since)
	at(&s.ResizeBlocked.Since)
	at(&s.StartPending.Since)
	at(&s.Started)
	at(&s.ScheduleBlocked.Since)
	for i := range s.RevertedResources {
		at(&s.RevertedResources[i].At)
	}
	for i := range s.Rounds {
		at(&s.Rounds[i].Time)
	}
	return s
}

func TestChangeAnnotations_RoundTripChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn{t}
		c := rollout.Change{At: d.time(), Pending: rapid.Bool().Draw(t, "pending"), Ready: rapid.Bool().Draw(t, "ready")}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "not-changed"}}}}
		for i := range rapid.IntRange(1, 4).Draw(t, "changed") {
			name := fmt.Sprintf("c%d", i)
			c.Containers = append(c.Containers, rollout.ContainerChange{From: d.container(name), To: d.container(name), Restarts: rapid.IntRange(0, 1000).Draw(t, "restarts")})
			pod.Spec.Containers = append([]corev1.Container{{Name: name}}, pod.Spec.Containers...)
		}
		pod.Annotations = FormatChange(c)
		require.True(t, HasNotedChange(pod))
		read, err := ParseChange(pod)
		require.NoError(t, err)
		require.Equal(t, c, read)
	})
}

// Users who can change a pod control its annotations.
func TestParseChange_InvalidAnnotationsAreErrors(t *testing.T) {
	const at, good = "2026-01-02T12:00:00Z", `{"app":{"requests":{"cpu":"1"},"limits":{},"target":{"requests":{"cpu":"500m"},"limits":{}},"restarts":0,"ready":true}}`
	pod := func(at, original string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ResizedAtAnnotation: at, OriginalAnnotation: original}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	}
	_, err := ParseChange(pod(at, good))
	require.NoError(t, err)
	for _, tc := range []struct{ name, at, original, want string }{
		{name: "empty time", at: "", original: good, want: ResizedAtAnnotation},
		{name: "invalid time", at: "yesterday", original: good, want: ResizedAtAnnotation},
		{name: "invalid suffix", at: at + " soon", original: good, want: ResizedAtAnnotation},
		{name: "empty original", at: at, original: "", want: OriginalAnnotation},
		{name: "null", at: at, original: "null", want: "does not name containers of the pod"},
		{name: "empty object", at: at, original: "{}", want: "does not name containers of the pod"},
		{
			name: "another container", at: at, original: strings.Replace(good, "app", "proxy", 1),
			want: "does not name containers of the pod",
		},
		{
			name: "additional container", at: at, original: strings.TrimSuffix(good, "}") + `,"proxy":{}}`,
			want: "does not name containers of the pod",
		},
		{name: "list", at: at, original: "[]", want: OriginalAnnotation},
		{name: "string instead of quantities", at: at, original: `{"app":{"requests":"1"}}`, want: OriginalAnnotation},
		{name: "invalid quantity", at: at, original: strings.Replace(good, `"1"`, `"1 core"`, 1), want: OriginalAnnotation},
		{name: "quantity out of range", at: at, original: strings.Replace(good, `"1"`, `"1e999999999"`, 1), want: OriginalAnnotation},
		{name: "truncated JSON", at: at, original: good[:len(good)/2], want: OriginalAnnotation},
		{
			name: "restarts as a string", at: at, original: strings.Replace(good, `"restarts":0`, `"restarts":"many"`, 1),
			want: OriginalAnnotation,
		},
		{
			name: "restarts out of range", at: at, original: strings.Replace(good, `"restarts":0`, `"restarts":1e40`, 1),
			want: OriginalAnnotation,
		},
		{name: "larger than 16 KiB", at: at, original: good + strings.Repeat(" ", MaxOriginal), want: "has more than 16384 bytes"},
		{name: "deeply nested JSON", at: at, original: strings.Repeat(`{"app":`, 8000), want: OriginalAnnotation},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseChange(pod(tc.at, tc.original))
			require.ErrorContains(t, err, tc.want)
			require.Less(t, len(err.Error()), 1000)
		})
	}
	read, err := ParseChange(pod(at, strings.Replace(good, `"restarts":0`, `"restarts":-7`, 1)))
	require.NoError(t, err)
	require.Zero(t, read.Containers[0].Restarts)
}

func FuzzNotedChange(f *testing.F) {
	f.Add("2026-01-02T12:00:00Z", `{"app":{"requests":{"cpu":"1"},"limits":{},"target":{"requests":{"cpu":"500m"},"limits":{}},"restarts":0,"ready":true}}`)
	f.Add("2026-01-02T12:00:00+02:00 deferred", `{"app":{"requests":{"memory":"1e3"}},"b":{}}`)
	f.Add("9999-12-31T23:59:59Z", `{"app":{"target":{"limits":{"cpu":-1}},"restarts":-9}}`)
	f.Fuzz(func(t *testing.T, at, original string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ResizedAtAnnotation: at, OriginalAnnotation: original}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "b"}}}}
		read, err := ParseChange(pod)
		if err != nil {
			return
		}
		require.NotEmpty(t, read.Containers)
		pod.Annotations = FormatChange(read)
		again, err := ParseChange(pod)
		require.NoError(t, err)
		require.True(t, read.At.Truncate(time.Second).Equal(again.At))
		read.At, again.At = time.Time{}, time.Time{}
		require.Equal(t, read, again)
	})
}

// Another hash restarts the rollout, so only fields that affect its results may count.
func TestRolloutHash_CoversFieldsThatRestartRollout(t *testing.T) {
	canary := func(more string) string {
		return `"rollout":{"mode":"Canary","canary":{"percentage":10,"observationPeriod":"5m"` + more + `},"method":"InPlaceOnly","maxConcurrent":1}`
	}
	base := RolloutSettings(sizing(t, canary(""))).Hash
	require.Len(t, base, 16)
	require.Equal(t, base, RolloutSettings(sizing(t, canary(""))).Hash)
	seen := map[string]string{base: "base"}
	for what, fields := range map[string]string{
		"recipe":         canary("") + `,"recipe":"loadline:cpu=tracking"`,
		"resourcePolicy": canary("") + `,"resourcePolicy":{"containerPolicies":[{"containerName":"app","mode":"Off"}]}`,
		"containers":     canary("") + `,"containers":{"exclude":["proxy"]}`,
		"mode":           strings.Replace(canary(""), `"mode":"Canary"`, `"mode":"Auto"`, 1),
		"percentage":     strings.Replace(canary(""), `"percentage":10`, `"percentage":11`, 1),
		"period":         strings.Replace(canary(""), `"5m"`, `"6m"`, 1),
		"method":         strings.Replace(canary(""), `"InPlaceOnly"`, `"InPlaceOrRecreate"`, 1),
		"no rollout":     ``,
	} {
		if what == "no rollout" {
			fields = `"priority":1`
		}
		hash := RolloutSettings(sizing(t, fields)).Hash
		require.Empty(t, seen[hash], what)
		seen[hash] = what
	}
	for _, tc := range []struct{ name, fields string }{
		{name: "paused", fields: canary("") + `,"paused":true`},
		{name: "priority", fields: canary("") + `,"priority":7`},
		{name: "recommender", fields: canary("") + `,"recommender":"other"`},
		{name: "namespaces", fields: canary("") + `,"namespaces":{"names":["pay"],"exclude":["shop"]}`},
		{name: "workloads", fields: canary("") + `,"workloads":[{"apiVersion":"apps/v1","kind":"StatefulSet"}]`},
		{name: "vpas", fields: canary("") + `,"vpas":"Never"`},
		{name: "vpaMetadata", fields: canary("") + `,"vpaMetadata":{"labels":{"a":"b"}}`},
		{name: "safety", fields: canary("") + `,"safety":{"restarts":5,"observationPeriod":"7m"}`},
		{name: "autoPromote", fields: canary(`,"autoPromote":true`)},
		{name: "maxConcurrent", fields: strings.Replace(canary(""), `"maxConcurrent":1`, `"maxConcurrent":9`, 1)},
		{name: "cooldown", fields: strings.Replace(canary(""), `"maxConcurrent":1`, `"cooldown":"2h"`, 1)},
		{name: "minHistory", fields: strings.Replace(canary(""), `"maxConcurrent":1`, `"minHistory":"24h"`, 1)},
		{name: "schedule", fields: strings.Replace(canary(""), `"maxConcurrent":1`, `"schedule":{"daysOfWeek":["Monday"]}`, 1)},
		{name: "initialSizing", fields: strings.Replace(canary(""), `"maxConcurrent":1`, `"initialSizing":"Off"`, 1)},
		{name: "hpa", fields: strings.Replace(canary(""), `"maxConcurrent":1`, `"hpa":"Proceed"`, 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, base, RolloutSettings(sizing(t, tc.fields)).Hash)
		})
	}
}

func TestRollout_ReadsSchedule(t *testing.T) {
	open := func(fields string, at time.Time) bool {
		return RolloutSettings(sizing(t, `"rollout":{"schedule":`+fields+`}`)).Schedule.Open(at)
	}
	monday := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for i, day := range []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"} {
		for j := range 7 {
			require.Equal(t, i == j, open(`{"daysOfWeek":["`+day+`"]}`, monday.AddDate(0, 0, j)), "%s %d", day, j)
		}
	}
	require.True(t, open(`{"windows":[{"start":"12:00","end":"12:01"}]}`, monday))
	require.False(t, open(`{"windows":[{"start":"12:00","end":"12:01"}],"timezone":"Europe/Berlin"}`, monday), "it is 13:00 there")
	require.True(t, open(`{"windows":[{"start":"13:00","end":"13:01"}],"timezone":"Europe/Berlin"}`, monday))
	require.Nil(t, RolloutSettings(sizing(t, `"rollout":{}`)).Schedule)
	require.True(t, RolloutSettings(sizing(t, `"rollout":{}`)).Schedule.Open(monday), "always")
	for _, never := range []string{`{"timezone":"Mars/Olympus"}`, `{"timezone":"Local"}`, `{"timezone":"../etc/passwd"}`, `{"daysOfWeek":["monday"]}`, `{"windows":[{"start":"12:00","end":"24:00"}]}`, `{"windows":[{"start":"noon","end":"13:00"}]}`} {
		for hour := range 7 * 24 {
			require.False(t, open(never, monday.Add(time.Duration(hour)*time.Hour)), never)
		}
	}
}
