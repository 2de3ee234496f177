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

// live reads a pod from the API server, with the permission to list pods. The error is snapshot.ErrStale if the pod is gone,
// or if its spec has other sizes than in the cache; then the pod is returned as well.
func (c *Cluster) live(ctx context.Context, cached *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := fairwork.Limit(client.Once(ctx), writeTimeout)
	defer cancel()
	all, err := c.Kube.CoreV1().Pods(cached.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + cached.Name})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all.Items, func(p corev1.Pod) bool { return p.Name == cached.Name && p.UID == cached.UID })
	if at < 0 {
		return nil, snapshot.ErrStale
	}
	is := &all.Items[at]
	same := func(a, b policy.Container) bool {
		return a.Name == b.Name && a.Requests == b.Requests && a.Limits == b.Limits
	}
	if !slices.EqualFunc(convert.NewPod(is).Containers, convert.NewPod(cached).Containers, same) {
		return is, snapshot.ErrStale
	}
	return is, nil
}

// settle returns the final error of a resize. Where err does not say what happened, it reads the pod again: the error is nil if
// made reports that the pod has the new sizes, because only the answer was lost, and snapshot.ErrStale if the pod has changed
// otherwise. The answer to a failed test of a patch looks like the one to an invalid pod.
func (c *Cluster) settle(ctx context.Context, cached *corev1.Pod, err error, made func(pod *corev1.Pod) bool) error {
	uncertain := !refused(err)
	if err == nil || ctx.Err() != nil || !uncertain && !apierrors.IsInvalid(err) {
		return err
	}
	pod, read := c.live(ctx, cached)
	if !errors.Is(read, snapshot.ErrStale) {
		return err
	}
	if uncertain && pod != nil && made(pod) {
		return nil
	}
	return fmt.Errorf("%w: %w", snapshot.ErrStale, err)
}
