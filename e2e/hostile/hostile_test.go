package hostile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// What another namespace may notice of the attacks.
const (
	maxDelay       = 10 * time.Second // of its work
	maxCreation    = time.Second      // of its pods
	maxMemoryShare = 0.6              // of the memory limit
	maxWritten     = 64 << 20         // bytes that the programs write in ten minutes
)

// TestTenant_DoesNotDisturbOtherNamespaces runs each attack alone, then all at the same time,
// while a user works in another namespace.
func TestTenant_DoesNotDisturbOtherNamespaces(t *testing.T) {
	v, shared := startVictim(t), startSharing(t)
	n := newTenant(t)
	require.NoError(t, n.autoscaled(t.Context(), forged, func(vpa *vpav1.VerticalPodAutoscaler) {
		// Its pods leave room for those of users.
		vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{
			ContainerName: vpav1.DefaultContainerResourcePolicy, MaxAllowed: harness.Container{CPU: "2m", Memory: "2Mi"}.Requests(),
		}}}
	}))
	t.Run("before", func(t *testing.T) {
		shared.share(t)
		t.Run("a recipe with a floor", func(t *testing.T) { t.Parallel(); shared.floor(t, n) })
		t.Run("a node that labels itself", func(t *testing.T) { t.Parallel(); shared.forgedLabel(t) })
		t.Run("control characters and formulas", func(t *testing.T) { t.Parallel(); printed(t) })
		t.Run("a policy for everything", func(t *testing.T) { t.Parallel(); everything(t) })
	})
	running(t, forged)
	v.measure(t)

	rows := []*attack{
		{name: "unfinished headers", once: headers},
		{name: "unfinished bodies", once: bodies},
		{name: "ports of metrics", once: metrics},
		{name: "large selectors", once: n.selectors, every: 500 * time.Millisecond},
		{name: "large disruption budgets", once: n.budgets, every: 2 * time.Second},
		{name: "container names", once: n.names, every: 2 * time.Second},
		{name: "selectors and labels", once: n.matching, every: 2 * time.Second},
		{name: "forged annotations", once: n.annotations, every: time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { v.undisturbed(t, func() { launch(t, min(*length/10, 15*time.Second), row) }) })
	}
	t.Run("all rows at the same time", func(t *testing.T) {
		before, text := written(t)
		t.Logf("written so far: %d KiB: %s", before>>10, text)
		start := time.Now()
		v.undisturbed(t, func() { launch(t, *length, rows...) })
		for _, p := range v.work {
			count, _ := p.since(start)
			require.NotZero(t, count, p.name)
		}
		requireSame(t, shared.user, shared.before)
		after, text := written(t)
		t.Logf("written: %d KiB in %s; in all: %s", (after-before)>>10, *length, text)
		// A namespace may use the limit of some minutes at once.
		require.LessOrEqual(t, float64(after-before), maxWritten*max(length.Minutes()/10, 1), "bytes that the programs write")
	})
}

// measure remembers the delays without an attack.
func (v *victim) measure(t *testing.T) {
	t.Helper()
	for _, p := range append(v.work, v.creations, v.unseen) {
		count, longest := p.since(time.Time{})
		require.NotZero(t, count, "%s: %v", p.name, p.err)
		v.undelayed[p] = max(longest, iteration)
		t.Logf("without an attack, %s: %d times, at most %s", p.name, count, longest.Round(time.Millisecond))
	}
	for _, d := range programs {
		_, most, err := harness.Memory(d.PID())
		require.NoError(t, err)
		t.Logf("without an attack, %s: %d MB resident", d.Name, most>>20)
	}
}

// undisturbed requires that others notice nothing of attacks.
func (v *victim) undisturbed(t *testing.T, attack func()) {
	t.Helper()
	start, before := time.Now(), countReviews(t)
	attack()
	after := countReviews(t)
	for _, d := range programs {
		require.True(t, d.Running(), "%s ended", d.Name)
		_, most, err := harness.Memory(d.PID())
		require.NoError(t, err)
		share := float64(most) / float64(d.MemoryLimit)
		t.Logf("%s: at most %d MB resident, %.0f %% of its limit", d.Name, most>>20, 100*share)
		if share > maxMemoryShare {
			t.Errorf("%s: %d MB resident", d.Name, most>>20)
		}
	}
	_, unseen := v.unseen.since(start)
	for _, p := range v.work {
		count, longest := p.since(start)
		t.Logf("%s: %d times, at most %s", p.name, count, longest.Round(time.Millisecond))
		if longest > v.undelayed[p]+maxDelay || p.err != nil {
			t.Errorf("%s: at most %s without an attack, %s now: %v", p.name, v.undelayed[p], longest, p.err)
		}
	}
	count, longest := v.creations.since(start)
	slow := after.slow - before.slow
	t.Logf("pods of the user: %d created in %s at most, without the webhook %s; reviews of all namespaces: %d, %d longer than a second, %d failed; %d MiB stored",
		count, longest.Round(time.Millisecond), unseen.Round(time.Millisecond), after.all-before.all, slow, after.failed-before.failed, after.stored>>20)
	// Clients on a busy machine see delays without the webhook, too. The API server is not as busy if it is favored.
	if longest > unseen+maxCreation || v.creations.err != nil {
		t.Errorf("creation of a pod: at most %s, without the webhook %s: %v", longest, unseen, v.creations.err)
	}
	seen, control := podCreationsSince(t, victimNamespace, start), podCreationsSince(t, unseenNamespace, start)
	t.Logf("pods of the user, as the API server sees them: %d created in %s at most, of which %s at most in the webhook; without the webhook %s",
		seen.count, seen.longest.Total, seen.longest.Webhook, control.longest.Total)
	if favored && (seen.longest.Webhook > maxCreation || seen.longest.Total > control.longest.Total+maxCreation) {
		t.Errorf("creation of a pod: the API server took %s, the webhook %s; without the webhook %s", seen.longest.Total, seen.longest.Webhook, control.longest.Total)
	}
	require.Equal(t, before.failed, after.failed, "the API server did not reach the webhook")
}

// podCreations summarizes the creations of pods in a namespace.
type podCreations struct {
	count   int
	longest harness.PodCreation // each time is the longest of its kind
}

// podCreationsSince summarizes the creations in a namespace, as the API server sees them.
func podCreationsSince(t *testing.T, namespace string, since time.Time) podCreations {
	t.Helper()
	var c podCreations
	require.NoError(t, cluster.PodCreations(namespace, func(p harness.PodCreation) {
		if p.At.After(since) {
			c.count++
			c.longest.Total, c.longest.Webhook = max(c.longest.Total, p.Total), max(c.longest.Webhook, p.Webhook)
		}
	}))
	require.NotZero(t, c.count, "the audit log has no pods of namespace %s", namespace)
	return c
}
