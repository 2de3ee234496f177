package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/snapshot"
)

// ErrRateLimited is the error of a change that rate limits delay beyond the iteration.
var ErrRateLimited = errors.New("the rate limit allows no change before the iteration ends")

// ErrTurnEnded is the error of an eviction not tried, because its namespace turn ended.
var ErrTurnEnded = errors.New("the turn of the namespace ended before the checks of an eviction")

// ErrDryRun is the error of a change that was only printed.
var ErrDryRun = errors.New("a dry run changes nothing")

// ErrInUse is the error of a resize to a memory limit below the usage plus usageMargin.
var ErrInUse = errors.New("the pod uses too much memory for its new limit")

// ErrProtected is the error of a resize with restart of a pod that must not be evicted.
var ErrProtected = errors.New("the pod may not be disrupted now")

// ErrRestarting is the error while another pod of the owner or PodDisruptionBudget restarts.
var ErrRestarting = errors.New("another pod is being restarted")

// Refused reports whether this pod can never get a resize that a new pod may get: the resize is
// invalid for a running pod, its node is too small or of the wrong kind, or the API server does not
// resize pods. Other errors may be temporary or would also affect a new pod: an admission policy or
// webhook, a quota, a LimitRange, a missing permission, or a conflict with a newer change.
func Refused(err error) bool {
	return invalidResize(err) || NoCapacity(err) ||
		apierrors.HasStatusCause(err, unsupportedPlatform) ||
		apierrors.IsNotFound(err) && !deniedByAdmission(err) || apierrors.IsMethodNotSupported(err)
}

// ErrUncertain is the error of a failed change that the API server may have made all the same.
var ErrUncertain = errors.New("the API server may have made the change")

func markUncertain(err error) error {
	if err == nil || isNotApplied(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// Rejected reports whether the content of a resize was refused, so another may be accepted.
func Rejected(err error) bool {
	return Refused(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// invalidResize excludes admission policies and failed patch tests, which have the same code.
func invalidResize(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || deniedByAdmission(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "Pod"
}

// Causes for a resize that the node can never grant, or a node that cannot resize at all.
const (
	nodeCapacity        metav1.CauseType = "NodeCapacity"
	unsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// NoCapacity reports whether a resize was refused because the node can never grant it.
func NoCapacity(err error) bool {
	return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, nodeCapacity)
}

// IsGone reports whether the pod of a change does not exist any more.
func IsGone(err error) bool { return apierrors.IsNotFound(err) }

// readLive reads a pod with only the permission to list pods. The error is snapshot.ErrStale if it
// is gone, or has other resources than the cached pod. In the second case it is also returned.
func (c *Cluster) readLive(ctx context.Context, cached *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := fairwork.Limit(client.WithoutRetries(ctx), writeTimeout)
	defer cancel()
	all, err := c.Kube.CoreV1().Pods(cached.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + cached.Name})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all.Items, func(p corev1.Pod) bool { return p.Name == cached.Name && p.UID == cached.UID })
	if at < 0 {
		return nil, snapshot.ErrStale
	}
	current := &all.Items[at]
	same := func(a, b policy.Container) bool {
		return a.Name == b.Name && a.Requests == b.Requests && a.Limits == b.Limits
	}
	if !slices.EqualFunc(convert.NewPod(current).Containers, convert.NewPod(cached).Containers, same) {
		return current, snapshot.ErrStale
	}
	return current, nil
}

// resolveResult returns the final error of a resize. If the result is unknown, it reads the pod:
// nil if applied returns true, snapshot.ErrStale after other changes. A failed patch test has the
// same error as an invalid pod.
func (c *Cluster) resolveResult(ctx context.Context, cached *corev1.Pod, err error, applied func(pod *corev1.Pod) bool) error {
	unknown := !isNotApplied(err)
	if err == nil || ctx.Err() != nil || !unknown && !apierrors.IsInvalid(err) {
		return err
	}
	pod, read := c.readLive(ctx, cached)
	if !errors.Is(read, snapshot.ErrStale) {
		return err
	}
	if unknown && pod != nil && applied(pod) {
		return nil
	}
	return fmt.Errorf("%w: %w", snapshot.ErrStale, err)
}
