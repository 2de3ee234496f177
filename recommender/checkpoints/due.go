package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/status"
)

// Scope says which of the VPAs that changed are saved.
type Scope int

// The scopes.
const (
	Urgent Scope = iota // those whose loss would lower a published target
	Due                 // and those whose time has come
	All                 // and all others
)

func ownerOf(v *model.VPA) checkpoint.Owner {
	return checkpoint.Owner{Namespace: v.Object.Namespace, VPA: v.Object.Name}
}

// plan fills the queue with the VPAs to be saved, in order. It allocates nothing for a VPA that did not change.
func (s *Saver) plan(vpas []*model.VPA, scope Scope, now time.Time) {
	s.queue = s.queue[:0]
	for _, v := range vpas {
		s.begin(v, now)
		if !changed(v) {
			continue
		}
		t := &v.Saved
		// One that failed waits like all others: what cannot be written, perhaps for
		// ever, must not take the time of what can.
		t.Urgent = !t.Failed && wouldFallInCrash(v)
		if t.Urgent || scope == All || scope == Due && due(v, s.Interval, now) {
			s.queue = append(s.queue, v)
		}
	}
	slices.SortFunc(s.queue, before)
}

// begin begins with a VPA that was not seen before.
func (s *Saver) begin(v *model.VPA, now time.Time) {
	if v.Saved.ID > 0 {
		return
	}
	v.Saved = model.Saved{ID: int(s.lastID.Add(1)), First: s.saves == 0, LastTried: now, HistorySince: now, Unsaved: v.Saved.Unsaved}
	if len(v.Restored) > 0 {
		v.Saved.HistorySince = time.Time{}
	}
	// What was restored is in a checkpoint, and what was published then came from it,
	// unless the status says that there was more.
	if status.Holds(v.Object, status.TargetUnsaved) || status.Holds(v.Object, status.TargetHeld) {
		return
	}
	v.Saved.Targets = make(map[string]resources.List, len(v.Restored))
	published := published(v)
	for container := range v.Restored {
		v.Saved.Targets[container] = published[container]
	}
}

// changed reports whether there is anything to save. While the target of a VPA cannot be
// used, or somebody still fills in its history, there is not: we may see less than there is.
func changed(v *model.VPA) bool {
	clean := v.Saved.Saved && !v.Saved.Failed && v.Saved.Revision == v.Revision()
	return !clean && v.TargetError == nil && !status.Holds(v.Object, vpav1.FetchingHistory)
}

// published returns the targets in the status of a VPA, before capping as far as it tells.
func published(v *model.VPA) map[string]resources.List {
	if v.Object.Status.Recommendation == nil {
		return nil
	}
	targets := map[string]resources.List{}
	for _, c := range v.Object.Status.Recommendation.ContainerRecommendations {
		target := c.UncappedTarget
		if target == nil {
			target = c.Target
		}
		targets[c.ContainerName] = convert.Resources(target)
		if convert.HasSeparateMemoryLimit(&v.Object.Status) {
			targets[c.ContainerName] = protecting(targets[c.ContainerName], convert.Resources(c.UpperBound).Value(resources.Memory))
		}
	}
	return targets
}

// protecting returns a target with what a memory limit protects, if that is more: it must not fall either.
func protecting(target resources.List, protected resources.Amount) resources.List {
	if memory, some := target.Get(resources.Memory); some {
		target = target.With(resources.Memory, max(memory, protected))
	}
	return target
}

// A target that is higher by less than these factors counts as the same. The CPU target of a container with steady
// usage goes up and down by one bucket; that of memory moves only where the margin of a recipe does.
const cpuTolerance, memoryTolerance = 1.08, 1.02

// wouldFallInCrash reports whether a published target would be lower after a crash, because the history that raised it
// is not saved yet. A held target does not rest on that history.
func wouldFallInCrash(v *model.VPA) bool {
	memory := 1.0
	if v.Sketches != nil {
		memory = memoryTolerance
	}
	for container, now := range v.Published.Uncapped {
		now = protecting(now, v.Published.Protected[container])
		saved, kept := v.Saved.Targets[container], v.Trust.HeldKinds[container]
		if !kept[resources.Memory] && now.Value(resources.Memory) > saved.Value(resources.Memory).Scale(memory) ||
			!kept[resources.CPU] && now.Value(resources.CPU) > saved.Value(resources.CPU).Scale(cpuTolerance) {
			return true
		}
	}
	return false
}

