package client

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
)

// NodeCPU asks the metrics API (metrics.k8s.io) once, through the client of any group of the API
// server, how much CPU of each node is in use, in millicores, by the name of the node. A node whose
// use is no quantity, or negative, is left out.
func NodeCPU(ctx context.Context, client rest.Interface) (map[string]resources.Amount, error) {
	body, err := client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("list node metrics (metrics.k8s.io): %w", err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Usage struct {
				CPU string `json:"cpu"`
			} `json:"usage"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read node metrics (metrics.k8s.io): %w", err)
	}
	used := make(map[string]resources.Amount, len(list.Items))
	for _, n := range list.Items {
		if cpu, found := convert.Measured(resources.CPU, n.Usage.CPU); found && cpu >= 0 {
			used[n.Metadata.Name] = cpu
		}
	}
	return used, nil
}
