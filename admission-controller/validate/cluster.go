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

// Cluster reads what surrounds pods and VPAs. It is safe for concurrent use.
type Cluster struct {
	Kube      kubernetes.Interface
	Namespace string           // the only one that is looked at; empty: all
	VPAs      cache.Indexer    // with target.Indexers
	Targets   *target.Resolver // one that is Remembering: an answer that came too late must not be kept as an error
	Retry     time.Duration    // after something could not be read; 0: client.RetryForbidden

	quotas  atomic.Pointer[quotas]
	largest atomic.Pointer[resources.List]
	nodes   atomic.Pointer[nodefit.Nodes] // nil: not known, or larger ones may be added
	advised atomic.Int32                  // VPAs that are asked about now
	asked   atomic.Bool                   // the nodes were needed since they were read
	exceed  atomic.Bool                   // a pod was larger than any node since then
	slots   chan struct{}                 // of lists; see lists
	once    sync.Once
}

// quotas are those of all namespaces.
type quotas struct {
	corelisters.ResourceQuotaLister

	known cache.InformerSynced // no more, once they may not be read
}

const (
	mostHPAs  = 250                    // of a namespace that are looked at for one VPA
	mostBytes = 2 << 20                // of a list of them; most take 4 KiB each
	mostLists = 4                      // that are read at the same time
	mostAsked = 16                     // VPAs that are asked about at the same time
	askTime   = 200 * time.Millisecond // for what is asked about one VPA
)

// Quotas returns the ResourceQuotas of a namespace as far as they are known.
func (c *Cluster) Quotas(namespace string) []*corev1.ResourceQuota {
	q := c.quotas.Load()
	if q == nil || !q.known() {
		return nil
	}
	// A lister fails only if its index is missing, which is our own.
	list, _ := q.ResourceQuotas(namespace).List(labels.Everything())
	return list
}

// Run reads what it may until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var reading sync.WaitGroup
	reading.Go(func() { c.followQuotas(ctx) })
	c.followNodes(ctx)
	reading.Wait()
}

// followQuotas keeps quotas known as far as they may be read.
func (c *Cluster) followQuotas(ctx context.Context) {
	factory := client.Factory(c.Kube, c.Namespace, 0, "")
	informer := factory.Core().V1().ResourceQuotas()
	if err := client.Optional(informer.Informer(), c.Retry, "ResourceQuotas cannot be read, so new pods are not cut to what they leave"); err != nil {
		klog.FromContext(ctx).Error(err, "Watch resource quotas") // only of one that runs already
	}
	factory.Start(ctx.Done())
	c.quotas.Store(&quotas{informer.Lister(), informer.Informer().HasSynced})
	<-ctx.Done()
	factory.Shutdown()
}

// Advise returns warnings about a VPA that is created or changed; old is nil or
// what it was. One whose spec stays as it is gets none, nor one that comes while many are
// asked about: each holds one of the answers that the server gives at once.
func (c *Cluster) Advise(ctx context.Context, vpa, old *vpav1.VerticalPodAutoscaler) []string {
	if vpa.Spec.TargetRef == nil || old != nil && reflect.DeepEqual(vpa.Spec, old.Spec) {
		return nil
	}
	defer c.advised.Add(-1)
	if c.advised.Add(1) > mostAsked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	view := Surroundings{Others: c.others(vpa)}
	var err error
	var reading sync.WaitGroup
	reading.Go(func() { // in parallel with the request for the target
		defer serving.Recover(&err) // the server does not recover panics of other goroutines
		view.Scaled, err = c.scaled(ctx, vpa)
	})
	view.Target, view.Template = c.target(ctx, vpa)
	reading.Wait()
	c.asked.Store(true)
	if largest := c.largest.Load(); largest != nil {
		view.Largest = *largest
	}
	if err != nil {
		klog.FromContext(ctx).V(4).Info("HorizontalPodAutoscalers cannot be read, so no warning tells of them", "reason", err)
	}
	return Advise(vpa, view)
}

// target returns why the target of a VPA has no pods, and its pod template, as far as they are known. It never
// waits for the caches. A target that is missing there, or whose template is needed, is read once from
// the API server: users create a VPA and its target at the same time.
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
				return "", template // the caches have not seen it yet
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

// namesContainers reports whether a VPA has a policy for a single container.
func namesContainers(vpa *vpav1.VerticalPodAutoscaler) bool {
	p := vpa.Spec.ResourcePolicy
	return p != nil && slices.ContainsFunc(p.ContainerPolicies, func(c vpav1.ContainerResourcePolicy) bool {
		return c.ContainerName != vpav1.DefaultContainerResourcePolicy
	})
}

func (c *Cluster) others(vpa *vpav1.VerticalPodAutoscaler) (others []*vpav1.VerticalPodAutoscaler) {
	all, err := target.VPAsOf(c.VPAs, target.RefKey(vpa.Namespace, vpa.Spec.TargetRef))
	if err != nil {
		return nil // without the index nothing is known
	}
	for _, other := range all {
		if other.Name != vpa.Name {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b *vpav1.VerticalPodAutoscaler) int { return strings.Compare(a.Name, b.Name) })
	return others
}

// scaled lists the HorizontalPodAutoscalers on the target of a VPA.
func (c *Cluster) scaled(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler) (found []Scaled, err error) {
	if vpa.Namespace == "" {
		return nil, errors.New("the review names no namespace, and those of all are not for one VPA")
	}
	list, err := c.autoscalers(ctx, vpa.Namespace)
	if err != nil {
		return nil, err
	}
	workload := target.RefKey(vpa.Namespace, vpa.Spec.TargetRef)
	for i := range list.Items {
		h := &list.Items[i]
		h.Namespace = vpa.Namespace
		if looked := sizing.Looks(h); looked != nil && sizing.Scales(h, workload, c.Targets.From) {
			found = append(found, Scaled{Name: h.Name, Looked: looked})
		}
	}
	return found, nil
}

// autoscalers reads those of a namespace. Who may create some there decides how large
// the list is, so neither long ones nor many at once are read.
func (c *Cluster) autoscalers(ctx context.Context, namespace string) (list autoscalingv2.HorizontalPodAutoscalerList, err error) {
	select {
	case c.lists() <- struct{}{}:
		defer func() { <-c.lists() }()
	case <-ctx.Done():
		return list, fmt.Errorf("wait for other lists of HorizontalPodAutoscalers: %w", ctx.Err())
	}
	body, err := c.Kube.Discovery().RESTClient().Get().
		AbsPath("/apis/autoscaling/v2").Namespace(namespace).Resource("horizontalpodautoscalers").
		Param("limit", strconv.Itoa(mostHPAs)).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return list, err
	}
	defer func() { _ = body.Close() }() // whatever it says, what was read counts
	raw, err := io.ReadAll(io.LimitReader(body, mostBytes+1))
	switch {
	case err != nil:
		return list, fmt.Errorf("read the list of HorizontalPodAutoscalers: %w", err)
	case len(raw) > mostBytes:
		return list, fmt.Errorf("the list of HorizontalPodAutoscalers is longer than %d bytes", mostBytes)
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return list, fmt.Errorf("decode the list of HorizontalPodAutoscalers: %w", err)
	}
	return list, nil
}

// lists returns what holds as many values as lists are read.
func (c *Cluster) lists() chan struct{} {
	c.once.Do(func() { c.slots = make(chan struct{}, mostLists) })
	return c.slots
}
