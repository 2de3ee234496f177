package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/sharing"
)

func withSharing(m SharingMode) func(*Policy) { return func(p *Policy) { p.Sharing.Mode = m } }

func TestDecision_SharingMode(t *testing.T) {
	passive := vpa(VPA{Origin: UserVPA, Passive: true})
	written := vpa(VPA{Origin: UserVPA})
	made := vpa(VPA{Origin: GeneratedVPA})
	const canaryOver = true
	for name, c := range map[string]struct {
		policy   Policy
		workload Workload
		over     bool
		want     SharingMode
		reason   reason.Reason
	}{
		"a policy that says nothing":     {policy("p"), web(made), canaryOver, SharingOff, ""},
		"On":                             {policy("p", withSharing(SharingOn)), web(made), false, SharingOn, ""},
		"On, a person's VPA":             {policy("p", withSharing(SharingOn)), web(written), false, SharingOn, ""},
		"On, a person's VPA that is Off": {policy("p", withSharing(SharingOn)), web(passive), false, SharingDryRun, reason.ModeTooConservative},
		"On in a canary":                 {policy("p", withSharing(SharingOn), mode(Canary)), web(made), false, SharingDryRun, reason.ModeTooConservative},
		"On after a canary":              {policy("p", withSharing(SharingOn), mode(Canary)), web(made), canaryOver, SharingOn, ""},
		"On in OneShot":                  {policy("p", withSharing(SharingOn), mode(OneShot)), web(made), canaryOver, SharingDryRun, reason.ModeTooConservative},
		"On in Recommend":                {policy("p", withSharing(SharingOn), mode(Recommend)), web(made), canaryOver, SharingDryRun, reason.ModeTooConservative},
		"On with Inherit":                {policy("p", withSharing(SharingOn), mode(Inherit)), web(written), canaryOver, SharingDryRun, reason.ModeTooConservative},
		"On, a mode is asked for":        {policy("p", withSharing(SharingOn)), web(made, withAnnotation(ModeAnnotation, "OneShot")), false, SharingDryRun, reason.ModeTooConservative},
		"DryRun in any mode":             {policy("p", withSharing(SharingDryRun), mode(Observe)), web(made), false, SharingDryRun, ""},
		"paused":                         {policy("p", withSharing(SharingOn), paused), web(made), false, SharingOff, reason.PolicyPaused},
		"not usable":                     {policy("p", withSharing(SharingDryRun), unusable), web(made), false, SharingOff, reason.PolicyUnknown},
		"opted out":                      {policy("p", withSharing(SharingOn)), web(made, withAnnotation(SkipAnnotation, "true")), false, SharingOff, reason.OptedOut},
		"out of sharing":                 {policy("p", withSharing(SharingOn)), web(made, withAnnotation(sharing.SharingAnnotation, "off")), false, SharingOff, reason.SharingOptedOut},
		"out of a dry run":               {policy("p", withSharing(SharingDryRun)), web(made, withAnnotation(sharing.SharingAnnotation, "off")), false, SharingOff, reason.SharingOptedOut},
	} {
		d := NewSet([]Policy{c.policy}, Options{}).Decide(c.workload)
		got, why := d.SharingMode(c.over)
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.reason, why, name)
		require.Empty(t, d.Problem, name)
	}
	var nobody Decision
	got, why := nobody.SharingMode(canaryOver)
	require.Equal(t, SharingOff, got)
	require.Empty(t, why)
}

