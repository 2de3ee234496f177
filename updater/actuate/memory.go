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
	// answerTime is how long an answer of the metrics API is awaited. It is a precaution, and must not hold up changes.
	answerTime = 2 * time.Second
	// silence is the pause after the metrics API timed out for a pod. It holds for the namespace of
	// the pod, and for all namespaces once silentNamespaces of them are paused.
	silence          = time.Minute
	silentNamespaces = 2
)

var errSilent = errors.New("the metrics API gave no answer in time a moment ago")

// NewMeter returns a Meter that uses the client of any group of the API server.
func NewMeter(client rest.Interface) *Meter {
	return &Meter{client: client, until: map[string]time.Time{}}
}

// Meter reads usage from the metrics API. It is safe for concurrent use.
type Meter struct {
	client rest.Interface

	mu    sync.Mutex
	until map[string]time.Time // by namespace: the API is not asked before
}

func (m *Meter) silent(namespace string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	_, silent := m.until[namespace]
	return silent || len(m.until) >= silentNamespaces
}

func (m *Meter) unanswered(namespace string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until[namespace] = now.Add(silence)
}

// Memory returns the memory usage of the containers of a pod, in bytes. A pod without metrics is an error. It returns
// within 2 s. After a timeout it requests nothing for a minute, for that namespace or for all.
func (m *Meter) Memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error) {
	if m.silent(namespace, time.Now()) {
		return nil, fmt.Errorf("read the metrics of pod %s/%s: %w", namespace, pod, errSilent)
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
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

// Of a new memory limit so much must be left above what is used: usage is some
// seconds old, and a container that meets its limit is killed.
const spare = 0.1

// spared returns a change that cuts no memory limit to less than what is used and a spare: such a container goes down
// by a part, or keeps its memory. Under a SizingPolicy its limit alone is lifted, to what is used and a margin. It is
// an error if nothing is left that is worth a resize. A usage that is not known is no reason to wait: the node looks,
// too.
func (c *Cluster) spared(ctx context.Context, change Change) (Change, error) {
	if c.Usage == nil {
		return change, nil
	}
	var used map[string]resources.Amount
	var inUse error
	current := convert.Pod(change.Target)
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
			if used, err = c.Usage.Memory(ctx, change.Target.Namespace, change.Target.Name); err != nil {
				klog.FromContext(ctx).V(4).Info("A memory limit is cut without knowing the usage", "pod", klog.KObj(change.Target), "reason", err)
				return change, nil
			}
		}
		if used[has.Name] <= limit.Scale(1-spare) {
			continue
		}
		if inUse == nil {
			inUse = fmt.Errorf("%w: container %s uses %d bytes, its new limit is %d", ErrInUse, has.Name, used[has.Name], limit)
			change.Containers = slices.Clone(change.Containers)
		}
		if change.Observed {
			change.Containers[at] = rollout.LiftMemory(has, change.Containers[at], used[has.Name], rollout.MemoryMargin)
		} else {
			change.Containers[at] = lowered(has, change.Containers[at], used[has.Name].Scale(1/(1-spare)))
		}
	}
	if inUse != nil && !c.worthwhile(current.Containers, change.Containers) {
		return change, inUse
	}
	return change, nil
}

// lowered goes as far from what a container has to what it would get as its memory limit
// may fall, with the request in proportion; nowhere if the limit is that low already.
func lowered(has policy.Container, gets policy.ContainerTarget, least resources.Amount) policy.ContainerTarget {
	before, limit := has.Limits.Value(resources.Memory), gets.Limits.Value(resources.Memory)
	if least >= before {
		gets.Requests, gets.Limits = gets.Requests.Without(resources.Memory), gets.Limits.Without(resources.Memory)
		return gets
	}
	part, _ := (before - least).Proportion(policy.Whole, before-limit)
	return policy.Partial(resources.Memory, part, has, gets)
}

// worthwhile reports whether any amount of a container changes by the threshold.
func (c *Cluster) worthwhile(containers []policy.Container, gets []policy.ContainerTarget) bool {
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
