// Package actuate carries out the plan of disruption.Plan: it resizes and evicts pods.
//
// Cluster writes to the API server and emits events. DryRun prints. The caller decides whether a
// refused resize becomes an eviction. Every write names the UID of its pod, so that it never hits a
// new pod of the same name.
//
// Checks that need the current state of the cluster run right before a change:
//
//   - Checker reads the owner and its pods from the API server before an eviction or a restart.
//     Before an eviction it also creates the replacement in a dry run.
//   - budgets.Budgets restarts the pods of one PodDisruptionBudget one after the other.
//   - keepUsedMemory cuts no memory limit below the usage.
//   - testAmounts lets a resize replace only the resources that it was planned for.
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
	Object     *corev1.Pod  // the pod to change
	Autoscaler snapshot.VPA // the VPA as of the plan
	// RemovedBoosts are the containers that lose their startup boost.
	RemovedBoosts []string
	// Observed changes are noted on the pod first, so that they can be judged and reverted.
	Observed bool
	// Mark marks the pod as sharing before the resize. Nil: it does not share, or is marked.
	Mark *sharing.Mark
}

// IsUrgent reports whether the change prevents harm, so that it may use the reserve of the write
// limit: more memory after an OOM kill, or the peak of a pod that stops sharing.
func (c Change) IsUrgent() bool {
	return c.OOMResize || c.Cause == disruption.ShareEnded || c.Cause == disruption.ShareReverted
}

// targets returns the resources to write: of the action, with the shared kinds of its share. They
// are apart in Change because rollouts do not judge shares.
func (c Change) targets() []policy.ContainerTarget {
	if c.Share == nil {
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

// Cluster makes changes through the API server.
type Cluster struct {
	Kube      kubernetes.Interface
	Events    record.EventRecorder
	Resizes   *rate.Limiter
	Evictions *rate.Limiter
	// Budgets limits concurrent restarts and evictions per PodDisruptionBudget. Nil: not checked.
	Budgets *budgets.Budgets
	// Threshold is the minimum relative change of a resize that memory usage reduces to a part.
	Threshold float64
	// Reverts counts reverted changes. It may be nil.
	Reverts interface {
		Reverted(vpa cache.ObjectName, harm rollout.Harm)
	}
	// Clock provides the time of a change. Nil: time.Now.
	Clock Clock
	// Checker makes the last checks before a disruption. Nil: none are made.
	Checker *Checker
	// Caches returns an error while the caches are too old for a disruption. It may be nil.
	Caches interface{ Stale() error }
	// Usage reads the memory usage of containers, in bytes. It may be nil.
	Usage interface {
		Memory(ctx context.Context, namespace, pod string) (map[string]resources.Amount, error)
	}
}

// NewLimiter returns a limiter of changes per second. A rate of 0 or below means no limit.
func NewLimiter(perSecond float64, burst int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), burst)
}

const (
	// writeTimeout bounds a resize, an eviction or a read. It is shorter in a namespace turn.
	writeTimeout = 30 * time.Second
	markTimeout  = 10 * time.Second
)

// Resize patches the resources and marks the pod.
func (c *Cluster) Resize(ctx context.Context, change Change) (rollout.Change, error) {
	_, had := change.Object.Annotations[convert.SharedAnnotation]
	change, note, err := c.patchResources(ctx, change)
	if err != nil {
		return note, err
	}
	if change.Cause != disruption.Shared || !had { // shares move too often for an event each time
		c.Event(change.Object, report.EventResized, fmt.Sprintf("Resized in place to the recommendation of VPA %s (%s): %s", change.VPA, change.Cause, directions(change)), detailsOf(change.Object, DescribeChange(change)))
	}
	if change.Cause.Shares() { // marked already
		return note, nil
	}
	if err := c.mark(client.Unlimited(ctx), change); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to annotate a resized pod", "pod", klog.KObj(change.Object))
	}
	return note, nil
}

