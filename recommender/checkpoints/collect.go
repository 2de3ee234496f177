package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Disposition is what becomes of a checkpoint.
type Disposition int

// The dispositions.
const (
	Keep Disposition = iota
	Orphan
	Expired // its VPA lives, but the container has been gone for too long, or was that of another target
)

// Collect deletes the checkpoints for which disposition is not Keep. One that cannot be
// deleted does not stop the others; when the time of a Save has passed, those that are
// left stay for the next time. It returns how many were deleted.
func (s *Saver) Collect(ctx context.Context, disposition func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition) (int, error) {
	stored, err := s.Lister.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list checkpoints: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	deleted := 0
	kept := make(map[name]bool, len(stored))
	var problems []error
	late := 0
	for _, c := range stored {
		key := name{c.Namespace, c.Name}
		if disposition(c) == Keep {
			kept[key] = true
			continue
		}
		if ctx.Err() != nil {
			kept[key] = true
			late++
			continue
		}
		err := s.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(c.Namespace).Delete(ctx, c.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			problems = append(problems, fmt.Errorf("delete checkpoint %s/%s: %w", c.Namespace, c.Name, err))
			kept[key] = true
			continue
		}
		deleted++
	}
	s.forget(kept)
	if late > 0 {
		problems = append(problems, fmt.Errorf("no time left for %d checkpoints: %w", late, ctx.Err()))
	}
	return deleted, errors.Join(problems...)
}

// forget drops what is known of checkpoints that are gone, also of those that
// went with their namespace.
func (s *Saver) forget(kept map[name]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.written, func(key name, _ writtenSum) bool { return !kept[key] })
	maps.DeleteFunc(s.known, func(key name, _ bool) bool { return !kept[key] })
}

// Stale reports whether the last sample of a checkpoint, or its last write where
// it has no sample, is older than age.
func Stale(c *vpav1.VerticalPodAutoscalerCheckpoint, age time.Duration, now time.Time) bool {
	last := c.Status.LastSampleStart.Time
	if last.IsZero() {
		last = c.Status.LastUpdateTime.Time
	}
	return !last.IsZero() && now.Sub(last) >= age
}
