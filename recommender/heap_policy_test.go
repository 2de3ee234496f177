//go:build !race

package recommender

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/testkit"
)

// Each workload has a SizingRecord with twenty rounds.
func TestHeap_BoundedWithPolicy(t *testing.T) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	measure := func(c testkit.Crowd) (caches, all int64) {
		url := testkit.ServeCrowd(t, &testkit.CrowdServer{Crowd: c})
		before := testkit.LiveHeap()
		f := newFilledRecommender(t, url, c)
		caches = testkit.LiveHeap() - before
		f.addDay(t)
		all = testkit.LiveHeap() - before
		f.close()
		return caches, all
	}
	const containers = 2_000
	c := testkit.Crowd{Pods: containers / 2, Deployments: containers / 10, Revisions: 11, Nodes: 50}
	caches, _ := measure(c)
	c.UnderAPolicy = true
	_, all := measure(c)
	mib := float64(all-caches) * (100_000. / containers) / (1 << 20)
	t.Logf("%.0f MiB for 100,000 containers", mib)
	require.Less(t, mib, 100.)
}
