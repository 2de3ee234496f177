package policies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	listers "loadline.dev/loadline/pkg/generated/listers/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/status"
)

// Records are the SizingRecords of the updater. Their definition or read permission may be missing.
type Records struct {
	informer cache.SharedIndexInformer
	lister   listers.SizingRecordLister
	synced   cache.InformerSynced
}

// WatchRecords must be called before the factory starts.
func WatchRecords(own externalversions.SharedInformerFactory) (*Records, error) {
	records := own.Loadline().V1alpha1().SizingRecords()
	r := &Records{informer: records.Informer(), lister: records.Lister()}
	if err := r.informer.SetTransform(trimRecord); err != nil {
		return nil, fmt.Errorf("trim SizingRecords: %w", err)
	}
	var err error
	if r.synced, err = client.OptionalSync(r.informer, "Cannot read SizingRecords, so the status of a SizingPolicy does not include results of its changes"); err != nil {
		return nil, fmt.Errorf("watch SizingRecords: %w", err)
	}
	return r, nil
}

// Synced returns the sync function, which also returns true if records cannot be read.
func (r *Records) Synced() map[string]cache.InformerSynced {
	return map[string]cache.InformerSynced{"sizingrecords": r.synced}
}

// Readable reports whether all records are known.
func (r *Records) Readable() bool { return r.informer.HasSynced() }

// trimRecord saves memory: a fleet has thousands of records with twenty rounds each.
func trimRecord(object any) (any, error) {
	r, ok := object.(*loadlinev1alpha1.SizingRecord)
	if !ok {
		return object, nil
	}
	s := &r.Status
	kept := &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, ResourceVersion: r.ResourceVersion},
		Status:     loadlinev1alpha1.SizingRecordStatus{Phase: s.Phase, CooldownUntil: s.CooldownUntil, Rounds: lastRounds(s.Rounds)},
	}
	if problem, unreadable := r.Annotations[vpav1.UnreadableAnnotation]; unreadable {
		kept.Annotations = map[string]string{vpav1.UnreadableAnnotation: problem}
	}
	for _, o := range r.OwnerReferences {
		kept.OwnerReferences = append(kept.OwnerReferences, metav1.OwnerReference{Kind: o.Kind, Name: o.Name, UID: o.UID})
	}
	for _, c := range s.Conditions {
		if c.Type != convert.ConditionScheduleBlocked {
			kept.Status.Conditions = append(kept.Status.Conditions, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	return kept, nil
}

// lastRounds returns the last changing and the last ended round of a list with the newest first.
func lastRounds(rounds []loadlinev1alpha1.Round) (last []loadlinev1alpha1.Round) {
	changed, ended := false, false
	for i := range rounds {
		r := &rounds[i]
		if changes, ends := r.Pods > 0 && !changed, r.Outcome != "" && !ended; changes || ends {
			last = append(last, loadlinev1alpha1.Round{Time: r.Time, LastChange: r.LastChange, Pods: r.Pods, Outcome: r.Outcome})
		}
		if changed, ended = changed || r.Pods > 0, ended || r.Outcome != ""; changed && ended {
			break
		}
	}
	return last
}

type history struct {
	phase      rollout.Phase
	lastChange time.Time // zero: none
	cooldown   time.Time // end of the cooldown
	reverted   bool      // the last ended round was reverted
	degraded   bool
	infeasible bool // a node can never hold the change of its pod
	unmeasured bool // throttling and pressure cannot be queried
}

// historyOf ignores the history of an earlier workload of the same name.
func (r *Records) historyOf(w *target.Workload) (h history) {
	name := sizing.RecordName(w.Key)
	record, err := r.lister.SizingRecords(name.Namespace).Get(name.Name)
	if err != nil {
		return h
	}
	s, err := sizing.ReadState(record, *w)
	if err != nil {
		return h
	}
	h = history{phase: s.Phase, cooldown: s.CooldownUntil, degraded: s.Degraded.Reason != "", unmeasured: s.EvidenceMissing.Reason != "", infeasible: strings.Contains(s.ResizeBlocked.Reason, "Infeasible")}
	if at := slices.IndexFunc(s.Rounds, func(r rollout.Round) bool { return r.Pods > 0 }); at >= 0 {
		h.lastChange = s.Rounds[at].Last
	}
	if at := slices.IndexFunc(s.Rounds, func(r rollout.Round) bool { return r.Outcome != "" }); at >= 0 {
		h.reverted = s.Rounds[at].Outcome == rollout.Reverted || s.Rounds[at].Outcome == rollout.RevertDeferred
	}
	return h
}

// requestTolerance is the fraction by which a request may differ from its recommendation and count
// as applied. Recommendations fluctuate, and the updater skips small differences.
const requestTolerance = 0.1

// requestSummary compares the requests of running pods with the recommendation.
type requestSummary struct {
	savings              rollout.Savings
	sized, differs       bool // some container matches, or differs
	deferred, infeasible bool // the resize of some pod waits for its node, or cannot fit

	targets map[string]resources.List // by container; nil: not read yet
}

// summarizeRequests scans the running pods once. Its result is in the order of the workloads.
func (k *Keeper) summarizeRequests(o *overview) ([]requestSummary, error) {
	all, index := make([]requestSummary, len(o.workloads)), map[target.Key]int{}
	for i := range o.workloads {
		w := &o.workloads[i]
		if vpa := w.vpa(); w.Policy != nil && k.isResponsible(w.Policy) && vpa != nil && status.Provided(vpa) {
			index[w.Key] = i
		}
	}
	if len(index) == 0 {
		return all, nil
	}
	err := client.EachPod(k.Pods, func(pod *corev1.Pod) {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return
		}
		if i, found := k.workloadOf(pod, index); found {
			all[i].add(pod, &o.workloads[i])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list cached pods: %w", err)
	}
	return all, nil
}

func (k *Keeper) workloadOf(pod *corev1.Pod, index map[target.Key]int) (i int, found bool) {
	for owner := range k.Workloads.PodOwnerChain(pod) {
		if i, found = index[owner]; found {
			return i, true
		}
	}
	return 0, false
}

func (u *requestSummary) add(pod *corev1.Pod, w *workload) {
	if u.targets == nil {
		u.targets = map[string]resources.List{}
		for name, bounds := range convert.Recommendation(w.vpa().Status.Recommendation) {
			u.targets[name] = bounds.Target
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if recommended := u.targets[c.Name]; !recommended.Empty() {
			u.compare(convert.UnboostedRequests(pod, c, w.vpa()), recommended)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			u.deferred = u.deferred || c.Reason == corev1.PodReasonDeferred
			u.infeasible = u.infeasible || c.Reason == corev1.PodReasonInfeasible
		}
	}
}

func (u *requestSummary) compare(requests, recommended resources.List) {
	u.savings = u.savings.Add(requests, recommended, 1)
	for k := range resources.Kind(resources.Kinds) {
		wanted, has := recommended.Get(k)
		if !has {
			continue
		}
		request := requests.Value(k)
		if least, most := wanted.Scale(1-requestTolerance), wanted.Scale(1+requestTolerance); least <= request && request <= most {
			u.sized = true
		} else {
			u.differs = true
		}
	}
}

func (u *requestSummary) applied() bool { return u.sized && !u.differs }

// change returns the change of requests in percent, the higher one of CPU and memory.
func (u *requestSummary) change() (most int) {
	for k := range resources.Kind(resources.Kinds) {
		changed := u.savings.Less.Value(k).Add(u.savings.More.Value(k))
		percent, _ := changed.Proportion(100, max(u.savings.Requested.Value(k), 1))
		most = max(most, int(percent))
	}
	return most
}
