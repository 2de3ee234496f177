package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender/model"
)

// ErrClash reports that the name belongs to another container. Names join VPA and container, so VPA
// "a" with container "b-c" clashes with VPA "a-b" with container "c".
var ErrClash = errors.New("the name is taken by another container's checkpoint: rename the VPA or the container")

// ErrPoorer reports that the stored checkpoint has much more history than its replacement.
var ErrPoorer = errors.New("the stored checkpoint has much more history and was written by another process: not replaced until the current history has caught up or the stored one expires")

// ErrTooLong reports that the name is too long for an object.
var ErrTooLong = fmt.Errorf("the checkpoint name exceeds the limit of %d characters: shorten the name of the VPA or of the container, otherwise a restart loses its history", maxNameLength)

// ErrNamespaceFull reports that a checkpoint exceeds the limit of its namespace.
var ErrNamespaceFull = fmt.Errorf("the checkpoints of the namespace have reached their limit "+
	"(%d MiB, or %d KiB for each running pod): delete VPAs, or use --storage=prometheus",
	maxNamespaceBytes>>20, maxPodBytes>>10)

const maxNameLength = validation.DNS1123SubdomainMaxLength

// keptSamplesRatio protects stored checkpoints with more than this multiple of samples.
const keptSamplesRatio = 2

// Config configures a Saver.
type Config struct {
	Client   versioned.Interface
	Lister   listers.VerticalPodAutoscalerCheckpointLister
	Workers  int
	Expiry   time.Duration        // age at which history no longer counts
	Interval time.Duration        // between two non-urgent writes of a VPA, 0: immediate
	Timeout  time.Duration        // of one Save
	Writes   *client.WriteLimiter // counts running pods, nil: unknown
	// Advisor returns the contents to save of a VPA, by container. Workers call it.
	Advisor interface {
		Contents(v *model.VPA, now time.Time) map[string]checkpoint.Content
	}
	// OOMs interrupt deferrable writes after some seconds while a kill waits. Nil: no kills.
	OOMs   *model.KillQueue
	Health *serving.Health // ticks after each VPA
	Guard  model.Guard     // around each VPA
}

// Saver writes checkpoints. Only Secure may run concurrently, for different VPAs.
type Saver struct {
	Config

	lastID atomic.Int64 // last model.Saved.ID
	saves  int          // number of Save calls
	queue  []*model.VPA // of one Save, a reused buffer

	mu      sync.Mutex
	written map[name]writtenSum // last written checksum
	loaded  map[name]bool       // true: restored history, false: of another target
	stored  spaceUsage
}

// writtenSum identifies a write by checksum and model.Saved.ID. A returned or recreated VPA has
// another ID, because the checkpoint may have changed and its own history may be incomplete.
type writtenSum struct {
	vpa int
	sum uint64
}

type name struct{ namespace, object string }

// NewSaver returns a Saver without written checkpoints.
func NewSaver(c Config) *Saver {
	return &Saver{Config: c, written: map[name]writtenSum{}, loaded: map[name]bool{}, stored: newSpaceUsage()}
}

// MarkLoaded records history that will be part of later saves.
func (s *Saver) MarkLoaded(restored checkpoint.History) {
	for owner, containers := range restored {
		for container := range containers {
			s.loaded[name{owner.Namespace, checkpoint.ObjectName(owner, container)}] = true
		}
	}
}

// HasWritten reports whether this process has written a stored checkpoint.
func (s *Saver) HasWritten(c *vpav1.VerticalPodAutoscalerCheckpoint) bool {
	return s.lastWritten(name{c.Namespace, c.Name}) != writtenSum{}
}

// MarkForeign records loaded history of another target, which will not be saved.
func (s *Saver) MarkForeign(o checkpoint.Owner, foreign []checkpoint.ForeignContainer) {
	for _, f := range foreign {
		s.loaded[name{o.Namespace, checkpoint.ObjectName(o, f.Container)}] = false
	}
}

// Foreign reports whether a stored checkpoint is of another target than its VPA and obsolete.
func (s *Saver) Foreign(v *model.VPA, c *vpav1.VerticalPodAutoscalerCheckpoint) bool {
	key := name{c.Namespace, c.Name}
	if v.Saved.ID > 0 && s.lastWritten(key).vpa == v.Saved.ID {
		return false // written since
	}
	restored, loaded := s.loaded[key]
	return v.Retargeted || loaded && !restored
}

// Result is the result of a Save.
type Result struct {
	Written, Unchanged int   // number of checkpoints
	Late               int   // VPAs left for the next iteration
	Err                error // all problems joined
	Full               error // checkpoints above the limit of their namespace, joined

	// Joined once at the end, because repeated joins take quadratic time.
	problems, full []error
	limited        bool // by the write limit of the namespace
}

