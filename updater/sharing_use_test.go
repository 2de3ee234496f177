package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

// byUse makes pods leave nodes of which more than 85 % of the CPU is in use.
func byUse(s *loadlinev1alpha1.SizingPolicySpec) { s.Recipe = new("loadline:cpu=shared") }

// nodeMetrics is a metrics API that answers with millicores in use of nodes n1 and n2.
func (r *rolling) nodeMetrics(used func() (resources.Amount, bool)) {
	r.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cpu, known := used()
		if !known {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"items":[{"metadata":{"name":"n1"},"usage":{"cpu":"%dm"}},{"metadata":{"name":"n2"},"usage":{"cpu":"100m"}}]}`, cpu)
	}))
	r.t.Cleanup(server.Close)
	clients, err := client.New(&rest.Config{Host: server.URL})
	require.NoError(r.t, err)
	r.loop.sharing.use.metrics = clients.Kube.CoreV1().RESTClient()
}

// Where pods may be evicted one leaves a node of which too much was in use between two rounds, though
// all bases fit there; not for a moment, not if nobody knows, and not under a rule that does not say so.
func TestAPodLeavesANodeThatIsBusy(t *testing.T) {
	config := Default()
	config.Disruption.MinReplicas = 1
	always := func(cpu resources.Amount) func(int) (resources.Amount, bool) {
		return func(int) (resources.Amount, bool) { return cpu, true }
	}
	// evictions returns the pods that left in eleven minutes, of a node of 8 cores, of which so many millicores are in use.
	evictions := func(used func(minute int) (resources.Amount, bool), changes ...func(*loadlinev1alpha1.SizingPolicySpec)) (left []string) {
		t.Helper()
		r := shareWith(t, config, append(peakingPods(4, unlimited), peaking(), on(changes...), kubelet("n1", "8"), kubelet("n2", "8"))...)
		minute := 0
		r.nodeMetrics(func() (resources.Amount, bool) { return used(minute) })
		for ; minute < 11; minute++ {
			r.turn(time.Duration(minute) * time.Minute)
		}
		return r.evictions()
	}
	require.Equal(t, []string{"web-1-0"}, evictions(always(6801), evicting, byUse))
	require.Empty(t, evictions(always(6800), evicting, byUse), "85 % of 8 cores")
	require.Empty(t, evictions(func(minute int) (resources.Amount, bool) {
		if minute%5 == 4 {
			return 8000, true
		}
		return 6000, true
	}, evicting, byUse), "a minute of five")
	require.Empty(t, evictions(func(int) (resources.Amount, bool) { return 8000, false }, evicting, byUse))
	require.Empty(t, evictions(always(8000), byUse), "nobody may be evicted")
	require.Empty(t, evictions(always(8000), evicting), "cruisekube goes by bases and headroom alone")
}

// What is in use is asked for only where it matters, once a pass.
func TestTheUseOfNodesIsAskedForWhereItMatters(t *testing.T) {
	asked := func(changes ...func(*loadlinev1alpha1.SizingPolicySpec)) (n int) {
		r := newSharing(t, 3, on(changes...))
		r.nodeMetrics(func() (resources.Amount, bool) { n++; return 0, false })
		for minute := range 6 {
			r.turn(time.Duration(minute) * time.Minute)
		}
		return n
	}
	require.Zero(t, asked(byUse))
	require.Zero(t, asked(evicting))
	require.Equal(t, 5, asked(evicting, byUse), "once a pass after the first round")
	require.Equal(t, 5, asked(evicting, byUse, func(s *loadlinev1alpha1.SizingPolicySpec) { s.Sharing.Mode = new(loadlinev1alpha1.SharingDryRun) }), "in a dry run, too")
}
