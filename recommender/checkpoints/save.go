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

// ErrClash says that an object of the name is the checkpoint of another container. Names are put together from that of
// the VPA and that of the container, so VPA "a" with container "b-c" clashes with VPA "a-b" with container "c".
var ErrClash = errors.New("the name is taken by another container's checkpoint: rename the VPA or the container")

// ErrPoorer says that the stored checkpoint holds much more history than the one that would replace it.
var ErrPoorer = errors.New("the stored checkpoint holds much more history and was not written by this process: left alone until ours has caught up or the stored one expires")

// ErrTooLong says that there can be no object of the name.
var ErrTooLong = fmt.Errorf("the name has more than the %d characters that an object may have: shorten that of the VPA or of the container, until then a restart forgets its history", longestName)

// ErrNamespaceFull is the error of a checkpoint that exceeds the limit of its namespace.
var ErrNamespaceFull = fmt.Errorf("the checkpoints of the namespace have reached their limit "+
	"(%d MiB, or %d KiB for each running pod): delete VPAs, or use --storage=prometheus",
	maxNamespaceBytes>>20, maxPodBytes>>10)

const longestName = validation.DNS1123SubdomainMaxLength

// keptSamplesRatio is how many times the samples of ours a stored checkpoint must have to be left alone.
const keptSamplesRatio = 2

// Config is what a Saver needs.
type Config struct {
	Client   versioned.Interface
	Lister   listers.VerticalPodAutoscalerCheckpointLister
	Workers  int
	Expiry   time.Duration        // age at which history no longer counts
	Interval time.Duration        // between two writes of a VPA that are not urgent; 0: none is put off
	Timeout  time.Duration        // of one Save
	Writes   *client.WriteLimiter // knows running pods; nil: none is known
	// Advisor returns what is to be kept of a VPA, by container. Workers call it, and only if there is time.
	Advisor interface {
		Contents(v *model.VPA, now time.Time) map[string]checkpoint.Content
	}
	// OOMs are more urgent than writes that can be put off: these end after some seconds while a kill
	// waits. Nil: no kill ever does.
	OOMs   *model.OOMs
	Health *serving.Health // ticks after each VPA
	Guard  model.Guard     // around the work on each VPA
}

// Saver writes checkpoints. Its methods must not run side by side.
type Saver struct {
	Config

	lastID atomic.Int64 // of model.Saved
	saves  int          // calls of Save
	queue  []*model.VPA // of one Save; kept for its memory

	mu      sync.Mutex
	written map[name]writtenSum // what was last written
	known   map[name]bool       // what was loaded: whether it is part of the restored history, or of another target
	stored  space
}

// writtenSum is the checksum of what was written, and model.Saved.ID of the VPA for which. One that comes back after a
// while, or one of the same name, has another: others may have written since, and it may know less.
type writtenSum struct {
	vpa int
	sum uint64
}

type name struct{ namespace, object string }

// NewSaver returns a Saver that has written nothing yet.
func NewSaver(c Config) *Saver {
	return &Saver{Config: c, written: map[name]writtenSum{}, known: map[name]bool{}, stored: newSpace()}
}

// Know says which history was loaded, and will therefore be part of what is saved.
func (s *Saver) Know(restored checkpoint.History) {
	for owner, containers := range restored {
		for container := range containers {
			s.known[name{owner.Namespace, checkpoint.ObjectName(owner, container)}] = true
		}
	}
}

// HasWritten reports whether this process has written a stored checkpoint.
func (s *Saver) HasWritten(c *vpav1.VerticalPodAutoscalerCheckpoint) bool {
	return s.lastWritten(name{c.Namespace, c.Name}) != writtenSum{}
}

// Disown says of which containers the history was loaded, but is that of another
// target than the VPA has: nothing of it will be saved again.
func (s *Saver) Disown(o checkpoint.Owner, foreign []checkpoint.Foreign) {
	for _, f := range foreign {
		s.known[name{o.Namespace, checkpoint.ObjectName(o, f.Container)}] = false
	}
}

// Foreign reports whether a stored checkpoint holds the history of another target
// than its VPA has now, and is of no use therefore.
func (s *Saver) Foreign(v *model.VPA, c *vpav1.VerticalPodAutoscalerCheckpoint) bool {
	key := name{c.Namespace, c.Name}
	if v.Saved.ID > 0 && s.lastWritten(key).vpa == v.Saved.ID {
		return false // it was written since
	}
	restored, loaded := s.known[key]
	return v.Retargeted || loaded && !restored
}

// Result says how a Save went.
type Result struct {
	Written, Unchanged int   // checkpoints
	Late               int   // VPAs left for the next pass
	Err                error // all problems joined
	Full               error // the checkpoints that exceed the limit of their namespace, joined

	// Joined in the end: joining each to the others takes a time that grows with the square.
	problems, full []error
	limited        bool // by the write limit of the namespace
}

func (r *Result) add(o Result) {
	r.Written += o.Written
	r.Unchanged += o.Unchanged
	r.Late += o.Late
	r.problems, r.full = append(r.problems, o.problems...), append(r.full, o.full...)
}

// requestTime is how long a request may last that starts before the deadline.
const requestTime = 10 * time.Second

