// Package actuate carries out what disruption.Plan decided.
//
// Change is one Action with the objects it concerns. Cluster resizes and evicts on the API server, each with its own
// rate limit, marks resized pods and writes events; DryRun prints what it would do. Both give an error that says why a
// change did not come about: ErrRateLimited ends a pass, and Refused and NoCapacity read the answer of the API server.
//
// Every write names the UID of its pod, so that a namesake that replaced the pod
// is never hit. Whether a refused resize becomes an eviction is up to the caller.
// Before an eviction and before a resize that restarts a container, Checker reads the owner and its pods from the
// API server. Before an eviction it also creates the replacement in a dry run. Three more things are decided here, right before a change, because they need what the cluster has then: pods of
// one PodDisruptionBudget restart one after the other (budgets.Budgets), no memory limit is
// cut below what is in use (spared), and no resize replaces amounts that it was not planned for (testAmounts).
package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/budgets"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/snapshot"
)

// Change is an Action with the objects it concerns.
type Change struct {
	disruption.Action
	Target     *corev1.Pod
	Autoscaler snapshot.VPA // as it was planned for
	// Unboosted are containers whose startup boost is taken back by this change.
	Unboosted []string
	// Observed says that the change is noted on the pod before it is made, so that it can be judged and taken back.
	Observed bool
	// Mark is written on the pod before the resize: it says that the pod shares. Nil: it does not, or did before.
	Mark *sharing.Mark
}

// Protects reports whether the change protects the pod from harm, so that it may use the reserve of the write
// limit: more memory after an out-of-memory kill, or the peak of a pod that shares no more.
func (c Change) Protects() bool {
	return c.OOMResize || c.Cause == disruption.ShareEnded || c.Cause == disruption.ShareReverted
}

// gets returns what the containers get: the recommendation, and the share that is part of it.
func (c Change) gets() []policy.ContainerTarget {
	if c.Share == nil { // which is not judged with the change
		return c.Containers
	}
	all := slices.Clone(c.Containers)
	for _, share := range c.Share.Containers {
		at := slices.IndexFunc(all, func(f policy.ContainerTarget) bool { return f.Name == share.Name })
		if at < 0 {
			all = append(all, share)
			continue
		}
		for k := range resources.Kind(resources.Kinds) {
			if a, some := share.Requests.Get(k); some {
				all[at].Requests = all[at].Requests.With(k, a)
			}
			if a, some := share.Limits.Get(k); some {
				all[at].Limits = all[at].Limits.With(k, a)
			}
		}
		if share.MemoryLimit != (policy.LimitSpan{}) {
			all[at].MemoryLimit, all[at].Declared = share.MemoryLimit, share.Declared
		}
	}
	return all
}

// Cluster carries changes out on the API server.
type Cluster struct {
	Kube      kubernetes.Interface
	Events    record.EventRecorder
	Resizes   *rate.Limiter
	Evictions *rate.Limiter
	// Budgets say whether a pod may be restarted, or evicted, beside others that are being restarted; nil: not asked.
	Budgets *budgets.Budgets
	// Threshold is the least relative change for which a pod is resized where memory
	// that is in use leaves only a part of the change.
	Threshold float64
	// Reverts counts reverted changes; nil: they are not counted.
	Reverts interface {
		Reverted(vpa cache.ObjectName, harm rollout.Harm)
	}
	// Clock has the time at which a change is sent; nil: time.Now.
	Clock Clock
	// Checker makes the last checks before an eviction; nil: none are made.
	Checker *Checker
	// Caches return an error while they are too old for a disruption; nil: not checked.
	Caches interface{ Stale() error }
	// Usage reads the memory usage of the containers of a pod, in bytes; nil: not read.
	Usage interface {
		Memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error)
	}
}

// Limiter returns a limiter of changes a second that lets burst through at once. A rate of 0 or below limits nothing.
func Limiter(perSecond float64, burst int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), burst)
}

const (
	// writeTimeout bounds a resize, an eviction or a read. In a turn of a namespace, all requests are shorter.
	writeTimeout = 30 * time.Second
	// markTimeout bounds a write of annotations.
	markTimeout = 10 * time.Second
)

