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
		"true":              {SkipAnnotation, "true", true, true, ""},
		"false":             {SkipAnnotation, "false", false, false, ""},
		"cannot be read":    {SkipAnnotation, "yes", true, true, `annotation loadline.dev/skip of the %s is "yes": must be "true" or "false"; it counts as true`},
		"empty":             {SkipAnnotation, "", true, true, `annotation loadline.dev/skip of the %s is "": must be "true" or "false"; it counts as true`},
		"attune":            {"attune.io/skip", "true", false, true, ""},
		"attune, false":     {"attune.io/skip", "false", false, false, ""},
		"CruiseKube":        {"cruisekube.truefoundry.com/excluded", "true", false, true, ""},
		"CruiseKube, false": {"cruisekube.truefoundry.com/excluded", "false", false, false, ""},
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
		"less":             {Auto, "Canary", VPA{}, Canary, ""},
		"much less":        {Auto, "Observe", VPA{}, Observe, reason.Observing},
		"the same":         {OneShot, "OneShot", VPA{}, OneShot, ""},
		"more":             {OneShot, "Auto", VPA{}, OneShot, ""},
		"more than seeing": {Observe, "Recommend", VPA{}, Observe, reason.Observing},

		"Inherit asks for nothing":          {Canary, "Inherit", VPA{}, Canary, ""},
		"Inherit asks for nothing, written": {Canary, "Inherit", written, Canary, ""},

		"a made VPA gets no more than Inherit gives": {Inherit, "OneShot", VPA{}, Inherit, reason.ModeOff},
		"less than Inherit":                          {Inherit, "Recommend", VPA{}, Recommend, reason.RecommendOnly},
		"least of all":                               {Inherit, "Observe", VPA{}, Observe, reason.Observing},
		"a person's VPA goes as far as asked for":    {Inherit, "OneShot", written, OneShot, ""},
		"a person's VPA, nothing less is asked for":  {Inherit, "Auto", written, Inherit, ""},
		"a person's VPA that is Off gets no more":    {Inherit, "Canary", passive, Recommend, reason.ModeOff},
		"a person's VPA that is Off, Inherit":        {Inherit, "Inherit", passive, Inherit, reason.ModeOff},
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
	for name, c := range map[string]struct {
		policy  Mode
		initial InitialSizing
		over    bool
		made    reason.Reason
		person  reason.Reason
	}{
		"Inherit":               {Inherit, ByMode, false, reason.ModeOff, ""},
		"Observe":               {Observe, ToTarget, false, reason.Observing, ""},
		"Recommend":             {Recommend, ToTarget, canaryOver, reason.RecommendOnly, ""},
		"OneShot":               {OneShot, ByMode, canaryOver, reason.InitialSizingOff, ""},
		"OneShot, to target":    {OneShot, ToTarget, false, "", ""},
		"Canary":                {Canary, ByMode, false, reason.InitialSizingOff, ""},
		"Canary, over":          {Canary, ByMode, canaryOver, "", ""},
		"Canary, to target":     {Canary, ToTarget, false, "", ""},
		"Auto":                  {Auto, ByMode, false, "", ""},
		"Auto, as written":      {Auto, AsWritten, canaryOver, reason.InitialSizingOff, reason.InitialSizingOff},
		"Inherit, as written":   {Inherit, AsWritten, false, reason.ModeOff, reason.InitialSizingOff},
		"Recommend, as written": {Recommend, AsWritten, false, reason.RecommendOnly, reason.InitialSizingOff},
	} {
		for author, want := range map[VPAOrigin]reason.Reason{GeneratedVPA: c.made, UserVPA: c.person} {
			s := NewSet([]Policy{policy("p", mode(c.policy), func(p *Policy) { p.Initial = c.initial })}, Options{})
			require.Equal(t, want, s.Decide(web(vpa(VPA{Origin: author}))).NewPodSkipReason(author, c.over), name)
			out := s.Decide(web(vpa(VPA{Origin: author}), withAnnotation(SkipAnnotation, "true")))
			require.Equal(t, reason.OptedOut, out.NewPodSkipReason(author, c.over), name)
		}
	}
	var none *Set
	require.Empty(t, none.Decide(web(vpa(VPA{Origin: UserVPA}))).NewPodSkipReason(UserVPA, false))
	require.Equal(t, reason.PolicyUnknown, none.Decide(web(vpa(VPA{Origin: GeneratedVPA}))).NewPodSkipReason(GeneratedVPA, true))
	passive := VPA{Origin: UserVPA, Passive: true}
	require.Empty(t, NewSet([]Policy{policy("p")}, Options{}).Decide(web(vpa(passive))).NewPodSkipReason(UserVPA, false), "its own mode says so")
}