// RemoveBoost restores differing resources, then removes annotations. The caller retries both.
func (c *Cluster) RemoveBoost(ctx context.Context, change Change) error {
	marking := client.Cleanup(ctx)
	if DescribeChange(change) != "" {
		marking = ctx
		var err error
		if change, _, err = c.patchResources(ctx, change); err != nil {
			return err
		}
		c.Event(change.Object, report.EventResized, "Startup boost removed: "+directions(change), detailsOf(change.Object, DescribeChange(change)))
	}
	if err := c.mark(marking, change); err != nil {
		return fmt.Errorf("remove the boost annotations of pod %s: %w", klog.KObj(change.Object), err)
	}
	return nil
}

// AddBoost adds the startup boost that the webhook missed to a young pod. It changes nothing if a
// dry run returns no boost. The annotations go first, because they end the boost.
func (c *Cluster) AddBoost(ctx context.Context, change Change) error {
	if c.Checker == nil {
		return nil
	}
	sized, err := c.Checker.AdmittedPod(ctx, change)
	if err != nil {
		return fmt.Errorf("find the startup boost of pod %s in a dry run: %w", klog.KObj(change.Object), err)
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
	if err := c.setAnnotations(ctx, change.Object, annotations); err != nil {
		return fmt.Errorf("annotate pod %s with the startup boost: %w", klog.KObj(change.Object), err)
	}
	if change, _, err = c.patchResources(client.Unlimited(ctx), change); err != nil {
		return err
	}
	c.Event(change.Object, report.EventResized, "Startup boost added: "+directions(change), detailsOf(change.Object, DescribeChange(change)))
	return nil
}

// patchResources returns the change it sent, which cuts less if memory is in use.
func (c *Cluster) patchResources(ctx context.Context, change Change) (_ Change, note rollout.Change, err error) {
	failed := func(err error) (Change, rollout.Change, error) {
		if errors.Is(err, ErrRateLimited) {
			return change, note, ErrRateLimited
		}
		return change, note, fmt.Errorf("resize pod %s: %w", klog.KObj(change.Object), err)
	}
	if change, err = c.keepUsedMemory(ctx, change); err != nil {
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
	release := func() {}
	// Not for an OOM resize: the pod is killed repeatedly anyway, and a PodDisruptionBudget may
	// allow no eviction just because of that.
	if change.Restarts && !change.OOMResize {
		if release, err = c.reserveRestart(ctx, change); err != nil {
			return failed(fmt.Errorf("restart a container: %w", err))
		}
	}
	if err := errors.Join(c.noteDeclaredMemory(ctx, change), c.markShared(ctx, change)); err != nil {
		release()
		return failed(err)
	}
	if change.Observed {
		if note, err = c.noteChange(ctx, change); err != nil {
			release()
			return failed(fmt.Errorf("note the change on the pod: %w", err))
		}
		ctx = client.Unlimited(ctx) // the rest of a started change
	}
	limited, cancel := fairwork.Limit(client.WithoutRetries(ctx), writeTimeout)
	defer cancel()
	_, err = c.Kube.CoreV1().Pods(change.Object.Namespace).Patch(limited, change.Object.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "resize")
	if isNotApplied(err) {
		release()
		if change.Observed {
			c.restoreNote(ctx, change)
		}
	}
	switch err = c.resolveResult(ctx, change.Object, err, change.appliedTo); {
	case errors.Is(err, client.ErrThrottled):
		return failed(ErrRateLimited)
	case err != nil:
		return failed(markUncertain(err))
	}
	klog.FromContext(ctx).V(2).Info("Pod resized", "pod", klog.KObj(change.Object), "vpa", change.VPA, "cause", change.Cause, "sizes", DescribeChange(change))
	return change, note, nil
}

// noteDeclaredMemory notes the declared memory of a pod before limit and request first change
// separately. Afterwards it cannot be reconstructed.
func (c *Cluster) noteDeclaredMemory(ctx context.Context, change Change) error {
	text, changed := convert.MergeDeclared(change.Object.Annotations, change.targets())
	if !changed {
		return nil
	}
	if err := c.setAnnotations(ctx, change.Object, map[string]any{convert.DeclaredAnnotation: text}); err != nil {
		return fmt.Errorf("note the declared memory on the pod: %w", err)
	}
	return nil
}

// markShared runs before the resize, so that a restarted updater finds pods that need their peak.
func (c *Cluster) markShared(ctx context.Context, change Change) error {
	if change.Mark == nil {
		return nil
	}
	if err := c.MarkShare(ctx, change.Object, *change.Mark); err != nil {
		return fmt.Errorf("mark the pod as sharing: %w", err)
	}
	return nil
}

// MarkShare writes the mark of a sharing pod if it differs.
func (c *Cluster) MarkShare(ctx context.Context, pod *corev1.Pod, m sharing.Mark) error {
	text := convert.FormatShared(m)
	if pod.Annotations[convert.SharedAnnotation] == text && pod.Annotations[convert.ResizedAnnotation] != "" {
		return nil
	}
	return c.setAnnotations(ctx, pod, map[string]any{convert.SharedAnnotation: text, convert.ResizedAnnotation: "true"})
}

// RemoveShare removes the sharing mark of a pod that has its peak again. It ignores a deleted pod.
func (c *Cluster) RemoveShare(ctx context.Context, pod *corev1.Pod) error {
	err := c.setAnnotations(client.Cleanup(ctx), pod, map[string]any{convert.SharedAnnotation: nil})
	if IsGone(err) {
		return nil
	}
	return err
}

// reserveRestart returns an error if a container must not restart now: everything that forbids an
// eviction forbids it. A dry run takes nothing from a PodDisruptionBudget, so a reservation blocks
// other restarts until the pod is seen not ready. release cancels it.
func (c *Cluster) reserveRestart(ctx context.Context, change Change) (release func(), err error) {
	release = func() {}
	if err := c.checkCacheAge(); err != nil {
		return nil, err
	}
	if err := c.checkOversizedBudgets(change.Object); err != nil {
		return nil, err
	}
	if c.Budgets != nil {
		if release, err = c.Budgets.Reserve(change.Object, true, Now(c.Clock)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRestarting, err)
		}
	}
	if c.Checker != nil && len(change.RemovedBoosts) == 0 { // a boost ends regardless of other pods
		err = c.Checker.CheckRestart(ctx, change)
	}
	if err == nil {
		err = c.evict(ctx, change, metav1.DryRunAll)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// isNotApplied reports whether a request certainly had no effect, unlike a timed out one.
func isNotApplied(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, client.ErrThrottled) || errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsInternalError(err)
}

func (c *Cluster) mark(ctx context.Context, change Change) error {
	restart := change.Restart
	ready, _ := convert.Ready(change.Object)
	if change.Restarts && !change.OOMResize && restart.At.IsZero() && ready { // the end of a boost
		restart = disruption.Restart{At: Now(c.Clock), Count: convert.RestartCount(change.Object)}
	}
	mark, err := MarkPatch(change.Object, restart, change.RemovedBoosts...)
	if err != nil {
		return err
	}
	return c.patchAnnotations(ctx, change.Object, mark)
}

// RecordBackoff writes the backoff of a workload on a pod, where it survives a restart.
func (c *Cluster) RecordBackoff(ctx context.Context, pod *corev1.Pod, p disruption.Backoff) error {
	return c.setAnnotations(ctx, pod, map[string]any{convert.BackoffAnnotation: convert.FormatBackoff(p)})
}

// patchAnnotations ignores the end of ctx, because it completes a change.
func (c *Cluster) patchAnnotations(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	ctx, cancel := fairwork.Limit(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	_, err := c.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Evict evicts a pod through the eviction API, which respects PodDisruptionBudgets.
func (c *Cluster) Evict(ctx context.Context, change Change) error {
	if err := c.checkEviction(ctx, change); errors.Is(err, ErrRateLimited) {
		return err
	} else if err != nil {
		return fmt.Errorf("evict pod %s: %w", klog.KObj(change.Object), err)
	}
	if err := c.evict(ctx, change); errors.Is(err, ErrRateLimited) {
		return err
	} else if err != nil {
		return fmt.Errorf("evict pod %s: %w", klog.KObj(change.Object), markUncertain(err))
	}
	if c.Checker != nil {
		c.Checker.Evicted(change.Object)
	}
	klog.FromContext(ctx).V(2).Info("Pod evicted", "pod", klog.KObj(change.Object), "vpa", change.VPA, "cause", change.Cause, "sizes", DescribeChange(change))
	change = withReplacementTarget(change)
	details := detailsOf(change.Object, DescribeChange(change))
	c.Event(change.Object, report.EventEvicted, fmt.Sprintf("Evicted to apply the recommendation of VPA %s (%s): %s", change.VPA, change.Cause, directions(change)), details)
	c.Event(change.Autoscaler.Object, report.EventEvictedPod, fmt.Sprintf("Evicted a pod (%s): %s", change.Cause, directions(change)), details)
	return nil
}

func (c *Cluster) checkEviction(ctx context.Context, change Change) error {
	if err := c.checkCacheAge(); err != nil {
		return err
	}
	if c.Checker != nil {
		if err := c.Checker.Paused(change); err != nil {
			return err
		}
	}
	if err := c.checkOversizedBudgets(change.Object); err != nil {
		return err
	}
	if fairwork.Exclude(ctx, c.Evictions.Wait) != nil {
		return ErrRateLimited
	}
	if ready, _ := convert.Ready(change.Object); c.Budgets != nil && ready {
		if _, err := c.Budgets.Reserve(change.Object, false, Now(c.Clock)); err != nil {
			return fmt.Errorf("%w: %w", ErrRestarting, err)
		}
	}
	if c.Checker == nil {
		return nil
	}
	// A PodDisruptionBudget that allows no eviction avoids the more expensive checks.
	if err := c.evict(ctx, change, metav1.DryRunAll); apierrors.IsTooManyRequests(err) || errors.Is(err, ErrRateLimited) || errors.Is(err, ErrTurnEnded) || IsGone(err) {
		return err
	}
	err := c.Checker.Check(ctx, change)
	if held := (*BlockedError)(nil); errors.As(err, &held) && held.concernsReplacement() {
		c.Events.Eventf(change.Autoscaler.Object, corev1.EventTypeWarning, held.Reason.String(), "Pods are not evicted: %s: %s", held.Reason.Explain().Meaning, withoutPodName(held.Cause, change.Pod))
	}
	return err
}

// checkOversizedBudgets fails for a selector too large to evaluate, which may forbid disruption.
func (c *Cluster) checkOversizedBudgets(pod *corev1.Pod) error {
	if c.Budgets == nil {
		return nil
	}
	if err := c.Budgets.Oversized(pod, Now(c.Clock)); err != nil {
		return &BlockedError{Reason: reason.BudgetTooLarge, Cause: err}
	}
	return nil
}

func (c *Cluster) checkCacheAge() error {
	if c.Caches == nil {
		return nil
	}
	if err := c.Caches.Stale(); err != nil {
		return &BlockedError{Reason: reason.StaleCache, Cause: err}
	}
	return nil
}

func (c *Cluster) evict(ctx context.Context, change Change, dryRun ...string) error {
	shortened := fairwork.Shortens(ctx, writeTimeout)
	limited, cancel := fairwork.Limit(client.WithoutRetries(ctx), writeTimeout)
	defer cancel()
	err := c.Kube.CoreV1().Pods(change.Namespace).EvictV1(limited, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: change.Namespace, Name: change.Pod},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &change.Object.UID}, DryRun: dryRun},
	})
	switch {
	case errors.Is(err, client.ErrThrottled):
		return ErrRateLimited
	case err != nil && len(dryRun) > 0 && shortened && limited.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", ErrTurnEnded, err)
	case err != nil && len(dryRun) > 0 && !errors.Is(err, ErrRateLimited) && !IsGone(err):
		return fmt.Errorf("%w: %w", ErrProtected, err)
	}
	return err
}
