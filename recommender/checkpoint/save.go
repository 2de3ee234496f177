package checkpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	listers "loadline.dev/loadline/pkg/generated/listers/autoscaling/v1"
)

// ErrClash says that an object of the name is the checkpoint of another
// container. Names are put together from that of the VPA and that of the
// container, so VPA "a" with container "b-c" clashes with VPA "a-b" with
// container "c".
var ErrClash = errors.New("the name is taken by another container's checkpoint: rename the VPA or the container")

// ErrPoorer says that the stored checkpoint holds much more history than the one
// that would replace it.
var ErrPoorer = errors.New("the stored checkpoint holds much more history and was not written by this process: left alone until ours has caught up or the stored one expires")

// poorer is how many times more samples a stored checkpoint must have to be
// kept.
const poorer = 2

// Config is what a Saver needs.
type Config struct {
	Client  versioned.Interface
	Lister  listers.VerticalPodAutoscalerCheckpointLister
	Workers int
	Expiry  time.Duration // age at which history no longer counts
}

// Saver writes checkpoints. Its methods must not run side by side.
type Saver struct {
	Config

	mu      sync.Mutex
	owners  map[Owner]time.Time // when a VPA last had its turn
	written map[name]uint64     // hash of what was last written
	known   map[name]bool       // what the restored history already contains
}

type name struct{ namespace, object string }

// NewSaver returns a Saver that has written nothing yet.
func NewSaver(c Config) *Saver {
	return &Saver{Config: c, owners: map[Owner]time.Time{}, written: map[name]uint64{}, known: map[name]bool{}}
}

// Know tells which history was loaded, and will therefore be part of what is
// saved.
func (s *Saver) Know(restored History) {
	for owner, containers := range restored {
		for container := range containers {
			s.known[name{owner.Namespace, objectName(owner, container)}] = true
		}
	}
}

func objectName(o Owner, container string) string { return o.VPA + "-" + container }

// Item is one VPA to save. Images is called by a worker, and only if there is
// time.
type Item struct {
	Owner  Owner
	Images func() map[string]profile.Image // by container
}

// Result tells how a Save went.
type Result struct {
	Written, Unchanged int
	Late               int   // VPAs left for the next pass
	Err                error // all problems joined
}

// requestTime is how long a request may last that starts before the deadline.
const requestTime = 10 * time.Second

// Save writes what changed, VPAs whose last turn is the oldest first, until ctx ends or
// the timeout has passed; each worker writes at least one VPA.
func (s *Saver) Save(ctx context.Context, items []Item, now time.Time, timeout time.Duration) Result {
	s.sort(items)
	s.prune(items)
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(requestTime))
	defer cancel()

	var result Result
	var mu sync.Mutex
	queue := make(chan Item)
	var workers sync.WaitGroup
	for range s.Workers {
		workers.Go(func() {
			for item := range queue {
				r := s.saveOne(ctx, item, now)
				mu.Lock()
				result.add(r)
				mu.Unlock()
				if !time.Now().Before(deadline) {
					return
				}
			}
		})
	}
	expired := time.NewTimer(timeout)
	defer expired.Stop()
	sent := 0
feeding:
	for sent < len(items) {
		// The first VPA of each worker is sent even when time is up.
		if sent >= s.Workers && !time.Now().Before(deadline) {
			break
		}
		select {
		case queue <- items[sent]:
			sent++
		case <-expired.C:
			if sent >= s.Workers {
				break feeding
			}
		case <-ctx.Done():
			break feeding
		}
	}
	close(queue)
	workers.Wait()
	result.Late = len(items) - sent
	return result
}

func (r *Result) add(o Result) {
	r.Written += o.Written
	r.Unchanged += o.Unchanged
	r.Err = errors.Join(r.Err, o.Err)
}

// sort puts the VPAs first that never had a turn, then the longest waiting.
func (s *Saver) sort(items []Item) {
	slices.SortStableFunc(items, func(a, b Item) int {
		return cmp.Or(
			s.owners[a.Owner].Compare(s.owners[b.Owner]),
			cmp.Compare(a.Owner.Namespace, b.Owner.Namespace),
			cmp.Compare(a.Owner.VPA, b.Owner.VPA),
		)
	})
}

