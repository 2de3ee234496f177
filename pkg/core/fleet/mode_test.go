package fleet

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
)

func TestParseMode_RoundTrips(t *testing.T) {
	for _, m := range []Mode{Inherit, Observe, Recommend, OneShot, Canary, Auto} {
		parsed, ok := ParseMode(m.String())
		require.True(t, ok)
		require.Equal(t, m, parsed)
	}
	for _, text := range []string{"", "auto", " Auto", "Off"} {
		_, ok := ParseMode(text)
		require.False(t, ok, text)
	}
	require.Equal(t, "OneShot", OneShot.String())
}

var annotationPlaces = map[string]func(*Workload, map[string]string){
	"workload":     func(w *Workload, a map[string]string) { w.Annotations = a },
	"pod template": func(w *Workload, a map[string]string) { w.TemplateAnnotations = a },
	"VPA":          func(w *Workload, a map[string]string) { w.VPA.Annotations = a },
}

func TestOptOut(t *testing.T) {
	for name, c := range map[string]struct {
		key, value   string
		out, foreign bool // opted out without and with the annotations of other projects
		problem      string
	}{
		"true":  {key: SkipAnnotation, value: "true", out: true, foreign: true},
		"false": {key: SkipAnnotation, value: "false"},
		"cannot be read": {
			key: SkipAnnotation, value: "yes", out: true, foreign: true,
			problem: `annotation loadline.dev/skip of the %s is "yes": must be "true" or "false"; it counts as true`,
		},
		"empty": {
			key: SkipAnnotation, value: "", out: true, foreign: true,
			problem: `annotation loadline.dev/skip of the %s is "": must be "true" or "false"; it counts as true`,
		},
		"attune":            {key: "attune.io/skip", value: "true", foreign: true},
		"attune, false":     {key: "attune.io/skip", value: "false"},
		"CruiseKube":        {key: "cruisekube.truefoundry.com/excluded", value: "true", foreign: true},
		"CruiseKube, false": {key: "cruisekube.truefoundry.com/excluded", value: "false"},
	} {
		for where, put := range annotationPlaces {
			t.Run(name+"/"+where, func(t *testing.T) {
				for foreign, out := range map[bool]bool{false: c.out, true: c.foreign} {
					w := web()
					put(&w, map[string]string{c.key: c.value})
					d := NewSet([]Policy{policy("p", mode(Canary))}, Options{Foreign: foreign}).Decide(w)
					require.Equal(t, "p", d.Policy.Name, "the policy stays responsible")
					require.Equal(t, strings.ReplaceAll(c.problem, "%s", where), d.Problem)
					require.True(t, d.KeepVPA)
					if out {
						require.Equal(t, reason.OptedOut, d.Reason)
						require.Equal(t, Recommend, d.Mode)
					} else {
						require.Empty(t, d.Reason)
						require.Equal(t, Canary, d.Mode)
					}
					require.Equal(t, !out, d.GenerateVPA)
				}
			})
		}
	}
}

func TestOptOut_OverridesUnusablePolicy(t *testing.T) {
	require.Equal(t, reason.OptedOut, decide(policy("p", paused, unusable), web(withAnnotation(SkipAnnotation, "true"))).reason)
}

func TestModeAnnotation_OnlyRestricts(t *testing.T) {
	written, passive := VPA{Origin: UserVPA}, VPA{Origin: UserVPA, Passive: true}
	for name, c := range map[string]struct {
		policy Mode
		asked  string
		vpa    VPA
		want   Mode
		reason reason.Reason
	}{
		"less":             {policy: Auto, asked: "Canary", want: Canary},
		"much less":        {policy: Auto, asked: "Observe", want: Observe, reason: reason.Observing},
		"the same":         {policy: OneShot, asked: "OneShot", want: OneShot},
		"more":             {policy: OneShot, asked: "Auto", want: OneShot},
		"more than seeing": {policy: Observe, asked: "Recommend", want: Observe, reason: reason.Observing},

		"Inherit asks for nothing":          {policy: Canary, asked: "Inherit", want: Canary},
		"Inherit asks for nothing, written": {policy: Canary, asked: "Inherit", vpa: written, want: Canary},

		"a made VPA gets no more than Inherit gives": {policy: Inherit, asked: "OneShot", want: Inherit, reason: reason.ModeOff},
		"less than Inherit":                          {policy: Inherit, asked: "Recommend", want: Recommend, reason: reason.RecommendOnly},
		"least of all":                               {policy: Inherit, asked: "Observe", want: Observe, reason: reason.Observing},
		"a person's VPA goes as far as asked for":    {policy: Inherit, asked: "OneShot", vpa: written, want: OneShot},
		"a person's VPA, nothing less is asked for":  {policy: Inherit, asked: "Auto", vpa: written, want: Inherit},
		"a person's VPA that is Off gets no more": {
			policy: Inherit, asked: "Canary", vpa: passive,
			want: Recommend, reason: reason.ModeOff,
		},
		"a person's VPA that is Off, Inherit": {policy: Inherit, asked: "Inherit", vpa: passive, want: Inherit, reason: reason.ModeOff},
	} {
		for where, put := range annotationPlaces {
			t.Run(name+"/"+where, func(t *testing.T) {
				w := web(vpa(c.vpa))
				put(&w, map[string]string{ModeAnnotation: c.asked})
				d := NewSet([]Policy{policy("p", mode(c.policy))}, Options{}).Decide(w)
				require.Equal(t, c.want, d.Mode)
				require.Equal(t, c.reason, d.Reason)
				require.Empty(t, d.Problem)
			})
		}
	}
}

