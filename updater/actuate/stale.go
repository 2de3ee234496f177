package actuate

import (
	"context"
	"errors"
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

// live reads a pod from the API server, with the permission to list pods. It is snapshot.ErrStale if the pod is gone,
// or the sizes in its spec are others than in the cache.
func (c *Cluster) live(ctx context.Context, cached *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := fairwork.Limit(client.Once(ctx), writeTimeout)
	defer cancel()
	all, err := c.Kube.CoreV1().Pods(cached.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + cached.Name})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all.Items, func(p corev1.Pod) bool { return p.Name == cached.Name })
	if at < 0 {
		return nil, snapshot.ErrStale
	}
	is := &all.Items[at]
	same := func(a, b policy.Container) bool {
		return a.Name == b.Name && a.Requests == b.Requests && a.Limits == b.Limits
	}
	if is.UID != cached.UID || !slices.EqualFunc(convert.NewPod(is).Containers, convert.NewPod(cached).Containers, same) {
		return nil, snapshot.ErrStale
	}
	return is, nil
}

// outdated reports whether a resize failed because the pod is no longer as in the cache. The answer to a
// failed test of a patch looks like the one to an invalid pod, so the pod is read again.
func (c *Cluster) outdated(ctx context.Context, cached *corev1.Pod, err error) bool {
	var answer apierrors.APIStatus
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, client.ErrThrottled), errors.As(err, &answer) && !apierrors.IsInvalid(err):
		return false
	}
	_, read := c.live(ctx, cached)
	return errors.Is(read, snapshot.ErrStale)
}
