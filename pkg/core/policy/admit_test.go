package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestFit_StaysWithinLimitRanges(t *testing.T) {
	unsized := func(sidecars, starting resources.Amount) InitTotals {
		return InitTotals{
			Sidecars: Totals{Requests: some(sidecars, 0), Limits: some(sidecars, 0)},
			Startup:  Totals{Requests: some(starting, 0), Limits: some(starting, 0)},
		}
	}
	zero := resources.List{}.With(resources.CPU, 0)
	zeroCPU := resources.Bounds{Lower: zero, Target: zero, Upper: zero}
	for _, tc := range []struct {
		name   string
		pod    Pod
		target resources.Bounds
		rule   Rule
		ranges Ranges
		want   resources.List // requests
	}{
		{
			name: "minAllowed above the maximum", pod: Pod{Containers: []Container{pair("c", 100, 100, 0, 0)}},
			target: same(250, 0), rule: bounded(some(700, 0), some(0, 0)), ranges: Ranges{Container: Range{Max: some(500, 0)}},
			want: some(500, 0),
		},
		{
			name: "sidecar beside the container", pod: Pod{Containers: []Container{pair("c", 100, 100, 0, 0)}, InitTotals: unsized(100, 0)},
			target: same(600, 0), ranges: Ranges{Pod: Range{Max: some(500, 0)}}, want: some(400, 0),
		},
		{
			name: "init container is larger", pod: Pod{Containers: []Container{pair("c", 100, 100, 0, 0)}, InitTotals: unsized(0, 450)},
			target: same(600, 0), ranges: Ranges{Pod: Range{Max: some(500, 0)}}, want: some(500, 0),
		},
		{
			name: "ratio of the pod", pod: Pod{Containers: []Container{pair("c", 500, 1000, 0, 0)}},
			target: same(100, 0), rule: requestsOnly(), ranges: Ranges{Pod: Range{MaxRatio: some(4000, 0)}}, want: some(250, 0),
		},
		{
			name: "request of zero under a ratio", pod: Pod{Containers: []Container{pair("c", 100, 100, 0, 0)}},
			target: zeroCPU, ranges: Ranges{Container: Range{MaxRatio: some(1000, 0)}}, want: resources.List{},
		},
		{
			name:   "request without limit above the maximum of the pod",
			pod:    Pod{Containers: []Container{pair("c", 100, 0, 0, 0), pair("d", 100, 100, 0, 0)}},
			target: same(900, 0), ranges: Ranges{Pod: Range{Max: some(500, 0)}}, want: some(400, 0),
		},
		{
			name: "LimitRanges refuse the pod already", pod: Pod{Containers: []Container{pair("c", 600, 600, 0, 0)}},
			target: same(250, 0), rule: bounded(some(700, 0), some(0, 0)),
			ranges: Ranges{Container: Range{Max: some(500, 0)}}, want: some(700, 0),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.rule == (Rule{}) {
				tc.rule = Default()
			}
			rules := Rules{Entries: []Entry{{Container: "c", Rule: tc.rule}}}
			got := Fit(tc.pod, map[string]resources.Bounds{"c": withoutKind(tc.target, resources.Memory)}, rules, tc.ranges)
			require.Equal(t, tc.want, got.Containers[0].Requests)
		})
	}
}
