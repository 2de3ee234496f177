package updater

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
)

// ledger checks resource versions of record writes like an API server, and that no write loses
// state of another one.
type ledger struct {
	sync.Mutex
	version   int
	conflicts int
	lost      []string
}

func newLedger(r *rolling) *ledger {
	l := &ledger{version: 100}
	gvr := loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords")
	write := func(a ktesting.Action) (bool, runtime.Object, error) {
		l.Lock()
		defer l.Unlock()
		next := a.(interface{ GetObject() runtime.Object }).GetObject().DeepCopyObject().(*loadlinev1alpha1.SizingRecord)
		known, err := r.vpa.Tracker().Get(gvr, next.Namespace, next.Name)
		if there := err == nil; a.GetVerb() == "create" && there {
			l.conflicts++
			return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "sizingrecords"}, next.Name)
		} else if there {
			before := known.(*loadlinev1alpha1.SizingRecord)
			if before.ResourceVersion != next.ResourceVersion {
				l.conflicts++
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "sizingrecords"}, next.Name, nil)
			}
			l.compare(&before.Status, &next.Status)
		}
		l.version++
		next.ResourceVersion = strconv.Itoa(l.version)
		if a.GetVerb() == "create" {
			return true, next, r.vpa.Tracker().Create(gvr, next, next.Namespace)
		}
		return true, next, r.vpa.Tracker().Update(gvr, next, next.Namespace)
	}
	r.vpa.PrependReactor("create", "sizingrecords", write)
	r.vpa.PrependReactor("update", "sizingrecords", write)
	return l
}

func (l *ledger) compare(before, after *loadlinev1alpha1.SizingRecordStatus) {
	if len(after.Rounds) < len(before.Rounds) || len(after.Kept) < len(before.Kept) || len(after.Reverted) < len(before.Reverted) {
		l.lost = append(l.lost, "a round, or sizes")
		return
	}
	for i := range before.Rounds {
		was, is := &before.Rounds[len(before.Rounds)-1-i], &after.Rounds[len(after.Rounds)-1-i]
		if is.Pods < was.Pods || was.Outcome != "" && is.Outcome != was.Outcome {
			l.lost = append(l.lost, "what a round came to")
		}
	}
}

// secondLeader starts another updater on the same cluster that also acts as leader.
func (r *rolling) secondLeader() *rolling {
	r.t.Helper()
	other := &rolling{world: &world{t: r.t, kube: r.kube, vpa: r.vpa, now: r.now}, config: r.config}
	other.start(r.config)
	return other
}

// staleLeader starts another leader that receives no more events, like a suspended process that
// resumes after its lease has expired.
func (r *rolling) staleLeader() *rolling {
	r.t.Helper()
	var mu sync.Mutex
	deaf := true
	silence := func(ktesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		return deaf, watch.NewFake(), nil
	}
	r.kube.PrependWatchReactor("*", silence)
	r.vpa.PrependWatchReactor("*", silence)
	other := r.secondLeader()
	mu.Lock()
	defer mu.Unlock()
	deaf = false
	return other
}

// The old leader begins a round that the new one has already begun and ended.
func TestLeader_StaleLeaderRestartsNoRound(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	l := newLedger(r)
	old := r.staleLeader()
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	r.restarted("web-1-0", 2)
	r.judge(time.Minute)
	require.Equal(t, "100m 100m 100m", r.sizes())
	after := r.record()
	require.Equal(t, loadlinev1alpha1.RoundReverted, after.Rounds[0].Outcome)

	old.runOnce(noon.Add(2 * time.Minute))
	require.Equal(t, 1, l.conflicts)
	require.Equal(t, "100m 100m 100m", r.sizes(), "it has read that this target did harm")
	require.Empty(t, r.noted())
	require.Equal(t, after, r.record())
	require.Empty(t, l.lost)
}

// The new leader has reverted a change in which the old one finds no harm, and vice versa.
func TestLeader_RevertWinsOverStaleVerdict(t *testing.T) {
	r := newRolling(t, 3, autoPolicy())
	l := newLedger(r)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	old := r.staleLeader()
	r.restarted("web-1-0", 2)
	r.judge(time.Minute)
	after := r.record()
	_, err := old.sync("web-1-0", 5*time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, l.conflicts)
	require.Equal(t, "100m 100m 100m", r.sizes())
	require.Equal(t, after, r.record(), "Reverted stays Reverted, and what did harm is not kept")

	r = newRolling(t, 3, autoPolicy())
	l = newLedger(r)
	require.Equal(t, []string{"web-1-0"}, r.at(0))
	old = r.staleLeader()
	r.judge(5 * time.Minute)
	require.Equal(t, []string{"web-1-1"}, r.at(6*time.Minute))
	before := r.record()
	require.Empty(t, r.pod("web-1-0").Annotations[convert.ResizedAtAnnotation])
	old.runOnce(noon.Add(4 * time.Minute))
	_, err = old.sync("web-1-0", 6*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "50m 50m 100m", r.sizes())
	require.Equal(t, before.Rounds, r.record().Rounds)
	require.Equal(t, []string{"web-1-1"}, r.noted(), "what the other one observes goes on")
	require.Empty(t, l.lost)
}

func TestLeader_TwoConcurrentLeadersLoseNothing(t *testing.T) {
	r := newRolling(t, 6, autoPolicy(func(s *loadlinev1alpha1.SizingPolicySpec) { s.Rollout.MaxConcurrent = new(int32(2)) }))
	l := newLedger(r)
	both := []*rolling{r, r.secondLeader()}
	for minute := range 40 {
		var passes sync.WaitGroup
		now := noon.Add(time.Duration(minute) * time.Minute)
		for _, one := range both {
			passes.Go(func() {
				one.now = now
				for _, pod := range r.pods() {
					_, err := one.sync(pod.Name, now.Sub(noon))
					require.NoError(t, err)
				}
				one.runOnce(now)
			})
		}
		passes.Wait()
		require.Empty(t, l.lost, minute)
	}
	require.Equal(t, "50m 50m 50m 50m 50m 50m", r.sizes())
	require.Empty(t, r.noted())
	require.Equal(t, 1, r.records())
	s := r.record()
	require.Len(t, s.Rounds, 1)
	require.Equal(t, loadlinev1alpha1.RoundSuccess, s.Rounds[0].Outcome)
	require.Zero(t, s.ConsecutiveReverts)
	require.Zero(t, r.reverts()+both[1].reverts())
}
