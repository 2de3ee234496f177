package actuate

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"golang.org/x/time/rate"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/calm"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/view"
)

// Change is an Action with the objects it concerns.
type Change struct {
	disruption.Action
	Target  *corev1.Pod
	Reading view.Reading // of the VPA
	// Unboosted are containers whose startup boost is taken back by this change.
	Unboosted []string
}

// ErrRateLimited is the error of a change that a rate limit, ours or that of the
// client, does not allow before the pass ends.
var ErrRateLimited = errors.New("the rate limit allows no change before the pass ends")

// ErrRehearsed is the error of a change that was only rehearsed.
var ErrRehearsed = errors.New("a dry run changes nothing")

// ErrInUse is the error of a resize that would cut the memory limit of a pod to
// less than it needs.
var ErrInUse = errors.New("the pod uses too much memory for its new limit")

// ErrProtected is the error of a resize that would restart a container although
// the API server would refuse to evict the pod, as for a PodDisruptionBudget.
var ErrProtected = errors.New("the pod may not be disrupted now")

// Reasons of the events.
const (
	EventEvicted      = "EvictedByVPA"         // on the pod
	EventEvictedPod   = "EvictedPod"           // on the VPA
	EventResized      = "InPlaceResizedByVPA"  // on the pod
	EventNotResizable = "InPlaceResizeSkipped" // on the pod
)

// Cluster carries changes out on the API server.
type Cluster struct {
	Kube      kubernetes.Interface
	Events    record.EventRecorder
	Resizes   *rate.Limiter
	Evictions *rate.Limiter
	// Memory reads what the containers of a pod use, in bytes; nil: not asked.
	Memory func(ctx context.Context, namespace, pod string) (map[string]amount.Amount, error)
}

// Limiter returns a limiter of changes a second that lets burst through at
// once. A rate of 0 or below limits nothing.
func Limiter(perSecond float64, burst int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), burst)
}

// markTimeout is how long marking a resized pod may take.
const markTimeout = 10 * time.Second

// Resize asks the API server for the new sizes and marks the pod.
func (c *Cluster) Resize(ctx context.Context, change Change) error {
	if err := c.resize(ctx, change); err != nil {
		return err
	}
	c.Events.Eventf(change.Target, corev1.EventTypeNormal, EventResized, "Resized in place as VPA %s recommends (%s): %s", change.VPA, change.Cause, Sizes(change))
	if err := c.mark(ctx, change); err != nil {
		klog.FromContext(ctx).Error(err, "Resized pod could not be marked with an annotation", "pod", klog.KObj(change.Target))
	}
	return nil
}

// Unboost takes startup boosts back: the sizes first, where they still differ,
// then the annotations. After an error both are to be tried again.
func (c *Cluster) Unboost(ctx context.Context, change Change) error {
	if sizes := Sizes(change); sizes != "" {
		if err := c.resize(ctx, change); err != nil {
			return err
		}
		c.Events.Eventf(change.Target, corev1.EventTypeNormal, EventResized, "Startup boost taken back: %s", sizes)
	}
	if err := c.mark(ctx, change); err != nil {
		return fmt.Errorf("remove the boost annotations of pod %s: %w", klog.KObj(change.Target), err)
	}
	return nil
}

func (c *Cluster) resize(ctx context.Context, change Change) error {
	patch, err := ResizePatch(change)
	if err != nil {
		return fmt.Errorf("resize pod %s: %w", klog.KObj(change.Target), err)
	}
	if err := c.spared(ctx, change); err != nil {
		return fmt.Errorf("resize pod %s: %w", klog.KObj(change.Target), err)
	}
	if change.Restarts && !change.Cures {
		// A restart is a disruption: what forbids an eviction forbids it, too. Not one
		// of a pod that is killed again and again anyway, and of which a
		// PodDisruptionBudget may allow no eviction just for that.
		if err := c.evict(ctx, change, metav1.DryRunAll); err != nil {
			return fmt.Errorf("restart a container of pod %s: %w", klog.KObj(change.Target), err)
		}
	}
	if c.Resizes.Wait(ctx) != nil {
		return ErrRateLimited
	}
	_, err = c.Kube.CoreV1().Pods(change.Target.Namespace).Patch(ctx, change.Target.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "resize")
	if errors.Is(err, client.ErrThrottled) {
		return ErrRateLimited
	}
	if err != nil {
		return fmt.Errorf("resize pod %s: %w", klog.KObj(change.Target), err)
	}
	klog.FromContext(ctx).V(2).Info("Pod resized", "pod", klog.KObj(change.Target), "vpa", change.VPA, "cause", change.Cause, "sizes", Sizes(change))
	return nil
}

// Of a new memory limit so much must be left above what is used: usage is some
// seconds old, and a container that meets its limit is killed.
const spare = 0.1