func (r *Result) add(o Result) {
	r.Written += o.Written
	r.Unchanged += o.Unchanged
	r.Late += o.Late
	r.problems, r.full = append(r.problems, o.problems...), append(r.full, o.full...)
}

// requestTimeout is how long requests may exceed the deadline.
const requestTimeout = 10 * time.Second

// Save writes the changed VPAs of scope until the timeout. Urgent VPAs come first, then the longest
// waiting, alternating between namespaces. Each worker writes at least one. Other VPAs take only
// the idle time of the iteration.
func (s *Saver) Save(ctx context.Context, vpas []*model.VPA, scope Scope, now time.Time, idle time.Duration) Result {
	s.plan(vpas, scope, now)
	s.saves++
	if len(s.queue) == 0 {
		return Result{}
	}
	began := time.Now()
	deadline := began.Add(s.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(requestTimeout))
	defer cancel()

	var result Result
	var mu sync.Mutex
	started, limited := 0, map[string]bool{} // limited namespaces wait for the next iteration
	namespace := func(v *model.VPA) string { return v.Object.Namespace }
	mayStart := func(v *model.VPA) bool {
		late := !time.Now().Before(deadline) || !v.Saved.Urgent && s.outOfTime(time.Since(began), s.timeShare(idle, v, scope, now))
		if ctx.Err() != nil || started >= s.Workers && late {
			return false
		}
		started++
		return true
	}
	do := func(_ int, v *model.VPA) {
		mu.Lock()
		r, skip := Result{Late: 1}, limited[v.Object.Namespace]
		mu.Unlock()
		if !skip {
			r = s.saveOne(ctx, v, now)
		}
		mu.Lock()
		result.add(r)
		if r.limited {
			limited[v.Object.Namespace] = true
		}
		mu.Unlock()
		s.Health.Tick()
	}
	for _, class := range s.classes(scope, now) {
		result.Late += len(fairwork.Run(class, s.Workers, namespace, mayStart, do))
	}
	result.Err, result.Full = errors.Join(result.problems...), errors.Join(result.full...)
	return result
}

// classes splits the queue into urgent, overdue and other VPAs, in which namespaces alternate.
func (s *Saver) classes(scope Scope, now time.Time) (classes [3][]*model.VPA) {
	for _, v := range s.queue {
		class := 2
		switch {
		case v.Saved.Urgent:
			class = 0
		case s.overdue(v, scope, now):
			class = 1
		}
		classes[class] = append(classes[class], v)
	}
	return classes
}

// Secure saves a VPA before its target is published, if the target would fall after a crash. It may
// run concurrently for different VPAs, but not with Save. A failed VPA is reported in the next
// Save. Its target is published as unsaved.
func (s *Saver) Secure(ctx context.Context, v *model.VPA, now time.Time) Result {
	s.initSaved(v, now)
	if v.Saved.Failed || !needsSave(v) || !wouldFallInCrash(v) {
		noteUnsaved(v)
		return Result{}
	}
	v.Saved.Partial = nil // the saved part may contain the rising target
	r := s.saveOne(ctx, v, now)
	if ctx.Err() != nil { // no failure: time ran out, also for publishing
		v.Saved.Failed = false
		noteUnsaved(v)
	}
	return r
}

// minDeferrableTime is granted even if kills wait, because in a large cluster they always do.
const minDeferrableTime = 5 * time.Second

// deferrableDivisor limits deferrable writes to idle time / deferrableDivisor.
const deferrableDivisor = 20

// timeShare is all idle time after two intervals, because the writes do not fit into less.
func (s *Saver) timeShare(idle time.Duration, v *model.VPA, scope Scope, now time.Time) time.Duration {
	if s.overdue(v, scope, now) {
		return idle
	}
	return idle / deferrableDivisor
}

func (s *Saver) overdue(v *model.VPA, scope Scope, now time.Time) bool {
	return scope != Due || now.Sub(v.Saved.LastTried) >= 2*s.Interval
}

func (s *Saver) outOfTime(used, idle time.Duration) bool {
	return used >= idle || used >= minDeferrableTime && s.OOMs != nil && len(s.OOMs.Wake()) > 0
}