func TestModeAnnotation_MostRestrictiveCounts(t *testing.T) {
	w := web(withAnnotation(ModeAnnotation, "Canary"), vpa(VPA{Origin: GeneratedVPA, Annotations: map[string]string{ModeAnnotation: "OneShot"}}))
	w.TemplateAnnotations = map[string]string{ModeAnnotation: "Recommend"}
	require.Equal(t, Recommend, decide(policy("p"), w).mode)
	w.TemplateAnnotations = nil
	require.Equal(t, OneShot, decide(policy("p"), w).mode)
}

func TestAnnotations_InvalidValues(t *testing.T) {
	s := NewSet([]Policy{policy("p")}, Options{})
	for _, value := range []string{"observe", "", "Off"} {
		d := s.Decide(web(withAnnotation(ModeAnnotation, value)))
		require.Equal(t, Observe, d.Mode)
		require.Equal(t, reason.Observing, d.Reason)
		require.Equal(t, `annotation loadline.dev/mode of the workload is "`+value+`": must be one of Inherit, Observe, Recommend, OneShot, Canary, Auto; it counts as Observe`, d.Problem)
	}

	w := web(withAnnotation(ModeAnnotation, strings.Repeat("ä", 1000)))
	w.TemplateAnnotations = map[string]string{SkipAnnotation: "no", ModeAnnotation: "?"}
	d := s.Decide(w)
	require.Equal(t, reason.OptedOut, d.Reason)
	require.Equal(t, Observe, d.Mode)
	require.Equal(t, `annotation loadline.dev/skip of the pod template is "no": must be "true" or "false"; it counts as true; `+
		`annotation loadline.dev/mode of the workload is "`+strings.Repeat("ä", 40)+`": must be one of Inherit, Observe, Recommend, OneShot, Canary, Auto; it counts as Observe; `+
		`annotation loadline.dev/mode of the pod template is "?": must be one of Inherit, Observe, Recommend, OneShot, Canary, Auto; it counts as Observe`, d.Problem)
}

func TestDecision_NewPodSkipReason(t *testing.T) {
	const canaryOver = true
	for _, tc := range []struct {
		name      string
		policy    Mode
		initial   InitialSizing
		over      bool
		generated reason.Reason
		user      reason.Reason
	}{
		{name: "Inherit", policy: Inherit, initial: ByMode, generated: reason.ModeOff},
		{name: "Observe", policy: Observe, initial: ToTarget, generated: reason.Observing},
		{name: "Recommend", policy: Recommend, initial: ToTarget, over: canaryOver, generated: reason.RecommendOnly},
		{name: "OneShot", policy: OneShot, initial: ByMode, over: canaryOver, generated: reason.InitialSizingOff},
		{name: "OneShot to target", policy: OneShot, initial: ToTarget},
		{name: "Canary", policy: Canary, initial: ByMode, generated: reason.InitialSizingOff},
		{name: "completed Canary", policy: Canary, initial: ByMode, over: canaryOver},
		{name: "Canary to target", policy: Canary, initial: ToTarget},
		{name: "Auto", policy: Auto, initial: ByMode},
		{
			name: "Auto as written", policy: Auto, initial: AsWritten, over: canaryOver,
			generated: reason.InitialSizingOff, user: reason.InitialSizingOff,
		},
		{name: "Inherit as written", policy: Inherit, initial: AsWritten, generated: reason.ModeOff, user: reason.InitialSizingOff},
		{
			name: "Recommend as written", policy: Recommend, initial: AsWritten,
			generated: reason.RecommendOnly, user: reason.InitialSizingOff,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for author, want := range map[VPAOrigin]reason.Reason{GeneratedVPA: tc.generated, UserVPA: tc.user} {
				s := NewSet([]Policy{policy("p", mode(tc.policy), func(p *Policy) { p.Initial = tc.initial })}, Options{})
				require.Equal(t, want, s.Decide(web(vpa(VPA{Origin: author}))).NewPodSkipReason(author, tc.over))
				out := s.Decide(web(vpa(VPA{Origin: author}), withAnnotation(SkipAnnotation, "true")))
				require.Equal(t, reason.OptedOut, out.NewPodSkipReason(author, tc.over))
			}
		})
	}
	var none *Set
	require.Empty(t, none.Decide(web(vpa(VPA{Origin: UserVPA}))).NewPodSkipReason(UserVPA, false))
	require.Equal(t, reason.PolicyUnknown, none.Decide(web(vpa(VPA{Origin: GeneratedVPA}))).NewPodSkipReason(GeneratedVPA, true))
	passive := VPA{Origin: UserVPA, Passive: true}
	require.Empty(t, NewSet([]Policy{policy("p")}, Options{}).Decide(web(vpa(passive))).NewPodSkipReason(UserVPA, false), "its own mode says so")
}
