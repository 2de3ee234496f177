package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
	"loadline.dev/loadline/recommender/model"
)

// ErrClash says that an object of the name is the checkpoint of another
// container. Names are put together from that of the VPA and that of the
// container, so VPA "a" with container "b-c" clashes with VPA "a-b" with
// container "c".
var ErrClash = errors.New("the name is taken by another container's checkpoint: rename the VPA or the container")

// ErrPoorer says that the stored checkpoint holds much more history than the one
// that would replace it.
var ErrPoorer = errors.New("the stored checkpoint holds much more history and was not written by this process: left alone until ours has caught up or the stored one expires")

// ErrTooLong says that there can be no object of the name.
var ErrTooLong = fmt.Errorf("the name has more than the %d characters that an object may have: shorten that of the VPA or of the container, until then a restart forgets its history", longestName)

// longestName is what the API server accepts.
const longestName = validation.DNS1123SubdomainMaxLength

// keptSamplesRatio is how many times the samples of ours a stored checkpoint must have to
// be left alone.
const keptSamplesRatio = 2

// Config is what a Saver needs.
type Config struct {
	Client   versioned.Interface
	Lister   listers.VerticalPodAutoscalerCheckpointLister
	Workers  int
	Expiry   time.Duration // age at which history no longer counts
	Interval time.Duration // between two writes of a VPA that are not urgent; 0: none is put off
	Timeout  time.Duration // of one Save

	// Contents returns what is to be kept of a VPA, by container. Workers call it,
	// and only if there is time.
	Contents func(v *model.VPA, now time.Time) map[string]checkpoint.Content
	// Waiting tells that something more urgent waits than what can be put off, which
	// ends then, but has some seconds; nil if nothing ever is.
	Waiting func() bool
	// Progress is called after each VPA; nil if nobody wants to know.
	Progress func()
	// Rescue is deferred around the work on each VPA and may recover; nil if
	// nothing shall.
	Rescue func(v *model.VPA)
}

// Saver writes checkpoints. Its methods must not run side by side.
type Saver struct {
	Config

	states map[*model.VPA]*saveState
	lastID int          // of all states that there ever were
	saves  int          // calls of Save
	queue  []*saveState // of one Save; kept for its memory

	mu      sync.Mutex
	written map[name]writtenSum // what was last written
	known   map[name]bool       // what was loaded: whether it is part of the restored history, or of another target
}

// writtenSum is the checksum of what was written, and the id of the state for which. A VPA
// that comes back after a while, or one of the same name, has another state: others may
// have written since, and it may know less.
type writtenSum struct {
	state int
	sum   uint64
}

type name struct{ namespace, object string }

// NewSaver returns a Saver that has written nothing yet.
func NewSaver(c Config) *Saver {
	return &Saver{Config: c, states: map[*model.VPA]*saveState{}, written: map[name]writtenSum{}, known: map[name]bool{}}
}

// Know tells which history was loaded, and will therefore be part of what is
// saved.
func (s *Saver) Know(restored checkpoint.History) {
	for owner, containers := range restored {
		for container := range containers {
			s.known[name{owner.Namespace, checkpoint.ObjectName(owner, container)}] = true
		}
	}
}

// Disown tells of which containers the history was loaded, but is that of another
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
	if t := s.states[v]; t != nil && s.lastWritten(key).state == t.id {
		return false // it was written since
	}
	restored, loaded := s.known[key]
	return v.Retargeted || loaded && !restored
}

// Result tells how a Save went.
type Result struct {
	Written, Unchanged int   // checkpoints
	Late               int   // VPAs left for the next pass
	Err                error // all problems joined

	problems []error // joined in the end: joining each to the others takes a time that grows with the square
}

func (r *Result) add(o Result) {
	r.Written += o.Written
	r.Unchanged += o.Unchanged
	r.problems = append(r.problems, o.problems...)
}

// requestTime is how long a request may last that starts before the deadline.
const requestTime = 10 * time.Second

// Save writes the VPAs of scope that changed, the urgent ones first, then those
// whose last turn is the oldest, until ctx ends or the timeout has passed; each
// worker writes at least one VPA. Writes that are not urgent also end when idle
// is over: they take only the time that the pass has left.
func (s *Saver) Save(ctx context.Context, vpas []*model.VPA, scope Scope, now time.Time, idle time.Duration) Result {
	urgent := s.plan(vpas, scope, now)
	s.saves++
	began := time.Now()
	deadline := began.Add(s.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(requestTime))
	defer cancel()

	var result Result
	var mu sync.Mutex
	queue := make(chan *saveState)
	var workers sync.WaitGroup
	for range min(s.Workers, len(s.queue)) {
		workers.Go(func() {
			for t := range queue {
				r := s.saveOne(ctx, t, now)
				mu.Lock()
				result.add(r)
				mu.Unlock()
				if s.Progress != nil {
					s.Progress()
				}
			}
		})
	}
	sent := 0
	for ; sent < len(s.queue); sent++ {
		late := !time.Now().Before(deadline) || sent >= urgent && s.yields(time.Since(began), s.share(idle, s.queue[sent], scope, now))
		if ctx.Err() != nil || sent >= s.Workers && late {
			break
		}
		if !s.send(ctx, queue, s.queue[sent], deadline, sent < s.Workers) {
			break
		}
	}
	close(queue)
	workers.Wait()
	result.Late = len(s.queue) - sent
	result.Err = errors.Join(result.problems...)
	return result
}

