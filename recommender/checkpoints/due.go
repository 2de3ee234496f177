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

// Scope selects the changed VPAs to save. Each scope includes the previous ones.
type Scope int

// Scopes of Save.
const (
	Urgent Scope = iota // a published target would be lower after a crash
	Due                 // their slot has come
	All                 // all changed VPAs
)

func ownerOf(v *model.VPA) checkpoint.Owner {
	return checkpoint.Owner{Namespace: v.Object.Namespace, VPA: v.Object.Name}
}

// plan fills the queue in order. It does not allocate for unchanged VPAs.
func (s *Saver) plan(vpas []*model.VPA, scope Scope, now time.Time) {
	s.queue = s.queue[:0]
	for _, v := range vpas {
		s.initSaved(v, now)
		if !needsSave(v) {
			continue
		}
		t := &v.Saved
		// Failed VPAs are not urgent: permanent failures must not take the time of others.
		t.Urgent = !t.Failed && wouldFallInCrash(v)
		if t.Urgent || scope == All || scope == Due && isDue(v, s.Interval, now) {
			s.queue = append(s.queue, v)
		}
	}
	slices.SortFunc(s.queue, compareUrgency)
}

func (s *Saver) initSaved(v *model.VPA, now time.Time) {
	if v.Saved.ID > 0 {
		return
	}
	v.Saved = model.Saved{ID: int(s.lastID.Add(1)), InFirstSave: s.saves == 0, LastTried: now, HistorySince: now, Unsaved: v.Saved.Unsaved}
	if len(v.Restored) > 0 {
		v.Saved.HistorySince = time.Time{}
	}
	// Restored history was the base of the published targets, unless conditions report unsaved or
	// held targets.
	if status.Holds(v.Object, status.TargetUnsaved) || status.Holds(v.Object, status.TargetHeld) {
		return
	}
	v.Saved.Targets = make(map[string]resources.List, len(v.Restored))
	published := published(v)
	for container := range v.Restored {
		v.Saved.Targets[container] = published[container]
	}
}

// needsSave is false while the target is unusable or another controller fills in the history,
// because it may be incomplete.
func needsSave(v *model.VPA) bool {
	clean := v.Saved.Written && !v.Saved.Failed && v.Saved.Revision == v.Revision()
	return !clean && v.TargetError == nil && !status.Holds(v.Object, vpav1.FetchingHistory)
}

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
			targets[c.ContainerName] = withProtectedMemory(targets[c.ContainerName], convert.Resources(c.UpperBound).Value(resources.Memory))
		}
	}
	return targets
}

// withProtectedMemory raises a target to the memory to protect, which must not fall either.
func withProtectedMemory(target resources.List, protected resources.Amount) resources.List {
	if memory, some := target.Get(resources.Memory); some {
		target = target.With(resources.Memory, max(memory, protected))
	}
	return target
}

// Targets that are higher by less than these factors count as equal. The CPU target of steady usage
// fluctuates by one bucket. The memory target moves only with the margin of a recipe.
const cpuTolerance, memoryTolerance = 1.08, 1.02

// wouldFallInCrash ignores held targets, which do not depend on unsaved history.
func wouldFallInCrash(v *model.VPA) bool {
	memory := 1.0
	if v.Sketches != nil {
		memory = memoryTolerance
	}
	for container, now := range v.Published.Uncapped {
		now = withProtectedMemory(now, v.Published.Protected[container])
		saved, kept := v.Saved.Targets[container], v.Trust.HeldKinds[container]
		if !kept[resources.Memory] && now.Value(resources.Memory) > saved.Value(resources.Memory).Scale(memory) ||
			!kept[resources.CPU] && now.Value(resources.CPU) > saved.Value(resources.CPU).Scale(cpuTolerance) {
			return true
		}
	}
	return false
}

func targetsFromHistory(v *model.VPA) map[string]resources.List {
	if len(v.Trust.HeldKinds) == 0 && len(v.Published.Protected) == 0 {
		return v.Published.Uncapped
	}
	targets := maps.Clone(v.Published.Uncapped)
	for container, target := range targets {
		target = withProtectedMemory(target, v.Published.Protected[container])
		for k, kept := range v.Trust.HeldKinds[container] {
			if kept {
				target = target.Without(resources.Kind(k))
			}
		}
		targets[container] = target
	}
	return targets
}

