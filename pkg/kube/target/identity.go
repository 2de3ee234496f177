package target

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
)

// ErrNoWorkload says that there is no workload that a policy can select: it does not exist, its
// kind has no scale subresource, or another controller owns it.
var ErrNoWorkload = errors.New("nothing that a policy can select")

// Read returns a workload of a kind that is not listed, from its scale subresource, which it asks
// for if nobody did before. It is ErrNoWorkload if there is none; any other error says that
// it is not known.
func (r *Resolver) Read(ctx context.Context, key Key) (Workload, error) {
	if err := key.check(); err != nil {
		return Workload{}, fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	a, err := r.scales.get(ctx, key)
	w, err := workloadOf(key, a, err)
	if err != nil {
		return w, err
	}
	switch top, found, err := r.Topmost(ctx, key); {
	case err != nil:
		return Workload{}, fmt.Errorf("find out whether another controller owns %s in namespace %s: %w", key, key.Namespace, err)
	case found && top != key:
		return Workload{}, fmt.Errorf("%s in namespace %s is %w: %s owns it, which a policy can name", key, key.Namespace, ErrNoWorkload, top)
	}
	return w, nil
}

// ReadScale is Read for callers without caches; it does not look who owns the workload. It returns
// the selector of its pods, too.
func ReadScale(ctx context.Context, read Scale, key Key) (w Workload, selector string, err error) {
	if err := key.check(); err != nil {
		return Workload{}, "", fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	scale, err := read(ctx, key.Namespace, key.GroupKind(), key.Name)
	var a answer
	if err == nil {
		a = answerOf(scale)
	}
	w, err = workloadOf(key, a, err)
	return w, a.selector, err
}

// Known is Read from what is known, and ErrNotRead if nothing is: then Run reads it, as far as its
// namespace has some left.
func (r *Resolver) Known(key Key) (Workload, error) {
	if err := key.check(); err != nil {
		return Workload{}, fmt.Errorf("%w: %w", ErrNoWorkload, err)
	}
	a, err := r.scales.cached(key)
	if errors.Is(err, ErrNotRead) {
		return Workload{}, ErrNotRead
	}
	return workloadOf(key, a, err)
}

// Confirm returns an error if a workload is not there any more, or if another has its name: what
// names it as its owner would be removed at once. Of those that are listed an informer says so;
// that of others is read again.
func (r *Resolver) Confirm(ctx context.Context, w Workload) error {
	if fleet.Listed(w.Key.Group, w.Key.Kind) {
		return nil
	}
	a, err := r.scales.again(ctx, w.Key)
	now, err := workloadOf(w.Key, a, err)
	switch {
	case err != nil:
		return err
	case now.UID != w.UID:
		return fmt.Errorf("%s in namespace %s was replaced by another of that name", w.Key, w.Key.Namespace)
	}
	return nil
}

// workloadOf returns a workload from what was said, or not, about its scale subresource.
func workloadOf(key Key, a answer, err error) (Workload, error) {
	switch {
	case apierrors.IsNotFound(err):
		return Workload{}, fmt.Errorf("%s does not exist in namespace %s: %w", key, key.Namespace, ErrNoWorkload)
	case errors.Is(err, client.ErrNoScale), meta.IsNoMatchError(err):
		return Workload{}, fmt.Errorf("%s in namespace %s is %w: %w", key, key.Namespace, ErrNoWorkload, err)
	case err != nil:
		return Workload{}, fmt.Errorf("read the scale subresource of %s in namespace %s: %w", key, key.Namespace, err)
	case a.uid == "" || a.apiVersion == "":
		return Workload{}, fmt.Errorf("the scale subresource of %s in namespace %s says no metadata.uid, so that it could own no VPA", key, key.Namespace)
	}
	return Workload{Key: key, APIVersion: a.apiVersion, UID: a.uid}, nil
}
