// Package records stores the rollout states of workloads under a SizingPolicy in SizingRecords.
//
// The updater is the only writer, but two processes may both consider themselves the leader for a
// moment. Each write therefore includes the resource version. After a conflict, the record is read
// again and the change is reapplied. A written record is visible in this process at once, before
// the informer receives it.
//
// No lock is held during a request. An unanswered write delays neither State nor the write of
// another workload, and ends after WriteTimeout.
package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	informers "loadline.dev/loadline/pkg/generated/informers/externalversions/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

const (
	// attempts is how often Update retries a write that conflicts with another one.
	attempts = 5
	// WriteTimeout bounds all requests of one Update.
	WriteTimeout = 5 * time.Second
	// turnWait is how long an Update waits for another one of the same workload before it writes
	// concurrently. Waiting reduces conflicts, and the resource version keeps both correct.
	turnWait = time.Second
)

// Store reads and writes the records of all workloads. Use Watch to create one. All methods are
// safe for concurrent use.
type Store struct {
	client    versioned.Interface
	workloads *target.Resolver
	dryRun    bool
	synced    cache.InformerSynced
	cached    cache.Store

	changes atomic.Uint64 // see Changes
	reverts atomic.Uint64 // see Reverts
	mu      sync.Mutex    // guards written and the record of each entry
	written map[cache.ObjectName]*entry
}

// entry is the last record of a workload that this process wrote.
type entry struct {
	turn   chan struct{} // holds a value while an Update is in progress
	record *compactRecord
}

// Watch returns a store. Call it before the informer starts. A dry run writes and stores nothing.
func Watch(client versioned.Interface, informer informers.SizingRecordInformer, workloads *target.Resolver, dryRun bool) (*Store, error) {
	shared := informer.Informer()
	if err := shared.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("set transform for SizingRecords: %w", err)
	}
	s := &Store{client: client, workloads: workloads, dryRun: dryRun, cached: shared.GetStore(), written: map[cache.ObjectName]*entry{}}
	handler, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.changes.Add(1) },
		UpdateFunc: func(any, any) { s.changes.Add(1) },
		DeleteFunc: s.deleted,
	})
	if err != nil {
		return nil, fmt.Errorf("watch SizingRecords: %w", err)
	}
	s.synced = func() bool { return shared.HasSynced() && handler.HasSynced() }
	return s, nil
}

// Changes returns the number of record changes so far. Results of State remain valid while it is
// constant, so callers can cache them for many workloads.
func (s *Store) Changes() uint64 { return s.changes.Load() }

// Reverts returns how many rounds this process has recorded as reverted.
func (s *Store) Reverts() uint64 { return s.reverts.Load() }

// Name is the name of a workload's record, cached for frequent lookups.
type Name struct {
	cache.ObjectName

	key string // cache key
}

// NameOf returns the name of the record of a workload.
func NameOf(workload target.Key) Name {
	name := sizing.RecordName(workload)
	return Name{ObjectName: name, key: name.String()}
}

// State returns the rollout state of a workload, or sizing.ErrUnknown if records cannot be read.
func (s *Store) State(of target.Workload) (rollout.State, error) {
	return s.StateAs(NameOf(of.Key), of)
}

// StateAs is State for callers that have the name of the record.
func (s *Store) StateAs(name Name, of target.Workload) (rollout.State, error) {
	if !s.synced() {
		return rollout.State{}, sizing.ErrUnknown
	}
	r, err := s.newestRecord(name)
	if err != nil {
		return rollout.State{}, err
	}
	return r.stateOf(of)
}