// spared is an error if the change would cut a memory limit to what is used. A
// usage that is not known is no reason to wait: the node looks, too.
func (c *Cluster) spared(ctx context.Context, change Change) error {
	var used map[string]amount.Amount
	for i := range change.Target.Spec.Containers {
		container := &change.Target.Spec.Containers[i]
		now := convert.Resources(convert.Current(change.Target, *container).Limits)
		for _, f := range change.Containers {
			limit, cut := f.Limits.Get(amount.Memory)
			if f.Name != container.Name || !cut || !now.Has(amount.Memory) || limit >= now.Value(amount.Memory) || c.Memory == nil {
				continue
			}
			if used == nil {
				var err error
				if used, err = c.Memory(ctx, change.Target.Namespace, change.Target.Name); err != nil {
					klog.FromContext(ctx).V(4).Info("A memory limit is cut without knowing the usage", "pod", klog.KObj(change.Target), "reason", err)
					return nil
				}
			}
			if used[f.Name] > limit.Scale(1-spare) {
				return fmt.Errorf("%w: container %s uses %d bytes, its new limit is %d", ErrInUse, f.Name, used[f.Name], limit)
			}
		}
	}
	return nil
}

func (c *Cluster) mark(ctx context.Context, change Change) error {
	mark, err := MarkPatch(change.Target, change.Unboosted...)
	if err != nil {
		return err
	}
	return c.annotate(ctx, change.Target, mark)
}

// Pause writes on a pod that changes of its workload had no effect, so that it is
// known after a restart.
func (c *Cluster) Pause(ctx context.Context, pod *corev1.Pod, p calm.Pause) error {
	patch, err := PausePatch(pod, p)
	if err != nil {
		return err
	}
	return c.annotate(ctx, pod, patch)
}

// annotate finishes what was begun, even if the pass has no time left.
func (c *Cluster) annotate(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	_, err := c.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Evict asks the API server to evict the pod, which respects
// PodDisruptionBudgets.
func (c *Cluster) Evict(ctx context.Context, change Change) error {
	if c.Evictions.Wait(ctx) != nil {
		return ErrRateLimited
	}
	if err := c.evict(ctx, change); errors.Is(err, ErrRateLimited) {
		return err
	} else if err != nil {
		return fmt.Errorf("evict pod %s: %w", klog.KObj(change.Target), err)
	}
	klog.FromContext(ctx).V(2).Info("Pod evicted", "pod", klog.KObj(change.Target), "vpa", change.VPA, "cause", change.Cause, "sizes", Sizes(change))
	c.Events.Eventf(change.Target, corev1.EventTypeNormal, EventEvicted, "Evicted so that it comes back as VPA %s recommends (%s): %s", change.VPA, change.Cause, Sizes(change))
	c.Events.Eventf(change.Reading.Object, corev1.EventTypeNormal, EventEvictedPod, "Evicted pod %s (%s): %s", change.Pod, change.Cause, Sizes(change))
	return nil
}

func (c *Cluster) evict(ctx context.Context, change Change, dryRun ...string) error {
	err := c.Kube.CoreV1().Pods(change.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: change.Namespace, Name: change.Pod},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &change.Target.UID}, DryRun: dryRun},
	})
	switch {
	case errors.Is(err, client.ErrThrottled):
		return ErrRateLimited
	case err != nil && len(dryRun) > 0 && !errors.Is(err, ErrRateLimited) && !Gone(err):
		return fmt.Errorf("%w: %w", ErrProtected, err)
	}
	return err
}

// NotResizable tells on the pod that its node cannot grant what is recommended.
func (c *Cluster) NotResizable(_ context.Context, pod *corev1.Pod) {
	c.Events.Event(pod, corev1.EventTypeNormal, EventNotResizable,
		"Not resized: its node cannot grant the recommended resources. It is tried again when less is recommended")
}

// LeftAlone says nothing: the log does.
func (c *Cluster) LeftAlone([]disruption.Skip) {}

// Lasting tells on the VPA why pods of it are left alone for long.
func (c *Cluster) Lasting(vpa *vpav1.VerticalPodAutoscaler, reason disruption.Reason, message string) {
	c.Events.Event(vpa, corev1.EventTypeNormal, reason.String(), message)
}

// Gone tells whether the pod of a change does not exist any more.
func Gone(err error) bool { return apierrors.IsNotFound(err) }

// Refused tells whether the API server understood a resize and this pod can
// never get it, or it does not know resizes at all. Other errors may be over a
// moment later, or would meet a new pod as well: a quota, a LimitRange, or a
// missing permission of ours are no reason to evict.
func Refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || NoCapacity(err) ||
		apierrors.HasStatusCause(err, unsupportedPlatform) ||
		apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// Causes that the API server gives when it forbids a resize because of the
// node: it can never give so much, or cannot resize at all.
const (
	nodeCapacity        metav1.CauseType = "NodeCapacity"
	unsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// NoCapacity tells whether a resize was refused because the node can never
// grant it.
func NoCapacity(err error) bool {
	return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, nodeCapacity)
}