// Resize asks the API server for the new sizes and marks the pod.
func (c *Cluster) Resize(ctx context.Context, change Change) (rollout.Change, error) {
	_, had := change.Target.Annotations[convert.SharedAnnotation]
	change, note, err := c.resize(ctx, change)
	if err != nil {
		return note, err
	}
	if change.Cause != disruption.Shared || !had { // shares move too often for an event each time
		c.Event(change.Target, report.EventResized, fmt.Sprintf("Resized in place as VPA %s recommends (%s): %s", change.VPA, change.Cause, direction(change)), detailsOf(change.Target, Sizes(change)))
	}
	if change.Cause.Shares() { // it is marked already
		return note, nil
	}
	if err := c.mark(client.Unlimited(ctx), change); err != nil {
		klog.FromContext(ctx).Error(err, "Resized pod could not be marked with an annotation", "pod", klog.KObj(change.Target))
	}
	return note, nil
}

// Unboost takes startup boosts back: the sizes first, where they still differ,
// then the annotations. After an error both are to be tried again.
func (c *Cluster) Unboost(ctx context.Context, change Change) error {
	marking := client.Cleanup(ctx)
	if Sizes(change) != "" {
		marking = ctx
		var err error
		if change, _, err = c.resize(ctx, change); err != nil {
			return err
		}
		c.Event(change.Target, report.EventResized, "Startup boost taken back: "+direction(change), detailsOf(change.Target, Sizes(change)))
	}
	if err := c.mark(marking, change); err != nil {
		return fmt.Errorf("remove the boost annotations of pod %s: %w", klog.KObj(change.Target), err)
	}
	return nil
}

// Boost gives a young pod the startup boost that the webhook gives to new pods. It changes nothing if
// the webhook would not boost the pod, or does not answer. The annotations go first: they end the boost.
func (c *Cluster) Boost(ctx context.Context, change Change) error {
	if c.Checker == nil {
		return nil
	}
	sized, err := c.Checker.Sized(ctx, change)
	if err != nil {
		return fmt.Errorf("find the startup boost of pod %s in a dry run: %w", klog.KObj(change.Target), err)
	}
	annotations := map[string]any{convert.ObservedAnnotation: sized.Annotations[convert.ObservedAnnotation]}
	for _, container := range convert.Pod(sized).Containers {
		key := convert.BoostAnnotationPrefix + container.Name
		cpu, has := container.Requests.Get(resources.CPU)
		if sized.Annotations[key] == "" || !has {
			continue
		}
		annotations[key] = sized.Annotations[key]
		boosted := policy.ContainerTarget{Name: container.Name, Requests: resources.List{}.With(resources.CPU, cpu)}
		if limit, limited := container.Limits.Get(resources.CPU); limited {
			boosted.Limits = boosted.Limits.With(resources.CPU, limit)
		}
		change.Containers = append(change.Containers, boosted)
	}
	if len(change.Containers) == 0 {
		return nil
	}
	if err := c.annotated(ctx, change.Target, annotations); err != nil {
		return fmt.Errorf("note the startup boost on pod %s: %w", klog.KObj(change.Target), err)
	}
	if change, _, err = c.resize(client.Unlimited(ctx), change); err != nil {
		return err
	}
	c.Event(change.Target, report.EventResized, "Startup boost given: "+direction(change), detailsOf(change.Target, Sizes(change)))
	return nil
}

// resize asks for the new sizes and returns what it asked for: less of a cut where memory is in use.
func (c *Cluster) resize(ctx context.Context, change Change) (_ Change, note rollout.Change, err error) {
	failed := func(err error) (Change, rollout.Change, error) {
		if errors.Is(err, ErrRateLimited) {
			return change, note, ErrRateLimited
		}
		return change, note, fmt.Errorf("resize pod %s: %w", klog.KObj(change.Target), err)
	}
	if change, err = c.spared(ctx, change); err != nil {
		return failed(err)
	}
	if change.Observed {
		if change, err = recordable(change, Now(c.Clock)); err != nil {
			return failed(err)
		}
	}
	patch, err := ResizePatch(change)
	if err != nil {
		return failed(err)
	}
	if fairwork.Exclude(ctx, c.Resizes.Wait) != nil {
		return failed(ErrRateLimited)
	}
	leave := func() {}
	// Not asked for a pod that is killed again and again anyway, and of which a
	// PodDisruptionBudget may allow no eviction just for that.
	if change.Restarts && !change.OOMResize {
		if leave, err = c.mayRestart(ctx, change); err != nil {
			return failed(fmt.Errorf("restart a container: %w", err))
		}
	}
	if err := errors.Join(c.declare(ctx, change), c.markShared(ctx, change)); err != nil {
		leave()
		return failed(err)
	}
	if change.Observed {
		if note, err = c.noteChange(ctx, change); err != nil {
			leave()
			return failed(fmt.Errorf("note the change on the pod, so that it can be taken back: %w", err))
		}
		ctx = client.Unlimited(ctx) // the rest of a change that has begun
	}
	limited, cancel := fairwork.Limit(client.Once(ctx), writeTimeout)
	defer cancel()
	_, err = c.Kube.CoreV1().Pods(change.Target.Namespace).Patch(limited, change.Target.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "resize")
	if refused(err) {
		leave()
		if change.Observed {
			c.withdraw(ctx, change)
		}
	}
	switch err = c.settle(ctx, change.Target, err, change.madeOn); {
	case errors.Is(err, client.ErrThrottled):
		return failed(ErrRateLimited)
	case err != nil:
		return failed(uncertain(err))
	}
	klog.FromContext(ctx).V(2).Info("Pod resized", "pod", klog.KObj(change.Target), "vpa", change.VPA, "cause", change.Cause, "sizes", Sizes(change))
	return change, note, nil
}

