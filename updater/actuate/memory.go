package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
)

const (
	// answerTime is how long an answer of the metrics API is awaited. It is a
	// precaution, and must not hold up changes.
	answerTime = 2 * time.Second
	// silence is how long it is not asked any more after it gave no answer in time.
	silence = time.Minute
)

// errSilent is the error while the metrics API is not asked.
var errSilent = errors.New("the metrics API gave no answer in time a moment ago")

// Memory returns what asks the metrics API, through the client of any group of
// the API server, how many bytes of memory the containers of a pod use. A pod
// that was not measured yet is an error. It answers within 2 s; if the API does not,
// the API is left alone for a minute.
func Memory(client rest.Interface) func(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error) {
	return (&meter{client: client, wait: answerTime}).memory
}

// meter asks the metrics API. It is safe for concurrent use.
type meter struct {
	client rest.Interface
	wait   time.Duration

	mu    sync.Mutex
	until time.Time // the API is not asked before
}

func (m *meter) memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error) {
	m.mu.Lock()
	silent := time.Now().Before(m.until)
	m.mu.Unlock()
	if silent {
		return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, errSilent)
	}
	limited, cancel := context.WithTimeout(ctx, m.wait)
	defer cancel()
	body, err := client.Body(m.client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1").Namespace(namespace).Resource("pods").Name(pod).
		SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(limited))
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			m.mu.Lock()
			m.until = time.Now().Add(silence)
			m.mu.Unlock()
		}
		return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, err)
	}
	return decodeMemory(body)
}

func decodeMemory(body []byte) (map[string]resources.Amount, error) {
	var metrics struct {
		Containers []struct {
			Name  string `json:"name"`
			Usage struct {
				Memory *resource.Quantity `json:"memory"`
			} `json:"usage"`
		} `json:"containers"`
	}
	if err := json.Unmarshal(body, &metrics); err != nil {
		return nil, fmt.Errorf("read pod metrics (metrics.k8s.io): %w", err)
	}
	used := make(map[string]resources.Amount, len(metrics.Containers))
	for _, c := range metrics.Containers {
		if c.Usage.Memory != nil {
			used[c.Name] = convert.Amount(resources.Memory, *c.Usage.Memory)
		}
	}
	return used, nil
}
