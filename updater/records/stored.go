package records

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
)

// stored is what is kept of a SizingRecord: all that a write must not lose. As the API has it,
// with maps of amounts, one of twenty rounds of two containers takes 117 KiB, and a pass over
// 10,000 of them reads as many maps. It does not change.
type stored struct {
	metav1.ObjectMeta

	state rollout.State
}

// keep is a cache.TransformFunc that leaves that of a SizingRecord.
func keep(object any) (any, error) {
	if r, ok := object.(*loadlinev1alpha1.SizingRecord); ok {
		return compact(r), nil
	}
	return object, nil // one that was kept before, or a tombstone
}

func compact(r *loadlinev1alpha1.SizingRecord) *stored {
	k := &stored{ObjectMeta: r.ObjectMeta, state: convert.RolloutState(&r.Status)}
	k.ManagedFields = nil
	s := &k.state
	s.Hash = word(s.Hash)
	shareNames(s.Kept)
	shareNames(s.HaltedTarget)
	for i := range s.Rounds {
		round := &s.Rounds[i]
		round.Outcome, round.SoFar, round.Reason = word(round.Outcome), word(round.SoFar), word(round.Reason)
		shareNames(round.From)
		shareNames(round.To)
		if i > 0 && slices.Equal(s.Rounds[i-1].From, round.To) { // as nearly always
			s.Rounds[i-1].From = round.To
		}
	}
	return k
}

func shareNames(containers []policy.Container) {
	for i := range containers {
		containers[i].Name = word(containers[i].Name)
	}
}

// word returns a word that many records have without room of its own.
func word[W ~string](w W) W { return unique.Make(w).Value() }

// GetObjectKind returns a kind that cannot be set: informers need none.
func (r *stored) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the record itself, which nobody changes.
func (r *stored) DeepCopyObject() runtime.Object { return r }

// of returns what the record says of a workload, as sizing.Remembered does.
func (r *stored) of(workload target.Workload) (rollout.State, error) {
	if r == nil {
		return rollout.State{}, nil
	}
	if about, err := sizing.About(workload, &r.ObjectMeta); !about || err != nil {
		return rollout.State{}, err
	}
	return r.state, nil
}

// owned reports whether the record is that of a workload. Nil is of none.
func (r *stored) owned(by target.Workload) bool {
	return r != nil && sizing.Owns(by, &r.ObjectMeta)
}
