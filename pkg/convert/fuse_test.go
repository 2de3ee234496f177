package convert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/rollout"
)

var fuseNoon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// revertedRounds returns the rounds of a policy with two namespaces, with reverts in the given
// ones.
func revertedRounds(at time.Time, namespaces ...string) *rollout.PolicyRounds {
	p := &rollout.PolicyRounds{}
	p.Add("a", "", rollout.State{}, "")
	p.Add("b", "", rollout.State{}, "")
	for _, namespace := range namespaces {
		for i := range 5 {
			round := rollout.Round{Time: at.Add(-time.Minute), Pods: 1, Outcome: rollout.Reverted, Ended: at}
			p.Add(namespace, fmt.Sprintf("deployment-%d", i), rollout.State{Rounds: []rollout.Round{round}}, "")
		}
	}
	return p
}

func TestFuseTrip_LastsWhileConditionIsTrue(t *testing.T) {
	later := fuseNoon.Add(30 * time.Minute)
	for _, tc := range []struct {
		name         string
		first, then  *rollout.PolicyRounds
		acknowledged time.Time
		held         []string // "" for the whole policy
		since        time.Time
	}{
		{name: "one namespace", first: revertedRounds(fuseNoon, "a"), then: revertedRounds(fuseNoon, "a"), held: []string{"a"}, since: fuseNoon},
		{name: "without records", first: revertedRounds(fuseNoon, "a"), then: &rollout.PolicyRounds{}, held: []string{"a"}, since: fuseNoon},
		{name: "and another one", first: revertedRounds(fuseNoon, "a"), then: revertedRounds(later, "b"), held: []string{"a", "b"}, since: later},
		{name: "then the policy", first: revertedRounds(fuseNoon, "a"), then: revertedRounds(later, "a", "b"), held: []string{""}, since: later},
		{name: "the policy, then one namespace", first: revertedRounds(fuseNoon, "a", "b"), then: revertedRounds(later, "a"), held: []string{""}, since: fuseNoon},
		{name: "acknowledged", first: revertedRounds(fuseNoon, "a"), then: revertedRounds(fuseNoon, "a"), acknowledged: fuseNoon},
		{name: "acknowledged, and another one", first: revertedRounds(fuseNoon, "a"), then: revertedRounds(later, "b"), acknowledged: fuseNoon, held: []string{"b"}, since: later},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
			p.Status.Conditions = []metav1.Condition{FuseCondition(p, FuseTrip(p, tc.first, fuseNoon), fuseNoon)}
			if !tc.acknowledged.IsZero() {
				p.Annotations = map[string]string{AcknowledgeAnnotation: tc.acknowledged.Format(time.RFC3339)}
			}
			trip := FuseTrip(p, tc.then, later)
			require.Equal(t, tc.since, trip.At)
			for _, namespace := range []string{"a", "b"} {
				want := false
				for _, held := range tc.held {
					want = want || held == "" || held == namespace
				}
				require.Equal(t, want, trip.Holds(namespace), namespace)
			}
			c := FuseCondition(p, trip, later)
			if tc.held == nil {
				require.Equal(t, metav1.ConditionFalse, c.Status)
				return
			}
			require.Contains(t, c.Message, Acknowledge("fleet", tc.since))
			if tc.held[0] != "" {
				require.True(t, strings.HasPrefix(c.Message, "namespaces "+strings.Join(tc.held, ", ")+": 5 of 5 judged rounds"), c.Message)
				require.Contains(t, c.Message, "/deployment-4")
			}
			require.LessOrEqual(t, len(c.Message), 32768)
		})
	}
}

// The command in the condition releases the fuse although rounds of that time are still ending.
func TestFuseTrip_CommandCoversRoundsInProgress(t *testing.T) {
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	c := FuseCondition(p, FuseTrip(p, revertedRounds(fuseNoon, "a", "b"), fuseNoon), fuseNoon)
	p.Status.Conditions = []metav1.Condition{c}
	_, value, _ := strings.Cut(c.Message, AcknowledgeAnnotation+"=")
	p.Annotations = map[string]string{AcknowledgeAnnotation: value}
	rounds := revertedRounds(fuseNoon, "a", "b")
	for i := range 80 {
		ended := fuseNoon.Add(time.Duration(i) * 10 * time.Second)
		rounds.Add("a", "", rollout.State{Rounds: []rollout.Round{{Time: fuseNoon.Add(-time.Minute), Pods: 1, Outcome: rollout.Reverted, Ended: ended}}}, "")
	}
	require.Zero(t, FuseTrip(p, rounds, fuseNoon.Add(20*time.Minute)).At)
}

// A recreated policy has neither its condition nor its acknowledgement. Old reverts do not stop it.
func TestFuseTrip_IgnoresOldRevertsWithoutCondition(t *testing.T) {
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	rounds := revertedRounds(fuseNoon, "a", "b")
	require.NotZero(t, FuseTrip(p, rounds, fuseNoon.Add(5*time.Hour)).At)
	require.Zero(t, FuseTrip(p, rounds, fuseNoon.Add(8*time.Hour)).At)
	p.Status.Conditions = []metav1.Condition{FuseCondition(p, FuseTrip(p, rounds, fuseNoon), fuseNoon)}
	require.Equal(t, fuseNoon, FuseTrip(p, rounds, fuseNoon.Add(8*time.Hour)).At)
}