// Update changes the state of a workload and returns the new state. Nothing is written if change
// returns an equal state. After a conflict, change is called again with the state of the other
// writer. Update returns within WriteTimeout.
func (s *Store) Update(ctx context.Context, of target.Workload, change func(rollout.State) rollout.State) (rollout.State, error) {
	if !s.synced() {
		return rollout.State{}, sizing.ErrUnknown
	}
	ctx, cancel := fairwork.Limit(ctx, WriteTimeout)
	defer cancel()
	name := NameOf(of.Key)
	e := s.entry(name.ObjectName)
	defer e.acquire(ctx)()
	r, err := s.newestRecord(name)
	for try := 0; err == nil && try < attempts; try++ {
		var before rollout.State
		if before, err = r.stateOf(of); err != nil {
			break
		}
		next := change(before)
		status := convert.RecordStatus(next)
		if s.dryRun || r.owned(of) && apiequality.Semantic.DeepEqual(convert.RecordStatus(before), status) {
			return next, nil
		}
		written, failed := s.write(ctx, of, r, status)
		switch {
		case failed == nil:
			s.remember(e, written)
			if next.Reverts() > before.Reverts() {
				s.reverts.Add(1)
			}
			return next, nil
		case apierrors.IsConflict(failed), apierrors.IsAlreadyExists(failed), apierrors.IsNotFound(failed):
			r, err = s.read(ctx, of)
		default:
			err = failed
		}
	}
	if err == nil {
		err = errors.New("too many conflicting updates")
	}
	return rollout.State{}, fmt.Errorf("write SizingRecord %s: %w", name, err)
}

// Reread returns the state of a workload from the API server, for a cache that may be stale.
func (s *Store) Reread(ctx context.Context, of target.Workload) (rollout.State, error) {
	ctx, cancel := fairwork.Limit(ctx, WriteTimeout)
	defer cancel()
	name := NameOf(of.Key)
	r, err := s.read(ctx, of)
	if err != nil {
		return rollout.State{}, fmt.Errorf("read SizingRecord %s: %w", name, err)
	}
	if r != nil && !s.dryRun {
		s.remember(s.entry(name.ObjectName), r)
	}
	return r.stateOf(of)
}

func (s *Store) entry(name cache.ObjectName) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written[name] == nil {
		s.written[name] = &entry{turn: make(chan struct{}, 1)}
	}
	return s.written[name]
}

// acquire waits at most turnWait for the turn of an Update, and returns the function that ends it.
func (e *entry) acquire(ctx context.Context) (leave func()) {
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }
	case <-time.After(turnWait):
	case <-ctx.Done():
	}
	return func() {}
}

// remember stores a record unless a newer one is. A concurrent deletion may have dropped the entry.
func (s *Store) remember(e *entry, written *compactRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.record == nil || !caughtUp(e.record, written) {
		e.record = written
	}
	s.changes.Add(1)
}

// newestRecord returns the newer of the cached and the last written record, or nil.
func (s *Store) newestRecord(name Name) (*compactRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object, there, err := s.cached.GetByKey(name.key)
	if err != nil {
		return nil, fmt.Errorf("read SizingRecord %s: %w", name, err)
	}
	e := s.written[name.ObjectName] // reads add no entry
	var written *compactRecord
	if e != nil {
		written = e.record
	}
	if !there {
		return written, nil
	}
	cached, ok := object.(*compactRecord)
	if !ok {
		return nil, fmt.Errorf("read SizingRecord %s: unexpected type %T in the cache", name, object)
	}
	if written == nil {
		return cached, nil
	}
	if !caughtUp(cached, written) {
		return written, nil
	}
	e.record = nil
	return cached, nil
}

func caughtUp(cached, written *compactRecord) bool {
	order, err := resourceversion.CompareResourceVersion(written.ResourceVersion, cached.ResourceVersion)
	return err == nil && order <= 0
}

// deleted drops the state of a deleted record. The rollout then starts without history.
func (s *Store) deleted(object any) {
	defer s.changes.Add(1)
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	r, ok := object.(*compactRecord)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, cache.MetaObjectToName(r))
}