// declare notes on a pod with which memory it was declared, before its limit and its request
// change apart for the first time: afterwards nobody could tell.
func (c *Cluster) declare(ctx context.Context, change Change) error {
	text, news := convert.DeclaredText(change.Target.Annotations, change.gets())
	if !news {
		return nil
	}
	if err := c.annotated(ctx, change.Target, map[string]any{convert.DeclaredAnnotation: text}); err != nil {
		return fmt.Errorf("note on the pod with which memory it was declared: %w", err)
	}
	return nil
}

// markShared writes on a pod that it shares, before it gets its share: whatever happens to the
// updater, the next one gives it its peak back when it is to leave.
func (c *Cluster) markShared(ctx context.Context, change Change) error {
	if change.Mark == nil {
		return nil
	}
	if err := c.MarkShare(ctx, change.Target, *change.Mark); err != nil {
		return fmt.Errorf("note on the pod that it shares what its node has left: %w", err)
	}
	return nil
}

// MarkShare writes on a pod what it shares, where that is not there yet.
func (c *Cluster) MarkShare(ctx context.Context, pod *corev1.Pod, m sharing.Mark) error {
	text := convert.SharedText(m)
	if pod.Annotations[convert.SharedAnnotation] == text && pod.Annotations[convert.ResizedAnnotation] != "" {
		return nil
	}
	return c.annotated(ctx, pod, map[string]any{convert.SharedAnnotation: text, convert.ResizedAnnotation: "true"})
}

// RemoveShare takes the mark of sharing off a pod that has its peak again. A pod that is gone is no error.
func (c *Cluster) RemoveShare(ctx context.Context, pod *corev1.Pod) error {
	err := c.annotated(client.Cleanup(ctx), pod, map[string]any{convert.SharedAnnotation: nil})
	if Gone(err) {
		return nil
	}
	return err
}

