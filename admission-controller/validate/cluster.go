package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodefit"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
)

// Cluster reads the cluster state around pods and VPAs. It is safe for concurrent use.
type Cluster struct {
	Kube      kubernetes.Interface
	Namespace string           // to read, empty: all
	VPAs      cache.Indexer    // with target.Indexers
	Targets   *target.Resolver // Remembering, so that a late answer is not kept as an error
	Retry     time.Duration    // after a read error, 0: client.RetryForbidden

	quotas        atomic.Pointer[quotas]
	largest       atomic.Pointer[resources.List]
	nodes         atomic.Pointer[nodefit.Nodes] // nil: unknown, or larger nodes may be added
	advising      atomic.Int32                  // number of VPAs being advised
	nodesNeeded   atomic.Bool                   // nodes were needed since the last read
	nodesExceeded atomic.Bool                   // a pod exceeded every node since the last read
	slots         chan struct{}                 // concurrent HPA lists, see listSlots
	once          sync.Once
}

type quotas struct {
	corelisters.ResourceQuotaLister

	known cache.InformerSynced // false once reading is forbidden
}

const (
	maxHPAs       = 250                    // per namespace and VPA
	maxListBytes  = 2 << 20                // of a list, most take 4 KiB each
	maxLists      = 4                      // concurrent lists
	maxAdvised    = 16                     // concurrent VPAs
	adviseTimeout = 200 * time.Millisecond // for all reads about one VPA
)

// Quotas returns the known ResourceQuotas of a namespace.
func (c *Cluster) Quotas(namespace string) []*corev1.ResourceQuota {
	q := c.quotas.Load()
	if q == nil || !q.known() {
		return nil
	}
	// A lister fails only without its index, which always exists.
	list, _ := q.ResourceQuotas(namespace).List(labels.Everything())
	return list
}

// Run reads quotas and nodes until ctx ends, as far as permissions allow.
func (c *Cluster) Run(ctx context.Context) {
	var reading sync.WaitGroup
	reading.Go(func() { c.followQuotas(ctx) })
	c.followNodes(ctx)
	reading.Wait()
}

func (c *Cluster) followQuotas(ctx context.Context) {
	factory := client.Factory(c.Kube, c.Namespace, 0, "")
	informer := factory.Core().V1().ResourceQuotas()
	if err := client.Optional(informer.Informer(), c.Retry, "Failed to read ResourceQuotas, admitting new pods without quota cuts"); err != nil {
		klog.FromContext(ctx).Error(err, "Watch resource quotas") // only if the informer already runs
	}
	factory.Start(ctx.Done())
	c.quotas.Store(&quotas{informer.Lister(), informer.Informer().HasSynced})
	<-ctx.Done()
	factory.Shutdown()
}

// Advise returns warnings about a VPA with a new or changed spec. Old is nil on create. Each call
// holds a review slot of the server, so there are none while maxAdvised VPAs are being advised.
func (c *Cluster) Advise(ctx context.Context, vpa, old *vpav1.VerticalPodAutoscaler) []string {
	if vpa.Spec.TargetRef == nil || old != nil && reflect.DeepEqual(vpa.Spec, old.Spec) {
		return nil
	}
	defer c.advising.Add(-1)
	if c.advising.Add(1) > maxAdvised {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, adviseTimeout)
	defer cancel()
	view := ClusterView{SameTarget: c.sameTarget(vpa)}
	var err error
	var reading sync.WaitGroup
	reading.Go(func() { // in parallel with the request for the target
		defer serving.Recover(&err) // the server does not recover panics of other goroutines
		view.HPAs, err = c.scaled(ctx, vpa)
	})
	view.PodlessReason, view.Template = c.target(ctx, vpa)
	reading.Wait()
	c.nodesNeeded.Store(true)
	if largest := c.largest.Load(); largest != nil {
		view.Largest = *largest
	}
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Failed to read HorizontalPodAutoscalers, giving no warnings about them", "reason", err)
	}
	return Advise(vpa, view)
}

