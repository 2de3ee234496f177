package actuate

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
)

// Memory returns what asks the metrics API, through the client of any group of
// the API server, how many bytes of memory the containers of a pod use. A pod
// that was not measured yet is an error.
func Memory(client rest.Interface) func(ctx context.Context, namespace, pod string) (map[string]amount.Amount, error) {
	return func(ctx context.Context, namespace, pod string) (map[string]amount.Amount, error) {
		body, err := client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods", pod).
			SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, err)
		}
		return decodeMemory(body)
	}
}

func decodeMemory(body []byte) (map[string]amount.Amount, error) {
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
	used := make(map[string]amount.Amount, len(metrics.Containers))
	for _, c := range metrics.Containers {
		if c.Usage.Memory != nil {
			used[c.Name] = convert.Amount(amount.Memory, *c.Usage.Memory)
		}
	}
	return used, nil
}