// Save writes the changed VPAs of scope, the urgent ones first, then by the time since their last
// attempt, in turns of namespaces, until ctx ends or the timeout has passed. Each worker writes at
// least one VPA. Writes that are not urgent take only the idle time of the pass.
func (s *Saver) Save(ctx context.Context, vpas []*model.VPA, scope Scope, now time.Time, idle time.Duration) Result {
	s.plan(vpas, scope, now)
	s.saves++
	if len(s.queue) == 0 {
		return Result{}
	}
	began := time.Now()
	deadline := began.Add(s.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(requestTime))
	defer cancel()

	var result Result
	var mu sync.Mutex
	started, limited := 0, map[string]bool{} // namespaces, which wait for the next pass
	namespace := func(v *model.VPA) string { return v.Object.Namespace }
	may := func(v *model.VPA) bool {
		late := !time.Now().Before(deadline) || !v.Saved.Urgent && s.yields(time.Since(began), s.share(idle, v, scope, now))
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
		result.Late += len(fairwork.Run(class, s.Workers, namespace, may, do))
	}
	result.Err, result.Full = errors.Join(result.problems...), errors.Join(result.full...)
	return result
}

// classes splits the queue into the urgent VPAs, the overdue ones, and the others. Namespaces take
// turns within a class.
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

// Secure writes a VPA whose target is about to be published and would fall again without what is not saved yet. It is
// safe for concurrent use for different VPAs, but not beside Save. One that fails is tried again in the next Save,
// which says why; its target is published all the same, and noted as unsaved.
func (s *Saver) Secure(ctx context.Context, v *model.VPA, now time.Time) Result {
	s.begin(v, now)
	if v.Saved.Failed || !changed(v) || !wouldFallInCrash(v) {
		noteUnsaved(v)
		return Result{}
	}
	v.Saved.Part = nil // what rises may be in the part that is saved
	r := s.saveOne(ctx, v, now)
	if ctx.Err() != nil { // nobody refused: there was no time, nor is there any to publish
		v.Saved.Failed = false
		noteUnsaved(v)
	}
	return r
}

// leastTime is how long what is not urgent may be written though kills wait. In a large cluster some always do.
const leastTime = 5 * time.Second

// deferrablePart: writes that can wait take one part of so many of the idle time. There is
// idle time in each pass, and a pass shall be short.
const deferrablePart = 20

// share returns how much of the idle time a VPA may use: all of it once it has waited for
// two intervals, because there is more to write than fits into less.
func (s *Saver) share(idle time.Duration, v *model.VPA, scope Scope, now time.Time) time.Duration {
	if s.overdue(v, scope, now) {
		return idle
	}
	return idle / deferrablePart
}

func (s *Saver) overdue(v *model.VPA, scope Scope, now time.Time) bool {
	return scope != Due || now.Sub(v.Saved.LastTried) >= 2*s.Interval
}

// yields reports whether what is not urgent has had its time.
func (s *Saver) yields(used, idle time.Duration) bool {
	return used >= idle || used >= leastTime && s.OOMs != nil && len(s.OOMs.Wake()) > 0
}

// saveOne writes the checkpoints of a VPA for fairwork.NamespaceTime, and the others in the next pass: a VPA
// can have hundreds of them.
func (s *Saver) saveOne(ctx context.Context, v *model.VPA, now time.Time) Result {
	lastTried := v.Saved.LastTried
	v.Saved.LastTried, v.Saved.Failed = now, true // a VPA that fails waits like the others
	defer noteUnsaved(v)
	defer s.Guard.Recover(v)
	var r Result
	part := v.Saved.Part
	v.Saved.Part = nil
	if part == nil {
		part = &model.SavedPart{Revision: v.Revision(), Targets: targetsFromHistory(v)}
	}
	// The VPA is among the first of its namespace in the next pass.
	interrupt := func(container string) Result {
		v.Saved.LastTried, v.Saved.Failed = lastTried, false
		part.Next, part.Failed = container, part.Failed || len(r.problems)+len(r.full) > 0
		v.Saved.Part = part
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
		v.Saved.Revision, v.Saved.Targets, v.Saved.Saved, v.Saved.Failed = part.Revision, part.Targets, true, false
	}
	return r
}

// save writes one checkpoint, unless it is what was written last.
func (s *Saver) save(ctx context.Context, v *model.VPA, container string, content checkpoint.Content, now time.Time) (bool, error) {
	owner := ownerOf(v)
	key := name{owner.Namespace, checkpoint.ObjectName(owner, container)}
	if len(key.object) > longestName {
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
		case last == writtenSum{v.Saved.ID, r.Sum}:
			return false, r.Lacks
		}
	}
	if !s.reserve(key, r.Size, exists) {
		return false, ErrNamespaceFull
	}
	if err := s.write(ctx, r, annotated); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.written[key] = writtenSum{v.Saved.ID, r.Sum}
	s.mu.Unlock()
	return true, r.Lacks
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

// isPoorer reports whether a stored checkpoint must stay. What a VPA had before it
// pointed to another target is of no use.
func (s *Saver) isPoorer(key name, v *model.VPA, stored *vpav1.VerticalPodAutoscalerCheckpoint, samples int, now time.Time) bool {
	_, loaded := s.known[key]
	return (!v.Saved.First || !loaded) && !v.Retargeted &&
		stored.Status.TotalSamplesCount > keptSamplesRatio*samples &&
		now.Sub(stored.Status.LastUpdateTime.Time) < s.Expiry
}

// write patches the object, and creates it if there is none. The cache may be
// behind, so the other patch is tried as well.
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