func TestSharingAnnotations(t *testing.T) {
	for where, put := range annotationPlaces {
		for value, want := range map[string]sharing.Rank{"low": sharing.Low, "medium": sharing.Medium, "high": sharing.High, "no-eviction": sharing.Never} {
			w := web()
			put(&w, map[string]string{sharing.RankAnnotation: value})
			d := NewSet([]Policy{policy("p")}, Options{}).Decide(w)
			require.Equal(t, want, d.Rank("StatefulSet", 3), "%s: %s", where, value)
			require.False(t, d.SharingOptedOut)
			require.Empty(t, d.Problem, value)
			require.Empty(t, d.Reason, "pods are sized as before")
		}
		w := web()
		put(&w, map[string]string{sharing.SharingAnnotation: "no", sharing.RankAnnotation: "Low"})
		d := NewSet([]Policy{policy("p")}, Options{}).Decide(w)
		require.True(t, d.SharingOptedOut, where)
		require.Equal(t, sharing.Never, d.Rank("Deployment", 3))
		require.Contains(t, d.Problem, `annotation loadline.dev/sharing is "no"`)
		require.Contains(t, d.Problem, `; annotation loadline.dev/eviction-ranking is "Low"`)
	}
	require.True(t, HasAnnotation(map[string]string{sharing.SharingAnnotation: ""}) && HasAnnotation(map[string]string{sharing.RankAnnotation: ""}), "caches keep them")
	d := NewSet([]Policy{policy("p")}, Options{}).Decide(web())
	require.Equal(t, sharing.Medium, d.Rank("StatefulSet", 3))
	require.Equal(t, sharing.Medium, d.Rank("Deployment", 1))
	require.Equal(t, sharing.Low, d.Rank("Deployment", 2))
}

func TestRank_MostRestrictiveCounts(t *testing.T) {
	w := web(withAnnotation(sharing.RankAnnotation, "medium"), vpa(VPA{Origin: GeneratedVPA, Annotations: map[string]string{sharing.RankAnnotation: "low"}}))
	d := NewSet([]Policy{policy("p")}, Options{}).Decide(w)
	require.Equal(t, sharing.Medium, d.Rank("Deployment", 3))
	w.TemplateAnnotations = map[string]string{sharing.RankAnnotation: "no-eviction"}
	d = NewSet([]Policy{policy("p")}, Options{}).Decide(w)
	require.Equal(t, sharing.Never, d.Rank("Deployment", 3))
}

func TestRank_IsBoundedByPolicy(t *testing.T) {
	for _, tc := range []struct {
		name, annotation string
		most             *sharing.Rank
		kind             string
		want             sharing.Rank
	}{
		{name: "not bounded", annotation: "no-eviction", want: sharing.Never},
		{name: "lowered", annotation: "no-eviction", most: new(sharing.Medium), want: sharing.Medium},
		{name: "below", annotation: "low", most: new(sharing.High), want: sharing.Low},
		{name: "invalid annotation", annotation: "whatever", most: new(sharing.High), want: sharing.High},
		{name: "default of a StatefulSet", most: new(sharing.Low), kind: "StatefulSet", want: sharing.Low},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := web()
			if tc.annotation != "" {
				w = web(withAnnotation(sharing.RankAnnotation, tc.annotation))
			}
			d := NewSet([]Policy{policy("p", func(p *Policy) { p.Sharing.MaxRank = tc.most })}, Options{}).Decide(w)
			require.Equal(t, tc.want, d.Rank(tc.kind, 3))
		})
	}
}

func TestRecipeText_IgnoredIfPolicyRestrictsUserVPAs(t *testing.T) {
	restricts := func(p *Policy) { p.Sharing.RestrictsUserVPAs = true }
	for _, tc := range []struct {
		name     string
		policy   Policy
		workload Workload
		want     string
	}{
		{name: "restricted", policy: policy("p", withSharing(SharingOn), restricts), workload: web()},
		{name: "not restricted", policy: policy("p", withSharing(SharingOn)), workload: web(), want: "attune"},
		{name: "dry run", policy: policy("p", withSharing(SharingDryRun), restricts), workload: web(), want: "attune"},
		{name: "out of sharing", policy: policy("p", withSharing(SharingOn), restricts), workload: web(withAnnotation(sharing.SharingAnnotation, "off")), want: "attune"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewSet([]Policy{tc.policy}, Options{}).Decide(tc.workload)
			require.Equal(t, tc.want, d.RecipeText("attune"))
		})
	}
	require.Equal(t, "attune", (&Decision{}).RecipeText("attune"))
}