// targetsFromHistory returns the targets, before capping, that the history of a VPA leads
// to: all but those that are held.
func targetsFromHistory(v *model.VPA) map[string]resources.List {
	if len(v.Trust.HeldKinds) == 0 && len(v.Published.Protected) == 0 {
		return v.Published.Uncapped
	}
	targets := maps.Clone(v.Published.Uncapped)
	for container, target := range targets {
		target = protecting(target, v.Published.Protected[container])
		for k, kept := range v.Trust.HeldKinds[container] {
			if kept {
				target = target.Without(resources.Kind(k))
			}
		}
		targets[container] = target
	}
	return targets
}

// noteUnsaved notes on the VPA, for its condition TargetUnsaved, that the last save failed or was
// interrupted and a crash would lower a target.
func noteUnsaved(v *model.VPA) {
	v.Saved.Unsaved = (v.Saved.Failed || v.Saved.Part != nil) && wouldFallInCrash(v)
}

// youngParts: while a history is younger than so many intervals, it is saved as soon as
// one of so many parts of it is not.
const youngParts = 4

// firstWriteWithin is the time within which a VPA is first written after a start: whoever
// looks at checkpoints to see whether a recommender works does not wait for an interval.
const firstWriteWithin = 4 * time.Minute

// due reports whether it is time for a VPA that is not urgent. Each is written at an offset
// of its own within the interval, and the first time within a shorter one.
func due(v *model.VPA, interval time.Duration, now time.Time) bool {
	t := &v.Saved
	if interval <= 0 || t.Failed {
		return true
	}
	if age := now.Sub(t.HistorySince); !t.HistorySince.IsZero() && age < youngParts*interval && now.Sub(t.LastTried) >= age/youngParts {
		return true
	}
	if !t.Saved && now.Sub(t.LastTried) >= v.Offset(interval)%min(interval, firstWriteWithin) {
		return true
	}
	return v.TurnCame(interval, t.LastTried, now)
}

// before puts urgent VPAs first, then the longest waiting.
func before(a, b *model.VPA) int {
	if a.Saved.Urgent != b.Saved.Urgent {
		if a.Saved.Urgent {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.Saved.LastTried.Compare(b.Saved.LastTried),
		cmp.Compare(a.Object.Namespace, b.Object.Namespace),
		cmp.Compare(a.Object.Name, b.Object.Name),
	)
}

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

// forget drops what is known of checkpoints that are gone, also of those that went with their namespace.
func (s *Saver) forget(kept map[name]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.written, func(key name, _ writtenSum) bool { return !kept[key] })
	maps.DeleteFunc(s.known, func(key name, _ bool) bool { return !kept[key] })
	s.stored.keep(kept)
}

// Stale reports whether the last sample of a checkpoint, or its last write where it has no sample, is older than age.
func Stale(c *vpav1.VerticalPodAutoscalerCheckpoint, age time.Duration, now time.Time) bool {
	last := c.Status.LastSampleStart.Time
	if last.IsZero() {
		last = c.Status.LastUpdateTime.Time
	}
	return !last.IsZero() && now.Sub(last) >= age
}

const (
	// maxNamespaceBytes is the limit of the checkpoints of a namespace in etcd, which has 2 GiB by
	// default. It is room for about 10,000 containers.
	maxNamespaceBytes = 32 << 20
	// maxPodBytes is the limit for each running pod, if all together exceed maxNamespaceBytes.
	maxPodBytes = 16 << 10
	// maxRewriteBytes is the size up to which a stored checkpoint is rewritten in a full namespace.
	maxRewriteBytes = 16 << 10
	// assumedSize is the size of a checkpoint that this process has not written.
	assumedSize = 3 * checkpoint.MetadataSize
)

// space is the size of the checkpoints of each namespace.
type space struct {
	sizes  map[name]int
	totals map[string]int // by namespace
}

func newSpace() space { return space{map[name]int{}, map[string]int{}} }

// reserve accounts for a write and returns true, unless the checkpoint grows beyond the limit of its namespace.
func (s *space) reserve(key name, size, limit int, stored bool) bool {
	more := size - s.sizes[key]
	if more > 0 && s.totals[key.namespace]+more > limit && (!stored || size > maxRewriteBytes) {
		return false
	}
	s.sizes[key] = size
	s.totals[key.namespace] += more
	return true
}

// keep accounts for exactly the checkpoints that are stored.
func (s *space) keep(stored map[name]bool) {
	sizes := s.sizes
	*s = newSpace()
	for key := range stored {
		size, known := sizes[key]
		if !known {
			size = assumedSize
		}
		s.sizes[key] = size
		s.totals[key.namespace] += size
	}
}