// Secure writes a VPA whose target is about to be published and would fall again
// without what is not saved yet. It is safe for concurrent use for different VPAs,
// but not beside Save. One that fails is tried again in the next Save, which says why;
// its target is published all the same, and noted as unsaved.
func (s *Saver) Secure(ctx context.Context, v *model.VPA, now time.Time) Result {
	s.mu.Lock()
	t := s.state(v, now)
	s.mu.Unlock()
	if t.failed || !t.changed() || !t.wouldFallInCrash() {
		t.noteUnsaved()
		return Result{}
	}
	r := s.saveOne(ctx, t, now)
	if ctx.Err() != nil { // nobody refused: there was no time, nor is there any to publish
		t.failed = false
		t.noteUnsaved()
	}
	return r
}

// leastTime is how long what is not urgent may be written though kills wait. In a
// large cluster some always do.
const leastTime = 5 * time.Second

// deferrablePart: writes that can wait take one part of so many of the idle time. There is
// idle time in each pass, and a pass shall be short.
const deferrablePart = 20

// share returns how much of the idle time a VPA may use: all of it once it has waited for
// two intervals, because there is more to write than fits into less.
func (s *Saver) share(idle time.Duration, t *saveState, scope Scope, now time.Time) time.Duration {
	if scope == Due && now.Sub(t.lastTried) < 2*s.Interval {
		return idle / deferrablePart
	}
	return idle
}

// yields reports whether what is not urgent has had its time.
func (s *Saver) yields(used, idle time.Duration) bool {
	return used >= idle || used >= leastTime && s.Waiting != nil && s.Waiting()
}

// send gives a VPA to the next worker that is free, and reports false if there
// is none in time. The first of each worker is always sent.
func (s *Saver) send(ctx context.Context, queue chan<- *saveState, t *saveState, deadline time.Time, first bool) bool {
	expired := time.NewTimer(time.Until(deadline))
	defer expired.Stop()
	for {
		select {
		case queue <- t:
			return true
		case <-ctx.Done():
			return false
		case <-expired.C:
			if !first {
				return false
			}
		}
	}
}

func (s *Saver) saveOne(ctx context.Context, t *saveState, now time.Time) Result {
	t.lastTried, t.failed = now, true // a VPA that fails waits like the others
	defer t.noteUnsaved()
	if s.Rescue != nil {
		defer s.Rescue(t.vpa)
	}
	var r Result
	revision, targets := t.vpa.Revision(), targetsFromHistory(t.vpa)
	contents := s.Contents(t.vpa, now)
	owner := t.owner()
	for _, container := range slices.Sorted(maps.Keys(contents)) {
		written, err := s.save(ctx, t, container, contents[container], now)
		switch {
		case err != nil:
			r.problems = append(r.problems, fmt.Errorf("save checkpoint %s/%s: %w", owner.Namespace, checkpoint.ObjectName(owner, container), err))
		case written:
			r.Written++
		default:
			r.Unchanged++
		}
	}
	if len(r.problems) == 0 {
		t.done(revision, targets)
	}
	return r
}

// save writes one checkpoint, unless it is what was written last.
func (s *Saver) save(ctx context.Context, t *saveState, container string, content checkpoint.Content, now time.Time) (bool, error) {
	key, owner := name{t.vpa.Object.Namespace, checkpoint.ObjectName(t.owner(), container)}, t.owner()
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
	annotated := false
	if err == nil {
		annotated = len(stored.Annotations) > 0
		if stored.Spec.VPAObjectName != owner.VPA || stored.Spec.ContainerName != container {
			return false, fmt.Errorf("%w (VPA %s, container %s)", ErrClash, stored.Spec.VPAObjectName, stored.Spec.ContainerName)
		}
		switch last := s.lastWritten(key); {
		case last.state != t.id && s.isPoorer(key, t, stored, int(content.Image.Samples), now):
			return false, ErrPoorer
		case last == writtenSum{t.id, r.Sum}:
			return false, r.Lacks
		}
	}
	if err := s.write(ctx, r, annotated); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.written[key] = writtenSum{t.id, r.Sum}
	s.mu.Unlock()
	return true, r.Lacks
}

func (s *Saver) lastWritten(key name) writtenSum {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[key]
}

// isPoorer reports whether a stored checkpoint must stay. What a VPA had before it
// pointed to another target is of no use.
func (s *Saver) isPoorer(key name, t *saveState, stored *vpav1.VerticalPodAutoscalerCheckpoint, samples int, now time.Time) bool {
	_, loaded := s.known[key]
	return (!t.first || !loaded) && !t.vpa.Retargeted &&
		stored.Status.TotalSamplesCount > keptSamplesRatio*samples &&
		now.Sub(stored.Status.LastUpdateTime.Time) < s.Expiry
}

// write patches the object, and creates it if there is none. The cache may be
// behind, so the other patch is tried as well.
func (s *Saver) write(ctx context.Context, r checkpoint.Record, annotated bool) error {
	client := s.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(r.Namespace)
	send := func(annotated bool) error {
		patch, err := r.Patch(annotated)
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, r.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
	err := send(annotated)
	if apierrors.IsInvalid(err) {
		err = send(!annotated)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.Create(ctx, r.Object(), metav1.CreateOptions{})
	return err
}
