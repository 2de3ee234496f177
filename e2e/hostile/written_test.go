package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// ledger adds up the sizes of all versions of objects that the programs write, as JSON. etcd keeps each version until it
// is compacted, and stores most of them in a shorter form.
type ledger struct {
	mu    sync.Mutex
	bytes map[string]int64 // by resource and writer
	err   error
}

func startLedger(t *testing.T) *ledger {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config)
	require.NoError(t, err)
	l := &ledger{bytes: map[string]int64{}}
	for _, r := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "events"}, {Version: "v1", Resource: "nodes"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"},
		{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalercheckpoints"},
		{Group: "loadline.dev", Version: "v1alpha1", Resource: "sizingrecords"},
		{Group: "loadline.dev", Version: "v1alpha1", Resource: "sizingpolicies"},
	} {
		list, err := client.Resource(r).List(t.Context(), metav1.ListOptions{Limit: 1})
		require.NoError(t, err)
		w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.GetResourceVersion(), &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return client.Resource(r).Watch(ctx, o)
			},
		})
		require.NoError(t, err)
		go func() {
			for event := range w.ResultChan() {
				l.add(r.Resource, event)
			}
		}()
	}
	return l
}

// add counts a version of an object if one of the programs wrote it last.
func (l *ledger) add(resource string, event watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	object, ok := event.Object.(*unstructured.Unstructured)
	switch {
	case event.Type == watch.Error:
		l.err = fmt.Errorf("the watch of %s ended: %v", resource, event.Object)
	case ok && (event.Type == watch.Added || event.Type == watch.Modified):
		if writer := writerOf(object); isProgram(writer) {
			text, err := json.Marshal(object.Object)
			if err != nil {
				l.err = err
			}
			l.bytes[resource+" by "+writer] += int64(len(text))
		}
	}
}

// writerOf returns who changed an object last; one of the programs if others did in the same second.
func writerOf(object *unstructured.Unstructured) (writer string) {
	var last metav1.Time
	for _, m := range object.GetManagedFields() {
		if m.Time == nil || m.Time.Before(&last) {
			continue
		}
		if last.Before(m.Time) || isProgram(m.Manager) {
			last, writer = *m.Time, m.Manager
		}
	}
	return writer
}

// total returns the bytes written so far, and a text about who wrote them.
func (l *ledger) total(t *testing.T) (sum int64, text string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(t, l.err)
	var parts []string
	for _, by := range slices.Sorted(maps.Keys(l.bytes)) {
		sum += l.bytes[by]
		parts = append(parts, fmt.Sprintf("%s %d KiB", by, l.bytes[by]>>10))
	}
	return sum, strings.Join(parts, ", ")
}

// reviews are what the API server counts of its requests to the webhook, and of its store.
type reviews struct {
	all, slow, failed int
	stored            int64 // bytes
}

func countReviews(t *testing.T) (c reviews) {
	t.Helper()
	text, err := cluster.Kube.(*kubernetes.Clientset).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	fast := 0
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "{")
		ours := strings.Contains(line, `name="vpa.k8s.io"`)
		value := func() int {
			f, err := strconv.ParseFloat(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:len(line)-1], 64)
			require.NoError(t, err)
			return int(f)
		}
		switch {
		case name == "apiserver_storage_size_bytes":
			c.stored += int64(value())
		case ours && name == "apiserver_admission_webhook_admission_duration_seconds_count":
			c.all += value()
		case ours && name == "apiserver_admission_webhook_admission_duration_seconds_bucket" && strings.Contains(line, `le="1"`):
			fast += value()
		case ours && name == "apiserver_admission_webhook_fail_open_count":
			c.failed += value()
		}
	}
	require.NotZero(t, c.all, "the API server counts no reviews")
	c.slow = c.all - fast
	return c
}

// isProgram reports whether a field manager is one of the programs.
func isProgram(manager string) bool {
	return strings.HasPrefix(manager, "loadline-") || strings.HasPrefix(manager, "admission-controller")
}
