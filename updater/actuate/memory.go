package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
)

const (
	// metricsTimeout is short, because the metrics API is a precaution and must not delay changes.
	metricsTimeout = 2 * time.Second
	// metricsPause is the pause after the metrics API timed out for a pod of a namespace. It
	// applies to all namespaces once maxPausedNamespaces of them are paused.
	metricsPause        = time.Minute
	maxPausedNamespaces = 2
)

var errMetricsPaused = errors.New("metrics API is paused after a recent timeout")

// NewMeter returns a Meter. client may be the client of any API group.
func NewMeter(client rest.Interface) *Meter {
	return &Meter{client: client, pausedUntil: map[string]time.Time{}}
}

// Meter reads usage from the metrics API. It is safe for concurrent use.
type Meter struct {
	client rest.Interface

	mu          sync.Mutex
	pausedUntil map[string]time.Time // by namespace: no request before
}

func (m *Meter) isPaused(namespace string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.pausedUntil, func(_ string, until time.Time) bool { return !now.Before(until) })
	_, silent := m.pausedUntil[namespace]
	return silent || len(m.pausedUntil) >= maxPausedNamespaces
}

func (m *Meter) pause(namespace string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pausedUntil[namespace] = now.Add(metricsPause)
}

// Memory returns the usage of the containers of a pod in bytes, or an error without metrics. The
// timeout is 2 s. After one, it sends no request for a minute, for that namespace or for all.
func (m *Meter) Memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error) {
	if m.isPaused(namespace, time.Now()) {
		return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, errMetricsPaused)
	}
	limited, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	body, err := client.Body(m.client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1").Namespace(namespace).Resource("pods").Name(pod).
		SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(limited))
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			m.pause(namespace, time.Now())
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

// usageMargin is the minimum part of a new memory limit above the usage. Usage is some seconds old,
// and a container at its limit is killed.
const usageMargin = 0.1

// keepUsedMemory limits cuts of memory limits to the usage plus usageMargin. Under a SizingPolicy
// only the limit is raised, to the usage plus rollout.MemoryMarginPercent. The error is ErrInUse if
// the rest is not worth a resize. Unknown usage allows the change: the kubelet checks too.
func (c *Cluster) keepUsedMemory(ctx context.Context, change Change) (Change, error) {
	if c.Usage == nil {
		return change, nil
	}
	var used map[string]resources.Amount
	var inUseErr error
	current := convert.Pod(change.Object)
	for _, has := range current.Containers {
		at := slices.IndexFunc(change.Containers, func(f policy.ContainerTarget) bool { return f.Name == has.Name })
		if at < 0 {
			continue
		}
		limit, limited := change.Containers[at].Limits.Get(resources.Memory)
		if !limited || !has.Limits.Has(resources.Memory) || limit >= has.Limits.Value(resources.Memory) {
			continue
		}
		if used == nil {
			var err error
			if used, err = c.Usage.Memory(ctx, change.Object.Namespace, change.Object.Name); err != nil {
				klog.FromContext(ctx).V(4).Info("Reducing a memory limit without known usage", "pod", klog.KObj(change.Object), "reason", err)
				return change, nil
			}
		}
		if used[has.Name] <= limit.Scale(1-usageMargin) {
			continue
		}
		if inUseErr == nil {
			inUseErr = fmt.Errorf("%w: container %s uses %d bytes, its new limit is %d", ErrInUse, has.Name, used[has.Name], limit)
			change.Containers = slices.Clone(change.Containers)
		}
		if change.Observed {
			change.Containers[at] = rollout.ClampMemoryLimit(has, change.Containers[at], used[has.Name], rollout.MemoryMarginPercent)
		} else {
			change.Containers[at] = limitMemoryCut(has, change.Containers[at], used[has.Name].Scale(1/(1-usageMargin)))
		}
	}
	if inUseErr != nil && !c.exceedsThreshold(current.Containers, change.Containers) {
		return change, inUseErr
	}
	return change, nil
}

// limitMemoryCut keeps the request in proportion, and drops the target if nothing can be cut.
func limitMemoryCut(has policy.Container, gets policy.ContainerTarget, minLimit resources.Amount) policy.ContainerTarget {
	before, limit := has.Limits.Value(resources.Memory), gets.Limits.Value(resources.Memory)
	if minLimit >= before {
		gets.Requests, gets.Limits = gets.Requests.Without(resources.Memory), gets.Limits.Without(resources.Memory)
		return gets
	}
	part, _ := (before - minLimit).Proportion(policy.FullFraction, before-limit)
	return policy.Interpolate(resources.Memory, part, has, gets)
}

func (c *Cluster) exceedsThreshold(containers []policy.Container, gets []policy.ContainerTarget) bool {
	return slices.ContainsFunc(containers, func(has policy.Container) bool {
		at := slices.IndexFunc(gets, func(f policy.ContainerTarget) bool { return f.Name == has.Name })
		return at >= 0 && (c.differs(has.Requests, gets[at].Requests) || c.differs(has.Limits, gets[at].Limits))
	})
}

func (c *Cluster) differs(has, gets resources.List) bool {
	for k := range resources.Kind(resources.Kinds) {
		if to, ok := gets.Get(k); ok && to != has.Value(k) && disruption.Relative(k, has.Value(k), to) >= c.Threshold {
			return true
		}
	}
	return false
}
