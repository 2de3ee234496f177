package model

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func samplesOf(store *usage.Store, v *VPA) int64 {
	p := usage.NewProfile(usage.DefaultConfig().Shape)
	store.Profile(&p, v.Series("a")...)
	return p.Samples()
}

// History that another workload owns is not kept.
func TestSyncVPAs_KeepsHistoryOfFormerSelector(t *testing.T) {
	color := func(of string) labels.Selector { return labels.SelectorFromSet(labels.Set{"color": of}) }
	selecting := func(name, app string, s labels.Selector) Observed {
		o := newObserved(name, app, 1)
		o.Selector = s
		return o
	}
	for _, tc := range []struct {
		name         string
		before, then []Observed
		want         map[string]int64 // samples by VPA
	}{
		{
			name:   "other pods",
			before: []Observed{selecting("v", "web", color("blue"))}, then: []Observed{selecting("v", "web", color("green"))},
			want: map[string]int64{"v": 5},
		},
		{
			name:   "fewer of the same pods",
			before: []Observed{selecting("v", "web", labels.SelectorFromSet(labels.Set{"app": "web"}))}, then: []Observed{selecting("v", "web", color("green"))},
			want: map[string]int64{"v": 2},
		},
		{
			name:   "more pods",
			before: []Observed{selecting("v", "web", color("blue"))}, then: []Observed{selecting("v", "web", labels.SelectorFromSet(labels.Set{"app": "web"}))},
			want: map[string]int64{"v": 5},
		},
		{
			name:   "no pods yet",
			before: []Observed{selecting("v", "web", color("blue"))}, then: []Observed{selecting("v", "web", color("red"))},
			want: map[string]int64{"v": 3},
		},
		{
			name:   "another target",
			before: []Observed{selecting("v", "web", color("blue"))}, then: []Observed{selecting("v", "other", color("green"))},
			want: map[string]int64{"v": 2},
		},
		{
			name:   "pods that another VPA selects",
			before: []Observed{selecting("v", "web", color("blue")), selecting("w", "other", color("blue"))},
			then:   []Observed{selecting("v", "web", color("green")), selecting("w", "other", color("blue"))},
			want:   map[string]int64{"v": 2, "w": 3},
		},
		{
			name:   "two VPAs of one target",
			before: []Observed{selecting("v", "web", color("blue")), selecting("w", "web", color("blue"))},
			then:   []Observed{selecting("v", "web", color("green")), selecting("w", "web", color("green"))},
			want:   map[string]int64{"v": 5, "w": 5},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, store := newModel(Config{})
			for pod, samples := range map[string]int{"blue": 3, "green": 2} {
				m.PutPod(aPod(pod, labels.Set{"app": "web", "color": pod}, "a"), now())
				for i := range samples {
					store.Observe(usage.Sample{Container: usage.ContainerKey{Namespace: "ns", Pod: pod, Container: "a"}, Kind: resources.CPU, At: now().Add(time.Duration(i) * time.Minute), Amount: 100})
				}
			}
			m.SyncVPAs(tc.before, now())
			m.SyncVPAs(tc.then, now().Add(time.Minute))
			check := func() {
				t.Helper()
				for name, want := range tc.want {
					require.Equal(t, want, samplesOf(store, m.Find("ns", name)), name)
				}
			}
			check()
			m.SyncVPAs(nil, now().Add(2*time.Minute))
			m.SyncVPAs(tc.then, now().Add(2*Grace)) // recreated after it was forgotten
			check()
			m.RemovePod("ns", "blue")
			m.Expire(now().Add(2 * Grace))
			check()
			lost := tc.then[0]
			lost.Selector, lost.Err = nil, errors.New("gone")
			m.SyncVPAs([]Observed{lost}, now().Add(3*Grace))
			m.SyncVPAs([]Observed{lost}, now().Add(5*Grace))
			require.Zero(t, samplesOf(store, m.Find("ns", lost.Object.Name)), "the target is gone")
			m.SyncVPAs(tc.then, now().Add(6*Grace))
			check()
		})
	}
}