// target returns why the target has no pods, and its pod template, as far as known. It never waits
// for caches. An uncached target is read once: users create a VPA and its target together.
func (c *Cluster) target(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler) (podless string, template *corev1.PodSpec) {
	key := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	_, err := c.Targets.Selector(ctx, vpa.Namespace, vpa.Spec.TargetRef)
	if errors.Is(err, target.ErrNotRead) {
		return "", nil
	}
	if err != nil || namesContainers(vpa) {
		found, known, unread := target.Template(ctx, c.Kube, key)
		switch {
		case unread != nil:
			klog.FromContext(ctx).V(4).Info("Failed to read the target of a VPA, giving no warnings about it", "vpa", klog.KObj(vpa), "reason", unread)
			return "", nil
		case found != nil:
			template = found
			if err != nil && !c.Targets.Has(key) {
				return "", template // not in the caches yet
			}
		case known && err == nil: // deleted a moment ago
			return fmt.Sprintf("%s does not exist in namespace %s", key, key.Namespace), nil
		}
	}
	if err != nil {
		return err.Error(), template
	}
	if replicas, known := c.Targets.Replicas(ctx, key); known && replicas == 0 {
		return fmt.Sprintf("%s wants 0 pods", key), template
	}
	return "", template
}

func namesContainers(vpa *vpav1.VerticalPodAutoscaler) bool {
	p := vpa.Spec.ResourcePolicy
	return p != nil && slices.ContainsFunc(p.ContainerPolicies, func(c vpav1.ContainerResourcePolicy) bool {
		return c.ContainerName != vpav1.DefaultContainerResourcePolicy
	})
}

func (c *Cluster) sameTarget(vpa *vpav1.VerticalPodAutoscaler) (others []*vpav1.VerticalPodAutoscaler) {
	all, err := target.VPAsOf(c.VPAs, target.RefKey(vpa.Namespace, vpa.Spec.TargetRef))
	if err != nil {
		return nil // no index, no result
	}
	for _, other := range all {
		if other.Name != vpa.Name {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b *vpav1.VerticalPodAutoscaler) int { return strings.Compare(a.Name, b.Name) })
	return others
}

func (c *Cluster) scaled(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler) (found []ScalingHPA, err error) {
	if vpa.Namespace == "" {
		return nil, errors.New("list HorizontalPodAutoscalers: review without a namespace")
	}
	list, err := c.autoscalers(ctx, vpa.Namespace)
	if err != nil {
		return nil, err
	}
	workload := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	for i := range list.Items {
		h := &list.Items[i]
		h.Namespace = vpa.Namespace
		if looked := sizing.UtilizationResources(h); looked != nil && sizing.Scales(h, workload, c.Targets.OwnerChain) {
			found = append(found, ScalingHPA{Name: h.Name, Resources: looked})
		}
	}
	return found, nil
}

// autoscalers lists HPAs of a namespace. Tenants decide the length, so it is bounded.
func (c *Cluster) autoscalers(ctx context.Context, namespace string) (list autoscalingv2.HorizontalPodAutoscalerList, err error) {
	select {
	case c.listSlots() <- struct{}{}:
		defer func() { <-c.listSlots() }()
	case <-ctx.Done():
		return list, fmt.Errorf("wait for other lists of HorizontalPodAutoscalers: %w", ctx.Err())
	}
	body, err := c.Kube.Discovery().RESTClient().Get().
		AbsPath("/apis/autoscaling/v2").Namespace(namespace).Resource("horizontalpodautoscalers").
		Param("limit", strconv.Itoa(maxHPAs)).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return list, err
	}
	defer func() { _ = body.Close() }() // the data is complete already
	raw, err := io.ReadAll(io.LimitReader(body, maxListBytes+1))
	switch {
	case err != nil:
		return list, fmt.Errorf("read the list of HorizontalPodAutoscalers: %w", err)
	case len(raw) > maxListBytes:
		return list, fmt.Errorf("the list of HorizontalPodAutoscalers is longer than %d bytes", maxListBytes)
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return list, fmt.Errorf("decode the list of HorizontalPodAutoscalers: %w", err)
	}
	return list, nil
}

func (c *Cluster) listSlots() chan struct{} {
	c.once.Do(func() { c.slots = make(chan struct{}, maxLists) })
	return c.slots
}