func noteUnsaved(v *model.VPA) {
	v.Saved.Unsaved = (v.Saved.Failed || v.Saved.Partial != nil) && wouldFallInCrash(v)
}

// While a history is younger than youngFractions intervals, it is saved whenever 1/youngFractions
// of its age is unsaved.
const youngFractions = 4

// maxFirstWriteDelay limits the time to the first write after a start, so that checkpoints soon
// show a working recommender.
const maxFirstWriteDelay = 4 * time.Minute

// isDue reports whether a VPA without urgency is due. Each has its own slot within the interval.
func isDue(v *model.VPA, interval time.Duration, now time.Time) bool {
	t := &v.Saved
	if interval <= 0 || t.Failed {
		return true
	}
	if age := now.Sub(t.HistorySince); !t.HistorySince.IsZero() && age < youngFractions*interval && now.Sub(t.LastTried) >= age/youngFractions {
		return true
	}
	if !t.Written && now.Sub(t.LastTried) >= v.Offset(interval)%min(interval, maxFirstWriteDelay) {
		return true
	}
	return v.SlotPassed(interval, t.LastTried, now)
}

func compareUrgency(a, b *model.VPA) int {
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

// Disposition is the clean-up decision for a checkpoint.
type Disposition int

// Dispositions of checkpoints.
const (
	Keep Disposition = iota
	Orphan
	Expired // its container is long gone or of another target
)

var errLate = errors.New("time limit reached")

const collectTime = 8 * time.Second

// Collect deletes checkpoints, alternating between namespaces. A failed deletion does not stop the
// others. It is limited by collectTime and the timeout of a Save. It returns the number of
// deletions, and errLate if some are left.
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
	s.dropGone(kept)
	if len(left) > 0 {
		problems = append(problems, fmt.Errorf("leave %d checkpoints for the next iteration: %w", len(left), errLate))
	}
	return deleted, errors.Join(problems...)
}

func (s *Saver) dropGone(kept map[name]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.written, func(key name, _ writtenSum) bool { return !kept[key] })
	maps.DeleteFunc(s.loaded, func(key name, _ bool) bool { return !kept[key] })
	s.stored.retain(kept)
}

// Stale reports whether the last sample of a checkpoint, or else its last write, is older than age.
func Stale(c *vpav1.VerticalPodAutoscalerCheckpoint, age time.Duration, now time.Time) bool {
	last := c.Status.LastSampleStart.Time
	if last.IsZero() {
		last = c.Status.LastUpdateTime.Time
	}
	return !last.IsZero() && now.Sub(last) >= age
}

const (
	// maxNamespaceBytes limits the checkpoints of a namespace in etcd, which has 2 GiB by default.
	// It is enough for about 10,000 containers.
	maxNamespaceBytes = 32 << 20
	// maxPodBytes for each running pod is the limit if it is higher.
	maxPodBytes = 16 << 10
	// maxRewriteBytes limits the checkpoints that are rewritten in a full namespace.
	maxRewriteBytes = 16 << 10
	// assumedSize applies to checkpoints that this process has not written.
	assumedSize = 3 * checkpoint.MetadataSize
)

type spaceUsage struct {
	sizes  map[name]int
	totals map[string]int // by namespace
}

func newSpaceUsage() spaceUsage { return spaceUsage{map[name]int{}, map[string]int{}} }

// reserve accounts for a write. It returns false if the checkpoint grows beyond the limit.
func (s *spaceUsage) reserve(key name, size, limit int, stored bool) bool {
	more := size - s.sizes[key]
	if more > 0 && s.totals[key.namespace]+more > limit && (!stored || size > maxRewriteBytes) {
		return false
	}
	s.sizes[key] = size
	s.totals[key.namespace] += more
	return true
}

func (s *spaceUsage) retain(stored map[name]bool) {
	sizes := s.sizes
	*s = newSpaceUsage()
	for key := range stored {
		size, known := sizes[key]
		if !known {
			size = assumedSize
		}
		s.sizes[key] = size
		s.totals[key.namespace] += size
	}
}
