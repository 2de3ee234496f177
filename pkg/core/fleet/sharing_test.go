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
	for _, tc := range []struct {
		name     string
		policy   Policy
		workload Workload
		over     bool
		want     SharingMode
		reason   reason.Reason
	}{
		{name: "no sharing mode", policy: policy("p"), workload: web(made), over: canaryOver, want: SharingOff},
		{name: "On", policy: policy("p", withSharing(SharingOn)), workload: web(made), want: SharingOn},
		{name: "On with a user VPA", policy: policy("p", withSharing(SharingOn)), workload: web(written), want: SharingOn},
		{
			name:   "On with a user VPA in mode Off",
			policy: policy("p", withSharing(SharingOn)), workload: web(passive),
			want: SharingDryRun, reason: reason.ModeTooConservative,
		},
		{
			name:   "On during a canary",
			policy: policy("p", withSharing(SharingOn), mode(Canary)), workload: web(made),
			want: SharingDryRun, reason: reason.ModeTooConservative,
		},
		{
			name:   "On after a canary",
			policy: policy("p", withSharing(SharingOn), mode(Canary)), workload: web(made), over: canaryOver,
			want: SharingOn,
		},
		{
			name:   "On with OneShot",
			policy: policy("p", withSharing(SharingOn), mode(OneShot)), workload: web(made), over: canaryOver,
			want: SharingDryRun, reason: reason.ModeTooConservative,
		},
		{
			name:   "On with Recommend",
			policy: policy("p", withSharing(SharingOn), mode(Recommend)), workload: web(made), over: canaryOver,
			want: SharingDryRun, reason: reason.ModeTooConservative,
		},
		{
			name:   "On with Inherit",
			policy: policy("p", withSharing(SharingOn), mode(Inherit)), workload: web(written), over: canaryOver,
			want: SharingDryRun, reason: reason.ModeTooConservative,
		},
		{
			name:   "On with a mode annotation",
			policy: policy("p", withSharing(SharingOn)), workload: web(made, withAnnotation(ModeAnnotation, "OneShot")),
			want: SharingDryRun, reason: reason.ModeTooConservative,
		},
		{
			name:   "DryRun in any mode",
			policy: policy("p", withSharing(SharingDryRun), mode(Observe)), workload: web(made),
			want: SharingDryRun,
		},
		{
			name:   "paused policy",
			policy: policy("p", withSharing(SharingOn), paused), workload: web(made),
			want: SharingOff, reason: reason.PolicyPaused,
		},
		{
			name:   "unusable policy",
			policy: policy("p", withSharing(SharingDryRun), unusable), workload: web(made),
			want: SharingOff, reason: reason.PolicyUnknown,
		},
		{
			name:   "opted out",
			policy: policy("p", withSharing(SharingOn)), workload: web(made, withAnnotation(SkipAnnotation, "true")),
			want: SharingOff, reason: reason.OptedOut,
		},
		{
			name:   "opted out of sharing",
			policy: policy("p", withSharing(SharingOn)), workload: web(made, withAnnotation(sharing.SharingAnnotation, "off")),
			want: SharingOff, reason: reason.SharingOptedOut,
		},
		{
			name:   "opted out of sharing in a dry run",
			policy: policy("p", withSharing(SharingDryRun)), workload: web(made, withAnnotation(sharing.SharingAnnotation, "off")),
			want: SharingOff, reason: reason.SharingOptedOut,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := NewSet([]Policy{tc.policy}, Options{}).Decide(tc.workload)
			got, why := d.SharingMode(tc.over)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.reason, why)
			require.Empty(t, d.Problem)
		})
	}
	var nobody Decision
	got, why := nobody.SharingMode(canaryOver)
	require.Equal(t, SharingOff, got)
	require.Empty(t, why)
}

func TestSharingAnnotations(t *testing.T) {
	for where, put := range annotationPlaces {
		for _, tc := range []struct {
			rank string
			want sharing.Rank
		}{
			{rank: "low", want: sharing.Low},
			{rank: "medium", want: sharing.Medium},
			{rank: "high", want: sharing.High},
			{rank: "no-eviction", want: sharing.Never},
		} {
			t.Run(where+"/"+tc.rank, func(t *testing.T) {
				w := web()
				put(&w, map[string]string{sharing.RankAnnotation: tc.rank})
				d := NewSet([]Policy{policy("p")}, Options{}).Decide(w)
				require.Equal(t, tc.want, d.Rank("StatefulSet", 3))
				require.False(t, d.SharingOptedOut)
				require.Empty(t, d.Problem)
				require.Empty(t, d.Reason, "pods are sized as before")
			})
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
