package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// What a cluster has few of wakes no program once a minute to say that nothing happened.
func TestWatchesOfFewObjectsAskForNoBookmarks(t *testing.T) {
	kinds := map[string]string{"limitranges": "LimitRangeList", "resourcequotas": "ResourceQuotaList", "replicationcontrollers": "ReplicationControllerList", "daemonsets": "DaemonSetList",
		"namespaces": "NamespaceList", "sizingpolicies": "SizingPolicyList"}
	var mu sync.Mutex
	bookmarks := map[string]string{}
	ctx, stop := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("watch") == "" {
			if want, kind := "50", path.Base(r.URL.Path); r.FormValue("limit") != want && kind != "namespaces" && kind != "sizingpolicies" { // which nobody creates in one namespace
				t.Errorf("%s are read in pages of %q: want %s", kind, r.FormValue("limit"), want)
			}
			w.Header().Set("Content-Type", "application/json")
			version := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/api/"), "/apis/")
			fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":[]}`, kinds[path.Base(r.URL.Path)], version)
			return
		}
		mu.Lock()
		bookmarks[path.Base(r.URL.Path)] = r.FormValue("allowWatchBookmarks")
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	clients, err := New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	f, vpas := Factory(clients.Kube, "", time.Hour, ""), VPAFactory(clients.VPA, "")
	f.Core().V1().LimitRanges().Informer()
	f.Core().V1().ResourceQuotas().Informer()
	f.Core().V1().ReplicationControllers().Informer()
	f.Apps().V1().DaemonSets().Informer()
	f.Core().V1().Namespaces().Informer()
	f.Apps().V1().Deployments().Informer()
	vpas.Autoscaling().V1().VerticalPodAutoscalers().Informer()
	vpas.Loadline().V1alpha1().SizingPolicies().Informer()
	f.Start(ctx.Done())
	vpas.Start(ctx.Done())
	defer func() { stop(); f.Shutdown(); vpas.Shutdown() }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		mu.Lock()
		defer mu.Unlock()
		require.Equal(c, map[string]string{"limitranges": "", "resourcequotas": "", "replicationcontrollers": "", "daemonsets": "",
			"namespaces": "", "sizingpolicies": "", "deployments": "true", "verticalpodautoscalers": "true"}, bookmarks)
	}, time.Minute, 10*time.Millisecond)
}