func (s *Store) read(ctx context.Context, of target.Workload) (*compactRecord, error) {
	name := sizing.RecordName(of.Key)
	all, err := s.client.LoadlineV1alpha1().SizingRecords(name.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name.Name})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		if all.Items[i].Name == name.Name {
			return compact(&all.Items[i]), nil
		}
	}
	return nil, nil //nolint:nilnil // that there is none is no error
}

func (s *Store) write(ctx context.Context, of target.Workload, before *compactRecord, status loadlinev1alpha1.SizingRecordStatus) (*compactRecord, error) {
	if !before.owned(of) {
		if err := s.workloads.Confirm(ctx, of); err != nil {
			return nil, err
		}
	}
	name := sizing.RecordName(of.Key)
	next := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if before != nil {
		before.DeepCopyInto(&next.ObjectMeta)
	}
	next.OwnerReferences, next.Status = withOwner(next.OwnerReferences, of), status
	records := s.client.LoadlineV1alpha1().SizingRecords(name.Namespace)
	var written *loadlinev1alpha1.SizingRecord
	var err error
	if before == nil {
		written, err = records.Create(ctx, next, metav1.CreateOptions{})
	} else {
		written, err = records.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, err
	}
	return compact(written), nil
}

// withOwner adds a reference to the workload that does not block its deletion.
func withOwner(before []metav1.OwnerReference, of target.Workload) []metav1.OwnerReference {
	owner := metav1.OwnerReference{APIVersion: of.APIVersion, Kind: of.Key.Kind, Name: of.Key.Name, UID: of.UID, Controller: new(false), BlockOwnerDeletion: new(false)}
	kept := []metav1.OwnerReference{owner}
	for _, o := range before {
		// Drop references to a deleted workload of the same name.
		if o.UID != of.UID && (o.Kind != owner.Kind || o.Name != owner.Name) {
			kept = append(kept, o)
		}
	}
	return kept
}

// compactRecord is the part of a SizingRecord that a write must preserve. The API type takes 117
// KiB for twenty rounds of two containers. A stored record is immutable.
type compactRecord struct {
	metav1.ObjectMeta

	state rollout.State
}

func transform(object any) (any, error) {
	if r, ok := object.(*loadlinev1alpha1.SizingRecord); ok {
		return compact(r), nil
	}
	return object, nil // already compact, or a tombstone
}

func compact(r *loadlinev1alpha1.SizingRecord) *compactRecord {
	k := &compactRecord{ObjectMeta: r.ObjectMeta, state: convert.RolloutState(&r.Status)}
	k.ManagedFields = nil
	s := &k.state
	s.Hash = intern(s.Hash)
	shareNames(s.ProvenResources)
	shareNames(s.HaltedTarget)
	for i := range s.Rounds {
		round := &s.Rounds[i]
		round.Outcome, round.SoFar, round.Reason = intern(round.Outcome), intern(round.SoFar), intern(round.Reason)
		shareNames(round.From)
		shareNames(round.To)
		if i > 0 && slices.Equal(s.Rounds[i-1].From, round.To) { // nearly always
			s.Rounds[i-1].From = round.To
		}
	}
	return k
}

func shareNames(containers []policy.Container) {
	for i := range containers {
		containers[i].Name = intern(containers[i].Name)
	}
}

// intern returns a canonical copy of a string that many records have.
func intern[W ~string](w W) W { return unique.Make(w).Value() }

// GetObjectKind returns an empty kind, which is sufficient for informers.
func (r *compactRecord) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the record itself because it is immutable.
func (r *compactRecord) DeepCopyObject() runtime.Object { return r }

func (r *compactRecord) stateOf(workload target.Workload) (rollout.State, error) {
	if r == nil {
		return rollout.State{}, nil
	}
	if about, err := sizing.AppliesTo(workload, &r.ObjectMeta); !about || err != nil {
		return rollout.State{}, err
	}
	return r.state, nil
}

func (r *compactRecord) owned(by target.Workload) bool {
	return r != nil && sizing.IsOwner(by, &r.ObjectMeta)
}
