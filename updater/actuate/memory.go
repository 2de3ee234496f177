package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

const (
	// answerTime is how long an answer of the metrics API is awaited. It is a
	// precaution, and must not hold up changes.
	answerTime = 2 * time.Second
	// silence is the pause after the metrics API timed out for a pod. It holds for the namespace of
	// the pod, and for all namespaces once silentNamespaces of them are paused.
	silence          = time.Minute
	silentNamespaces = 2
)

// errSilent is the error while the metrics API is not asked.
var errSilent = errors.New("the metrics API gave no answer in time a moment ago")

// NewMeter returns a Meter that uses the client of any group of the API server.
func NewMeter(client rest.Interface) *Meter { return &Meter{client: client, wait: answerTime} }

// Meter reads usage from the metrics API. It is safe for concurrent use.
type Meter struct {
	client rest.Interface
	wait   time.Duration

	mu    sync.Mutex
	until map[string]time.Time // by namespace: the API is not asked before
}

// silent reports whether the API is not asked about pods of a namespace.
func (m *Meter) silent(namespace string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	_, silent := m.until[namespace]
	return silent || len(m.until) >= silentNamespaces
}

// unanswered records that the API did not answer about a pod of a namespace.
func (m *Meter) unanswered(namespace string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until == nil {
		m.until = map[string]time.Time{}
	}
	m.until[namespace] = now.Add(silence)
}

// Memory returns the memory usage of the containers of a pod, in bytes. A pod without metrics is an error. It returns
// within 2 s. After a timeout it requests nothing for a minute, for that namespace or for all.
func (m *Meter) Memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error) {
	if m.silent(namespace, time.Now()) {
		return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, errSilent)
	}
	limited, cancel := context.WithTimeout(ctx, m.wait)
	defer cancel()
	body, err := client.Body(m.client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1").Namespace(namespace).Resource("pods").Name(pod).
		SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(limited))
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			m.unanswered(namespace, time.Now())
		}
		return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, err)
	}
	return decodeMemory(body)
}

func decodeMemory(body []byte) (map[string]resources.Amount, error) {
	var metrics v1beta1.PodMetrics
	if err := json.Unmarshal(body, &metrics); err != nil {
		return nil, fmt.Errorf("read pod metrics (metrics.k8s.io): %w", err)
	}
	used := make(map[string]resources.Amount, len(metrics.Containers))
	for _, c := range metrics.Containers {
		if memory, found := c.Usage[corev1.ResourceMemory]; found {
			used[c.Name] = convert.Amount(resources.Memory, memory)
		}
	}
	return used, nil
}
