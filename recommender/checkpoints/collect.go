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
	"loadline.dev/loadline/pkg/fairwork"
)

// Disposition is what becomes of a checkpoint.
type Disposition int

// The dispositions.
const (
	Keep Disposition = iota
	Orphan
	Expired // its VPA lives, but the container has been gone for too long, or was that of another target
)

// errLate is the error of deletions that are left for the next iteration.
var errLate = errors.New("time limit reached")

// collectTime is how long an iteration may delete checkpoints.
const collectTime = 8 * time.Second

// Collect deletes the checkpoints for which disposition is not Keep, in turns of namespaces. One
// that cannot be deleted does not stop the others. What is left after collectTime or the time of a
// Save stays for the next time. It returns how many were deleted.
func (s *Saver) Collect(ctx context.Context, disposition func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition) (int, error) {
	stored, err := s.Lister.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list checkpoints: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.Timeout, collectTime))
	defer cancel()
	kept := make(map[name]bool, len(stored))
	var obsolete []*vpav1.VerticalPodAutoscalerCheckpoint
	for _, c := range stored {
		kept[name{c.Namespace, c.Name}] = true
		if disposition(c) != Keep {
			obsolete = append(obsolete, c)
		}
	}
	deleted := 0
	var problems []error
	left := fairwork.Run(obsolete, 1, (*vpav1.VerticalPodAutoscalerCheckpoint).GetNamespace,
		func(*vpav1.VerticalPodAutoscalerCheckpoint) bool { return ctx.Err() == nil },
		func(_ int, c *vpav1.VerticalPodAutoscalerCheckpoint) {
			err := s.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(c.Namespace).Delete(ctx, c.Name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				problems = append(problems, fmt.Errorf("delete checkpoint %s/%s: %w", c.Namespace, c.Name, err))
				return
			}
			delete(kept, name{c.Namespace, c.Name})
			deleted++
		})
	s.forget(kept)
	if len(left) > 0 {
		problems = append(problems, fmt.Errorf("leave %d checkpoints for the next iteration: %w", len(left), errLate))
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
	s.stored.keep(kept)
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
