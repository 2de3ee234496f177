package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/resources"
)

// recorder always recommends next.
type recorder struct {
	seen    [resources.Kinds][]observed
	changes []Change
	kills   []Kill
	starts  []int64 // seconds
	next    resources.List
}

type observed struct {
	second int64
	use    resources.Amount
}

func (n *recorder) Observe(at time.Time, k resources.Kind, use, _ resources.Amount) {
	n.seen[k] = append(n.seen[k], observed{at.Unix() - begin/1e9, use})
}
func (n *recorder) Killed(time.Time, resources.Amount, resources.Amount) {}
func (n *recorder) Started(at time.Time)                                 { n.starts = append(n.starts, at.Unix()-begin/1e9) }
func (n *recorder) Advise(time.Time, resources.List) resources.Bounds {
	return resources.Bounds{Lower: n.next, Target: n.next, Upper: n.next}
}

type eventRecorder struct{ *recorder }

func (eventRecorder) Sample(Sample)      {}
func (eventRecorder) Advised(Advice)     {}
func (t eventRecorder) Changed(c Change) { t.changes = append(t.changes, c) }
func (t eventRecorder) Killed(k Kill)    { t.kills = append(t.kills, k) }

const begin = int64(600e9)

func seconds(use ...float64) *Recording {
	r := &Recording{}
	for i, u := range use {
		r.At = append(r.At, begin+int64(i)*1e9)
		r.Use[resources.CPU], r.Use[resources.Memory] = append(r.Use[resources.CPU], u), append(r.Use[resources.Memory], u)
	}
	return r
}

// run replays with a scrape every three seconds and a tick every six.
func run(r *Recording, change func(*Setup)) *recorder {
	n := &recorder{}
	s := DefaultSetup(resources.CPU)
	s.Tick, s.Scrape = 6*time.Second, 3*time.Second
	change(&s)
	Run(r, s, n, eventRecorder{n})
	return n
}

func TestScrape_MeanCPUAndLastMemory(t *testing.T) {
	n := run(seconds(0, 3, 6, 10, 20, 30, 1, 1, 1, 7, 7, 7, 0), func(*Setup) {})
	// The scrape at 3 s is replaced before the tick at 6 s, whose scrape has the mean of 10, 20 and
	// 30.
	require.Equal(t, []observed{{6, 20}, {12, 7}}, n.seen[resources.CPU])
	require.Equal(t, []observed{{6, 30}, {12, 7}}, n.seen[resources.Memory])
	n = run(seconds(0, 3, 6, 10, 20, 30, 1), func(s *Setup) { s.Scrape = 0 })
	require.Equal(t, []observed{{0, 0}, {6, 1}}, n.seen[resources.CPU], "without scrapes the moment counts")
	n = run(seconds(0, 3, 6, 10, 20, 30, 1, 1), func(s *Setup) { s.Tick = time.Second })
	require.Equal(t, []observed{{3, 3}, {6, 20}}, n.seen[resources.CPU], "each scrape is told once")
}

func TestScrape_CoarseSamplesAndGaps(t *testing.T) {
	r := &Recording{At: []int64{begin, begin + 6e9, begin + 12e9, begin + 100e9, begin + 106e9}}
	for k := range r.Use {
		r.Use[k] = []float64{10, 20, 30, 40, 50}
	}
	n := run(r, func(s *Setup) { s.Scrape = 6 * time.Second })
	// The last sample before the gap covers three steps. The first scrape after it covers two
	// seconds.
	require.Equal(t, []observed{{6, 10}, {12, 20}, {18, 30}, {24, 30}, {30, 30}, {102, 40}, {108, 44}}, n.seen[resources.CPU])
	require.Equal(t, []observed{{6, 10}, {12, 20}, {18, 30}, {24, 30}, {30, 30}, {102, 40}, {108, 50}}, n.seen[resources.Memory])
}

func TestScrape_SkipsKilledContainer(t *testing.T) {
	n := run(seconds(1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1), func(s *Setup) {
		*s = DefaultSetup(resources.Memory)
		s.Tick, s.Scrape, s.Restart, s.Backoff, s.MaxBackoff, s.BackoffReset = time.Second, 3*time.Second, 4*time.Second, 0, 0, 0
		s.Initial, s.Limits[resources.Memory] = resources.NewList(1, 5), Limit{Proportional, 1}
	})
	require.Len(t, n.kills, 1)
	require.Equal(t, []observed{{3, 1}, {9, 1}, {12, 1}}, n.seen[resources.Memory])
}

func TestRun_ReportsContainerStarts(t *testing.T) {
	starts := func(r *Recording, next resources.List, change func(*Setup)) []int64 {
		n := &recorder{next: next}
		s := DefaultSetup(resources.CPU, resources.Memory)
		s.Initial, s.Limits[resources.Memory] = resources.NewList(100, 100), Limit{Proportional, 1}
		change(&s)
		Run(r, s, n, eventRecorder{n})
		return n.starts
	}
	r := seconds(1, 1, 1, 1, 1, 1)
	require.Empty(t, starts(r, resources.List{}, func(*Setup) {}), "when it started nobody knows")
	require.Equal(t, []int64{0}, starts(r, resources.List{}, func(s *Setup) { s.Startup = true }))
	require.Equal(t, []int64{71}, starts(seconds(1, 200, 1, 1), resources.List{}, func(*Setup) {}), "after a kill: a minute and ten seconds")
	evict := func(s *Setup) { s.Update.Mode = disruption.Recreate }
	require.Equal(t, []int64{61}, starts(r, resources.NewList(500, 500), evict), "a pod that is evicted is down for a minute")
	for i := 3; i < 6; i++ {
		r.At[i] += 600e9
	}
	require.Equal(t, []int64{603}, starts(r, resources.List{}, func(s *Setup) { s.NewPod = 10 * time.Minute }))
}
