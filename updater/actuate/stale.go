package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
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

// noteAttempts is how often a note is written when the pod changes at the same moment.
const noteAttempts = 3

// noteChange writes the note of a change on its pod before the change is made. It replaces the note that
// the change was planned with, and no newer one.
func (c *Cluster) noteChange(ctx context.Context, change Change) (note rollout.Change, err error) {
	cached := change.Target
	other := func(key string) bool { return change.Target.Annotations[key] != cached.Annotations[key] }
	for range noteAttempts {
		if change.Target, err = c.live(ctx, cached); err != nil {
			return rollout.Change{}, err
		}
		if slices.ContainsFunc(convert.NoteAnnotations, other) {
			return rollout.Change{}, snapshot.ErrStale
		}
		note = NoteOf(change, c.now())
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // texts never fail
			"uid": change.Target.UID, "resourceVersion": change.Target.ResourceVersion, "annotations": convert.ChangeNotes(note),
		}})
		if err = c.annotate(ctx, change.Target, patch); !apierrors.IsConflict(err) {
			break
		}
	}
	return note, err
}

// ErrNotRecordable is the error of a change that does not fit into the annotation from which it would be
// judged and taken back.
var ErrNotRecordable = errors.New("the change has more containers than its annotation has room for")

// recordable returns a change of as many containers as can be noted on the pod. The others follow when it
// has been judged. Memory after an out-of-memory kill does not wait for that: it is not judged then.
func recordable(c Change, now time.Time) (Change, error) {
	all := c.Containers
	for len(c.Containers) > 0 && !convert.Recordable(NoteOf(c, now)) {
		c.Containers = c.Containers[:len(c.Containers)*9/10]
	}
	switch {
	case len(c.Containers) > 0 || len(all) == 0:
		return c, nil
	case c.OOMResize:
		c.Containers, c.Observed = all, false
		return c, nil
	}
	return c, ErrNotRecordable
}
