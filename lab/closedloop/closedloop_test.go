package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

type expectation struct {
	from     time.Duration // since the start, when the request limits begin to apply
	min, max float64       // multiples of the expert's request
	changes  float64       // maximum per pod and day
	kills    int           // maximum
	starved  float64       // maximum share of CPU work above the request
	brokenBy []string      // recipes without the rule under test
}

func (p expectation) check(o *Outcome) error {
	s := o.scenario
	lowest, highest := o.RequestRange(p.from, s.Length)
	var problems []error
	check := func(holds bool, format string, args ...any) {
		if !holds {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(lowest >= p.min*float64(s.Expert), "the request falls to %s, below %g of %s", amount(s.Kind, lowest), p.min, amount(s.Kind, float64(s.Expert)))
	check(highest <= p.max*float64(s.Expert), "the request rises to %s, above %g of %s", amount(s.Kind, highest), p.max, amount(s.Kind, float64(s.Expert)))
	check(o.ChangesPerDay() <= p.changes, "%.2f changes a day, more than %g", o.ChangesPerDay(), p.changes)
	check(o.kills() <= p.kills, "%d kills, more than %d", o.kills(), p.kills)
	if s.Kind == resources.CPU {
		check(o.Starved() <= p.starved, "%.3f of the work is above the request, more than %g", o.Starved(), p.starved)
	}
	return errors.Join(problems...)
}

// Recipes without the rules about bursts and starts.
const (
	withoutSustained = "loadline:sustained-minutes=0"
	withoutStarts    = "loadline:start-minutes=0"
	withoutBoth      = "loadline:start-minutes=0,sustained-minutes=0"
)

var expectations = map[string]expectation{
	"start-burst":   {from: time.Hour, min: 0.8, max: 1.2, changes: 0.01, starved: 0.03, brokenBy: []string{withoutBoth}},
	"daily-burst":   {from: time.Hour, min: 0.75, max: 1.2, changes: 0.01, starved: 0.25, brokenBy: []string{withoutSustained}},
	"hourly-burst":  {from: 4 * time.Hour, min: 0.9, max: 1.1, changes: 0.01, starved: 0.01, brokenBy: []string{"vpa", "loadline:cpu=tracking-lean"}},
	"rollouts":      {from: time.Hour, min: 0.8, max: 1.2, changes: 0.01, starved: 0.33, brokenBy: []string{withoutStarts}},
	"scale-up":      {from: time.Hour, min: 0.8, max: 1.2, changes: 0.01, starved: 0.08, brokenBy: []string{withoutBoth}},
	"short-jobs":    {from: time.Hour, min: 0.9, max: 1.1, changes: 0.01, starved: 0.01},
	"shortest-jobs": {from: time.Hour, min: 0.9, max: 1.1, changes: 0.01, starved: 0.01},
	"hot-cpu":       {from: 4 * time.Hour, min: 0.8, max: 4.1, changes: 0.01, starved: 0.4}, // a known weakness
	"hot-memory":    {from: 2 * day, min: 1, max: 1.15, changes: 0.3, brokenBy: []string{"vpa"}},
	"leak":          {from: 22 * day, min: 0.55, max: 0.7, changes: 1.2},
	"cache":         {from: 4 * time.Hour, min: 0.95, max: 1.25, changes: 0.1, brokenBy: []string{"loadline:cold=0,restless=0"}},
	"weekly":        {from: 22 * day, min: 1, max: 1.25, changes: 0.2, kills: 2, brokenBy: []string{"vpa"}},
}

func TestLoadlineRecipe_MatchesExpertRequests(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios() {
		names[s.Name] = true
		t.Run(s.Name, func(t *testing.T) {
			p, promised := expectations[s.Name]
			require.True(t, promised, "nothing is promised")
			require.NoError(t, p.check(run(s, newRecommender("loadline", s.Kind))))
			for _, other := range p.brokenBy {
				require.Error(t, p.check(run(s, newRecommender(other, s.Kind))), "%s holds it as well: it says nothing", other)
			}
		})
	}
	require.Len(t, names, len(expectations), "names are used once, and nothing is promised of others")
}

// A new pod starts with the usage history of the other pods of its workload.
func TestRun_PodsShareUsageHistory(t *testing.T) {
	s := &Scenario{Name: "two", Kind: resources.CPU, Declared: 500, Expert: 100, Length: 2 * day, Step: time.Minute, addPods: func(l *generator) {
		l.addPod(0, day, usageAfterStart(1000, 1000, 0))
		l.addPod(day, 2*day, usageAfterStart(1000, 1000, 0))
	}}
	o := run(s, newRecommender("loadline", s.Kind))
	at, known := o.Frames[frames/2].Request()
	require.True(t, known)
	require.InDelta(t, 1080, at, 40, "the second pod begins with what the first one taught")
	begins, _ := o.Frames[0].Request()
	require.Less(t, begins, 1000.0, "the first one begins with what was declared")
}

func TestUpdate_WritesCommittedPageAndDrawings(t *testing.T) {
	const stale = "the committed page is stale, run: go run -C lab ./closedloop"
	docs := t.TempDir()
	page := filepath.Join(docs, "closed-loop.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+beginMarker+"old\n"+endMarker+"after\n"), 0o600))
	require.NoError(t, updateDocs(docs))
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(content), "before\n"+beginMarker+"## A start burst\n"))
	require.True(t, strings.HasSuffix(string(content), endMarker+"after\n"))
	for _, s := range scenarios() {
		drawing, err := os.ReadFile(filepath.Join(docs, "images", "closed-loop", s.Name+".svg"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(drawing), 20_000, s.Name)
		require.NoError(t, xml.Unmarshal(drawing, &struct{}{}), s.Name)
		require.Contains(t, string(content), "(images/closed-loop/"+s.Name+".svg)")
		committed, err := os.ReadFile(filepath.Join("../docs/images/closed-loop", s.Name+".svg"))
		require.NoError(t, err)
		require.Equal(t, string(committed), string(drawing), stale)
	}
	committed, err := os.ReadFile("../docs/closed-loop.md")
	require.NoError(t, err)
	_, sections, _ := strings.Cut(string(content), beginMarker)
	sections, _, _ = strings.Cut(sections, endMarker)
	require.Contains(t, string(committed), beginMarker+sections+endMarker, stale)
	require.NoError(t, os.WriteFile(page, []byte("before\n"), 0o600))
	require.ErrorContains(t, updateDocs(docs), "has no lines")
}