// mayRestart asks whether a container of the pod may be restarted now. That is a
// disruption: what forbids an eviction forbids it, too. But a dry run takes nothing from
// a PodDisruptionBudget, so others must wait until the pod is seen not ready.
func (c *Cluster) mayRestart(ctx context.Context, change Change) (leave func(), err error) {
	leave = func() {}
	if err := c.fresh(); err != nil {
		return nil, err
	}
	if err := c.oversizedBudget(change.Target); err != nil {
		return nil, err
	}
	if c.Budgets != nil {
		if leave, err = c.Budgets.Reserve(change.Target, true, Now(c.Clock)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRestarting, err)
		}
	}
	if c.Checker != nil && len(change.Unboosted) == 0 { // a boost ends whatever the others do
		err = c.Checker.CheckRestart(ctx, change)
	}
	if err == nil {
		err = c.evict(ctx, change, metav1.DryRunAll)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// refused reports whether a request was certainly not carried out. One that ran out of time may have been.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, client.ErrThrottled) || errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

func (c *Cluster) mark(ctx context.Context, change Change) error {
	restart := change.Restart
	ready, _ := convert.Ready(change.Target)
	if change.Restarts && !change.OOMResize && restart.At.IsZero() && ready { // the end of a boost
		restart = disruption.Restart{At: Now(c.Clock), Count: convert.Restarts(change.Target)}
	}
	mark, err := MarkPatch(change.Target, restart, change.Unboosted...)
	if err != nil {
		return err
	}
	return c.annotate(ctx, change.Target, mark)
}

// RecordBackoff writes on a pod that changes of its workload had no effect, so that it is known after a restart.
func (c *Cluster) RecordBackoff(ctx context.Context, pod *corev1.Pod, p disruption.Backoff) error {
	return c.annotated(ctx, pod, map[string]any{convert.PauseAnnotation: convert.PauseText(p)})
}

// annotate finishes what was begun, even if the pass has no time left.
func (c *Cluster) annotate(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	ctx, cancel := fairwork.Limit(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	_, err := c.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Evict asks the API server to evict the pod, which respects PodDisruptionBudgets.
func (c *Cluster) Evict(ctx context.Context, change Change) error {
	if err := c.mayEvict(ctx, change); errors.Is(err, ErrRateLimited) {
		return err
	} else if err != nil {
		return fmt.Errorf("evict pod %s: %w", klog.KObj(change.Target), err)
	}
	if err := c.evict(ctx, change); errors.Is(err, ErrRateLimited) {
		return err
	} else if err != nil {
		return fmt.Errorf("evict pod %s: %w", klog.KObj(change.Target), uncertain(err))
	}
	if c.Checker != nil {
		c.Checker.Evicted(change.Target)
	}
	klog.FromContext(ctx).V(2).Info("Pod evicted", "pod", klog.KObj(change.Target), "vpa", change.VPA, "cause", change.Cause, "sizes", Sizes(change))
	change = replacementOf(change)
	details := detailsOf(change.Target, Sizes(change))
	c.Event(change.Target, report.EventEvicted, fmt.Sprintf("Evicted so that it comes back as VPA %s recommends (%s): %s", change.VPA, change.Cause, direction(change)), details)
	c.Event(change.Autoscaler.Object, report.EventEvictedPod, fmt.Sprintf("Evicted a pod (%s): %s", change.Cause, direction(change)), details)
	return nil
}

// mayEvict makes the checks right before an eviction, those without a request first.
func (c *Cluster) mayEvict(ctx context.Context, change Change) error {
	if err := c.fresh(); err != nil {
		return err
	}
	if c.Checker != nil {
		if err := c.Checker.Paused(change); err != nil {
			return err
		}
	}
	if err := c.oversizedBudget(change.Target); err != nil {
		return err
	}
	if fairwork.Exclude(ctx, c.Evictions.Wait) != nil {
		return ErrRateLimited
	}
	if ready, _ := convert.Ready(change.Target); c.Budgets != nil && ready {
		if _, err := c.Budgets.Reserve(change.Target, false, Now(c.Clock)); err != nil {
			return fmt.Errorf("%w: %w", ErrRestarting, err)
		}
	}
	if c.Checker == nil {
		return nil
	}
	// A PodDisruptionBudget that allows no eviction spares the API server the checks.
	if err := c.evict(ctx, change, metav1.DryRunAll); apierrors.IsTooManyRequests(err) || errors.Is(err, ErrRateLimited) || errors.Is(err, ErrTurnEnded) || Gone(err) {
		return err
	}
	err := c.Checker.Check(ctx, change)
	if held := (*Held)(nil); errors.As(err, &held) && held.replacement() {
		c.Events.Eventf(change.Autoscaler.Object, corev1.EventTypeWarning, held.Reason.String(), "Pods are not evicted: %s: %s", held.Reason.Explain().Means, sameForAll(held.Cause, change.Pod))
	}
	return err
}

// oversizedBudget returns an error if a budget of the namespace has a selector that is not evaluated. It may select the
// pod and allow no disruption.
func (c *Cluster) oversizedBudget(pod *corev1.Pod) error {
	if c.Budgets == nil {
		return nil
	}
	if err := c.Budgets.Oversized(pod, Now(c.Clock)); err != nil {
		return &Held{Reason: reason.BudgetTooLarge, Cause: err}
	}
	return nil
}

// fresh returns an error while the caches are too old for a disruption.
func (c *Cluster) fresh() error {
	if c.Caches == nil {
		return nil
	}
	if err := c.Caches.Stale(); err != nil {
		return &Held{Reason: reason.StaleCache, Cause: err}
	}
	return nil
}

func (c *Cluster) evict(ctx context.Context, change Change, dryRun ...string) error {
	shortened := fairwork.Shortens(ctx, writeTimeout)
	limited, cancel := fairwork.Limit(client.Once(ctx), writeTimeout)
	defer cancel()
	err := c.Kube.CoreV1().Pods(change.Namespace).EvictV1(limited, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: change.Namespace, Name: change.Pod},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &change.Target.UID}, DryRun: dryRun},
	})
	switch {
	case errors.Is(err, client.ErrThrottled):
		return ErrRateLimited
	case err != nil && len(dryRun) > 0 && shortened && limited.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", ErrTurnEnded, err)
	case err != nil && len(dryRun) > 0 && !errors.Is(err, ErrRateLimited) && !Gone(err):
		return fmt.Errorf("%w: %w", ErrProtected, err)
	}
	return err
}
