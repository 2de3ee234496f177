package sizing

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	listers "loadline.dev/loadline/pkg/generated/listers/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// ErrUnknown means that SizingRecords cannot be read, so earlier changes are unknown.
var ErrUnknown = errors.New("SizingRecords cannot be read")

// RecordName returns the name of the SizingRecord of a workload.
func RecordName(key target.Key) cache.ObjectName {
	return cache.NewObjectName(key.Namespace, fleet.GeneratedVPAName(key.Kind, key.Group, key.Name))
}

// IsOwner reports whether a record belongs to the workload, not to an earlier one with its name.
func IsOwner(workload target.Workload, record *metav1.ObjectMeta) bool {
	return slices.ContainsFunc(record.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == workload.UID })
}

// ReadState returns the rollout state of a workload in its record. The state is empty if there is
// no record, or if it belongs to an earlier workload with the same name. A record without owner, as
// after a restore of a backup, counts for the workload. The error is ErrUnknown if the record
// cannot be read, or if it belongs to another workload of an unlisted kind. The cached workload of
// such a kind may be outdated, so it is unknown which of the two is gone.
func ReadState(record *loadlinev1alpha1.SizingRecord, workload target.Workload) (rollout.State, error) {
	if record == nil {
		return rollout.State{}, nil
	}
	if applies, err := AppliesTo(workload, &record.ObjectMeta); !applies || err != nil {
		return rollout.State{}, err
	}
	return convert.RolloutState(&record.Status), nil
}

// AppliesTo reports whether a record counts for a workload, with the rules of ReadState.
func AppliesTo(workload target.Workload, record *metav1.ObjectMeta) (bool, error) {
	switch {
	case IsOwner(workload, record) || !ownedByNamesake(record, workload):
	case fleet.Listed(workload.Key.Group, workload.Key.Kind):
		return false, nil
	default:
		return false, fmt.Errorf("%w: %s belongs to an earlier %s", ErrUnknown, cache.MetaObjectToName(record), workload.Key)
	}
	if problem := record.Annotations[vpav1.UnreadableAnnotation]; problem != "" {
		return false, fmt.Errorf("%w: %s: %s", ErrUnknown, cache.MetaObjectToName(record), problem)
	}
	return true, nil
}

func ownedByNamesake(record *metav1.ObjectMeta, workload target.Workload) bool {
	return slices.ContainsFunc(record.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == workload.Key.Kind && o.Name == workload.Key.Name && o.UID != workload.UID
	})
}

// NewPodSkipReason returns why new pods keep the resources of their template, from decision and rollout
// state. Empty: they may be sized, and for a user VPA its mode decides.
func NewPodSkipReason(d fleet.Decision, author fleet.VPAOrigin, s rollout.State) reason.Reason {
	current := d.Policy != nil && d.Policy.RolloutHash == s.Hash // else a new rollout begins
	why := d.NewPodSkipReason(author, current && s.Phase == rollout.PhaseFullRollout)
	if why == "" && author == fleet.GeneratedVPA && d.Mode == fleet.Canary && current && s.Phase == rollout.PhaseHalted {
		return reason.Halted
	}
	return why
}

// Records are the SizingRecords of the cluster, reduced to the fields for new pods, for programs
// that only read them. All methods are safe for concurrent use. A nil Records is unreadable.
type Records struct {
	lister listers.SizingRecordLister
	synced cache.InformerSynced
	ready  cache.InformerSynced // the cache is synced, or records cannot be read
}

// WatchRecords must be called before the factory starts.
func WatchRecords(vpas externalversions.SharedInformerFactory) (*Records, error) {
	records := vpas.Loadline().V1alpha1().SizingRecords()
	informer := records.Informer()
	known, err := client.OptionalSync(informer, "SizingRecords cannot be read, so new pods keep the resources of their template under a SizingPolicy that changes pods, unless they have a user VPA")
	if err = errors.Join(err, informer.SetTransform(trimRecord)); err != nil {
		return nil, fmt.Errorf("watch SizingRecords: %w", err)
	}
	return &Records{lister: records.Lister(), synced: informer.HasSynced, ready: known}, nil
}

// Settled reports whether waiting cannot improve State: records are loaded or unreadable, or r is nil.
func (r *Records) Settled() bool { return r == nil || r.ready() }

// State returns the rollout state for new pods, or ErrUnknown if records cannot be read.
func (r *Records) State(workload target.Workload) (rollout.State, error) {
	if r == nil || !r.synced() {
		return rollout.State{}, ErrUnknown
	}
	name := RecordName(workload.Key)
	record, err := r.lister.SizingRecords(name.Namespace).Get(name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return rollout.State{}, nil
	case err != nil:
		return rollout.State{}, fmt.Errorf("read SizingRecord %s: %w", name, err)
	}
	return ReadState(record, workload)
}

// trimRecord is a cache.TransformFunc that keeps the fields for new pods. It drops rounds and
// canary members, and keeps the proven resources only if other resources were reverted.
func trimRecord(object any) (any, error) {
	r, ok := object.(*loadlinev1alpha1.SizingRecord)
	if !ok {
		return object, nil
	}
	kept := &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion, OwnerReferences: r.OwnerReferences},
		Status:     loadlinev1alpha1.SizingRecordStatus{Mode: r.Status.Mode, Phase: r.Status.Phase, PolicyHash: r.Status.PolicyHash, Reverted: r.Status.Reverted},
	}
	if len(r.Status.Reverted) > 0 {
		kept.Status.Kept = r.Status.Kept
	}
	if problem, unreadable := r.Annotations[vpav1.UnreadableAnnotation]; unreadable {
		kept.Annotations = map[string]string{vpav1.UnreadableAnnotation: problem}
	}
	return kept, nil
}
