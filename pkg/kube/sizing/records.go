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

// ErrUnknown says that SizingRecords cannot be read, so nobody knows what was done before.
var ErrUnknown = errors.New("SizingRecords cannot be read")

// RecordName returns the name of the SizingRecord of a workload.
func RecordName(of target.Key) cache.ObjectName {
	return cache.NewObjectName(of.Namespace, fleet.MadeName(of.Kind, of.Group, of.Name))
}

// Owns reports whether a record is that of the workload, and not of one that had its name before.
func Owns(of target.Workload, record *metav1.ObjectMeta) bool {
	return slices.ContainsFunc(record.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == of.UID })
}

// Remembered returns what a record says of a workload: nothing, if there is none, or if it is of a workload that had
// the name before. One without owner, as after a restore of a backup, is taken for that of the workload. It is
// ErrUnknown if the record cannot be read, or if it is another's and nobody knows which of the two is gone: of kinds
// that are not listed one hears late that a workload was replaced.
func Remembered(record *loadlinev1alpha1.SizingRecord, of target.Workload) (rollout.State, error) {
	if record == nil {
		return rollout.State{}, nil
	}
	if about, err := About(of, &record.ObjectMeta); !about || err != nil {
		return rollout.State{}, err
	}
	return convert.RolloutState(&record.Status), nil
}

// About reports, as Remembered does, whether a record says something of a workload.
func About(of target.Workload, record *metav1.ObjectMeta) (bool, error) {
	switch {
	case Owns(of, record) || !ownedByNamesake(record, of):
	case fleet.Listed(of.Key.Group, of.Key.Kind):
		return false, nil
	default:
		return false, fmt.Errorf("%w: %s is that of another %s", ErrUnknown, cache.MetaObjectToName(record), of.Key)
	}
	if problem := record.Annotations[vpav1.UnreadableAnnotation]; problem != "" {
		return false, fmt.Errorf("%w: %s: %s", ErrUnknown, cache.MetaObjectToName(record), problem)
	}
	return true, nil
}

func ownedByNamesake(record *metav1.ObjectMeta, of target.Workload) bool {
	return slices.ContainsFunc(record.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == of.Key.Kind && o.Name == of.Key.Name && o.UID != of.UID
	})
}

// NewPods says why new pods of a workload stay as they are written, from what a policy says and what is remembered of
// its rollout; empty: they do not, as far as the mode of a person's VPA goes.
func NewPods(d fleet.Decision, by fleet.Author, s rollout.State) reason.Reason {
	current := d.Policy != nil && d.Policy.RolloutHash == s.Hash // else the rollout begins anew
	why := d.NewPods(by, current && s.Phase == rollout.PhaseFullRollout)
	if why == "" && by == fleet.Loadline && d.Mode == fleet.Canary && current && s.Phase == rollout.PhaseHalted {
		return reason.Halted
	}
	return why
}

// Records are the SizingRecords of the cluster, for programs that only read what is to be known
// about new pods. All methods are safe for concurrent use. Those of a nil Records cannot be read.
type Records struct {
	lister listers.SizingRecordLister
	synced cache.InformerSynced
	known  cache.InformerSynced // whether they can be read
}

// WatchRecords returns the records. It must be called before the factory starts.
func WatchRecords(vpas externalversions.SharedInformerFactory) (*Records, error) {
	records := vpas.Loadline().V1alpha1().SizingRecords()
	informer := records.Informer()
	known, err := client.OptionalSync(informer, "SizingRecords cannot be read, so new pods stay as they are written under a SizingPolicy that changes pods, where no person wrote a VPA")
	if err = errors.Join(err, informer.SetTransform(forNewPods)); err != nil {
		return nil, fmt.Errorf("watch SizingRecords: %w", err)
	}
	return &Records{lister: records.Lister(), synced: informer.HasSynced, known: known}, nil
}

// Synced reports whether it is known what there is, or that it cannot be read, as of nil Records.
func (r *Records) Synced() bool { return r == nil || r.known() }

// State returns what is remembered of a workload, as far as new pods go. It is ErrUnknown if records cannot be read.
func (r *Records) State(of target.Workload) (rollout.State, error) {
	if r == nil || !r.synced() {
		return rollout.State{}, ErrUnknown
	}
	name := RecordName(of.Key)
	record, err := r.lister.SizingRecords(name.Namespace).Get(name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return rollout.State{}, nil
	case err != nil:
		return rollout.State{}, fmt.Errorf("read SizingRecord %s: %w", name, err)
	}
	return Remembered(record, of)
}

// forNewPods is a cache.TransformFunc that keeps of a record what decides about new pods:
// neither rounds nor members, and the sizes that did well only where others did harm.
func forNewPods(object any) (any, error) {
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