// saveOne writes for at most fairwork.NamespaceTime, because a VPA can have many checkpoints.
func (s *Saver) saveOne(ctx context.Context, v *model.VPA, now time.Time) Result {
	lastTried := v.Saved.LastTried
	v.Saved.LastTried, v.Saved.Failed = now, true // failed VPAs wait like the others
	defer noteUnsaved(v)
	defer s.Guard.Recover(v)
	var r Result
	part := v.Saved.Partial
	v.Saved.Partial = nil
	if part == nil {
		part = &model.SavedPart{Revision: v.Revision(), Targets: targetsFromHistory(v)}
	}
	// LastTried is kept, so that the VPA is among the first of its namespace in the next iteration.
	interrupt := func(container string) Result {
		v.Saved.LastTried, v.Saved.Failed = lastTried, false
		part.Next, part.Failed = container, part.Failed || len(r.problems)+len(r.full) > 0
		v.Saved.Partial = part
		r.Late = 1
		return r
	}
	contents, began := s.Advisor.Contents(v, now), time.Now()
	owner := ownerOf(v)
	for _, container := range slices.Sorted(maps.Keys(contents)) {
		if container < part.Next {
			continue
		}
		if time.Since(began) >= fairwork.NamespaceTime {
			return interrupt(container)
		}
		written, err := s.save(ctx, v, container, contents[container], now)
		if err != nil {
			err = fmt.Errorf("save checkpoint %s/%s: %w", owner.Namespace, checkpoint.ObjectName(owner, container), err)
		}
		switch {
		case client.IsWriteLimited(err):
			r.limited = true
			return interrupt(container)
		case errors.Is(err, ErrNamespaceFull):
			r.full = append(r.full, err)
		case err != nil:
			r.problems = append(r.problems, err)
		case written:
			r.Written++
		default:
			r.Unchanged++
		}
	}
	if !part.Failed && len(r.problems)+len(r.full) == 0 {
		v.Saved.Revision, v.Saved.Targets, v.Saved.Written, v.Saved.Failed = part.Revision, part.Targets, true, false
	}
	return r
}

func (s *Saver) save(ctx context.Context, v *model.VPA, container string, content checkpoint.Content, now time.Time) (bool, error) {
	owner := ownerOf(v)
	key := name{owner.Namespace, checkpoint.ObjectName(owner, container)}
	if len(key.object) > maxNameLength {
		return false, ErrTooLong
	}
	r, err := checkpoint.NewRecord(owner, container, content, now)
	if err != nil {
		return false, err
	}
	stored, err := s.Lister.VerticalPodAutoscalerCheckpoints(key.namespace).Get(key.object)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	exists, annotated := err == nil, false
	if exists {
		annotated = len(stored.Annotations) > 0
		if stored.Spec.VPAObjectName != owner.VPA || stored.Spec.ContainerName != container {
			return false, fmt.Errorf("%w (VPA %s, container %s)", ErrClash, stored.Spec.VPAObjectName, stored.Spec.ContainerName)
		}
		switch last := s.lastWritten(key); {
		case last.vpa != v.Saved.ID && s.isPoorer(key, v, stored, int(content.Image.Samples), now):
			return false, ErrPoorer
		case last == writtenSum{v.Saved.ID, r.Hash}:
			return false, r.DropErr
		}
	}
	if !s.reserve(key, r.Size, exists) {
		return false, ErrNamespaceFull
	}
	if err := s.write(ctx, r, annotated); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.written[key] = writtenSum{v.Saved.ID, r.Hash}
	s.mu.Unlock()
	return true, r.DropErr
}

func (s *Saver) reserve(key name, size int, stored bool) bool {
	limit := maxNamespaceBytes
	if s.Writes != nil {
		limit = max(limit, s.Writes.RunningPods(key.namespace)*maxPodBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored.reserve(key, size, limit, stored)
}

func (s *Saver) lastWritten(key name) writtenSum {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[key]
}

// isPoorer reports whether a stored checkpoint must stay. One of an earlier target need not.
func (s *Saver) isPoorer(key name, v *model.VPA, stored *vpav1.VerticalPodAutoscalerCheckpoint, samples int, now time.Time) bool {
	_, loaded := s.loaded[key]
	return (!v.Saved.InFirstSave || !loaded) && !v.Retargeted &&
		stored.Status.TotalSamplesCount > keptSamplesRatio*samples &&
		now.Sub(stored.Status.LastUpdateTime.Time) < s.Expiry
}

// write retries with the other patch, because the cache may be outdated.
func (s *Saver) write(ctx context.Context, r checkpoint.Record, annotated bool) error {
	all := s.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(r.Namespace)
	send := func(annotated bool) error {
		patch, err := r.Patch(annotated)
		if err != nil {
			return err
		}
		_, err = all.Patch(ctx, r.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
	err := send(annotated)
	if apierrors.IsInvalid(err) {
		err = send(!annotated)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = all.Create(ctx, r.Object(), metav1.CreateOptions{})
	return err
}