// prune forgets VPAs that are gone.
func (s *Saver) prune(items []Item) {
	if len(s.owners) <= len(items) {
		return
	}
	present := make(map[Owner]bool, len(items))
	for _, item := range items {
		present[item.Owner] = true
	}
	for owner := range s.owners {
		if !present[owner] {
			delete(s.owners, owner)
		}
	}
}

func (s *Saver) saveOne(ctx context.Context, item Item, now time.Time) Result {
	var r Result
	images := item.Images()
	for container, image := range images {
		written, err := s.save(ctx, item.Owner, container, image, now)
		switch {
		case err != nil:
			object := item.Owner.Namespace + "/" + objectName(item.Owner, container)
			r.Err = errors.Join(r.Err, fmt.Errorf("save checkpoint %s: %w", object, err))
		case written:
			r.Written++
		default:
			r.Unchanged++
		}
	}
	// A VPA that failed had its turn too: it must not keep the others waiting.
	s.mu.Lock()
	s.owners[item.Owner] = now
	s.mu.Unlock()
	return r
}

// save writes one checkpoint, unless it is what was written last.
func (s *Saver) save(ctx context.Context, owner Owner, container string, image profile.Image, now time.Time) (bool, error) {
	key := name{owner.Namespace, objectName(owner, container)}
	status := Status(image, now)
	sum, err := fingerprint(status)
	if err != nil {
		return false, err
	}
	stored, err := s.Lister.VerticalPodAutoscalerCheckpoints(key.namespace).Get(key.object)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err == nil {
		if stored.Spec.VPAObjectName != owner.VPA || stored.Spec.ContainerName != container {
			return false, fmt.Errorf("%w (VPA %s, container %s)", ErrClash, stored.Spec.VPAObjectName, stored.Spec.ContainerName)
		}
		last, ours := s.last(key)
		if ours && last == sum {
			return false, nil
		}
		if !ours && s.isPoorer(key, stored, status, now) {
			return false, ErrPoorer
		}
	}
	if err := s.write(ctx, owner, container, status); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.written[key] = sum
	s.mu.Unlock()
	return true, nil
}

func (s *Saver) last(key name) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, found := s.written[key]
	return sum, found
}

func (s *Saver) isPoorer(key name, stored *vpav1.VerticalPodAutoscalerCheckpoint, status vpav1.VerticalPodAutoscalerCheckpointStatus, now time.Time) bool {
	return !s.known[key] &&
		stored.Status.TotalSamplesCount > poorer*status.TotalSamplesCount &&
		now.Sub(stored.Status.LastUpdateTime.Time) < s.Expiry
}

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// write patches the object, and creates it if there is none. The patch tests
// whose checkpoint it is, because the cache may be behind.
func (s *Saver) write(ctx context.Context, owner Owner, container string, status vpav1.VerticalPodAutoscalerCheckpointStatus) error {
	patch, err := json.Marshal([]operation{
		{"test", "/spec/vpaObjectName", owner.VPA},
		{"test", "/spec/containerName", container},
		{"add", "/status", status},
	})
	if err != nil {
		return err
	}
	client := s.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(owner.Namespace)
	_, err = client.Patch(ctx, objectName(owner, container), types.JSONPatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.Create(ctx, &vpav1.VerticalPodAutoscalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: objectName(owner, container)},
		Spec:       vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: owner.VPA, ContainerName: container},
		Status:     status,
	}, metav1.CreateOptions{})
	return err
}

// fingerprint is a hash of everything but the time of writing.
func fingerprint(status vpav1.VerticalPodAutoscalerCheckpointStatus) (uint64, error) {
	status.LastUpdateTime = metav1.Time{}
	raw, err := json.Marshal(status)
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	_, _ = h.Write(raw) // a hash never fails
	return h.Sum64(), nil
}
