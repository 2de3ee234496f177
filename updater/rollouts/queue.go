// Package rollouts holds pods that must not change during a rollout, stores rollout states, and
// judges and reverts changes under a SizingPolicy.
//
// Queue watches the pods with a noted change. A pod event triggers it, so that a revert follows a
// kill within the latency of the kubelet and the API server. Otherwise it judges a change at the
// end of its observation period. It depends on no loop iteration, no heartbeat of the admission
// controller and no disruption budget, because a revert only grows a pod.
//
// rollout.Judge decides from the state of the pod and the CPU metrics of Prometheus
// (EvidenceSource). The order of writes survives a crash at any moment: the harm is noted on the
// pod, the pod is resized, the SizingRecord is written, and the note is removed.
package rollouts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/updater/podqueue"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/records"
	"loadline.dev/loadline/updater/snapshot"
)

const (
	maxRetryDelay       = time.Minute      // maximum retry delay after failures
	staleRetryDelay     = time.Second      // retry delay after a stale cache read
	recheckInterval     = 30 * time.Second // interval for conditions without events
	workersPerNamespace = 3
	// harmNoteTimeout bounds the patch that notes the reason of a revert on its pod. Webhooks of
	// other components may delay the patch, and the revert must not wait for it.
	harmNoteTimeout = 2 * time.Second
	// resizeGracePeriod is how long a pod may not show a noted change yet.
	resizeGracePeriod = 30 * time.Second
	// maxNoteAge is the age at which a note is removed while its policy is unknown.
	maxNoteAge = 24 * time.Hour
)

// Reverter changes pods. Implementations are actuate.Cluster (note.go) and actuate.DryRun.
type Reverter interface {
	Note(ctx context.Context, pod *corev1.Pod, note rollout.Change) error
	RemoveNote(ctx context.Context, pod *corev1.Pod) error
	Revert(ctx context.Context, pod *corev1.Pod, gets []policy.ContainerTarget) error
	// Judged reports a change that did harm or failed, and the resources that the pod got instead.
	Judged(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget)
	RevertFailed(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, err error)
}

// Queue judges changes and reverts harmful ones. Use NewQueue to create one.
type Queue struct {
	QueueConfig
	queue    podqueue.Queue
	removals *removals

	measurer *measurer

	mu      sync.Mutex
	ended   map[types.UID]time.Time // by UID of a pod with a finished change: time of the change
	reverts map[types.UID]revertState
}

// revertState is a revert in progress. It is kept even if the evidence of the harm disappears.
type revertState struct {
	changeAt time.Time
	verdict  rollout.Verdict
	since    time.Time // start of the wait for the kubelet
	reduced  bool      // the node is full, so only resources related to the harm are restored

	reported        bool // the event about the completed revert was sent
	failureReported bool // the event about a failed request was sent
}

// QueueConfig configures a Queue. Only Prometheus and Remover are optional.
type QueueConfig struct {
	Reader   *snapshot.Reader
	Policies *policies.Resolver
	Facts    *Facts
	Pods     corelisters.PodLister
	Records  *records.Store
	Executor Reverter
	Metrics  Metrics
	// Remover removes invalid notes at a separate rate limit. Nil: Executor.
	Remover interface {
		RemoveNote(ctx context.Context, pod *corev1.Pod) error
	}
	// Prometheus is the source of CPU pressure. Nil: CPU pressure is not evaluated.
	Prometheus *EvidenceSource
}

// NewQueue returns a queue.
func NewQueue(c QueueConfig) *Queue {
	q := &Queue{QueueConfig: c, queue: podqueue.New(maxRetryDelay), removals: newRemovals(), ended: map[types.UID]time.Time{}, reverts: map[types.UID]revertState{}}
	if q.Remover == nil {
		q.Remover = c.Executor
	}
	if c.Prometheus != nil {
		q.measurer = newMeasurer(c.Prometheus)
	}
	return q
}

// Watch adds observed pods from an informer to the queue.
func (q *Queue) Watch(pods cache.SharedIndexInformer) error {
	add := func(object any) {
		if pod, ok := client.PodOf(object); ok && convert.HasNotedChange(pod) {
			q.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, pod any) { add(pod) }})
	if err != nil {
		return fmt.Errorf("watch observed pods: %w", err)
	}
	return nil
}

// Run serves the queue until ctx ends.
func (q *Queue) Run(ctx context.Context) {
	var measuring sync.WaitGroup
	if q.measurer != nil {
		measuring.Go(func() { q.measurer.run(ctx, q.queue.Add, q.Metrics.EvidenceMissing) })
	}
	measuring.Go(func() {
		podqueue.Serve(ctx, q.removals.queue, 1, q.remove, "Failed to remove the note of a change from its pod, trying again")
	})
	podqueue.Serve(ctx, q.queue, workersPerNamespace, func(ctx context.Context, pod cache.ObjectName, now time.Time) (time.Duration, error) {
		return q.sync(ctx, pod, now, judging)
	}, "Failed to judge the change of a pod, trying again")
	measuring.Wait()
}

// Sync processes one pod at now. It returns when to check it again, or 0 to wait for a pod event.
func (q *Queue) Sync(ctx context.Context, name cache.ObjectName, now time.Time) (wait time.Duration, err error) {
	return q.sync(ctx, name, now, everything)
}

// duty is the part of Sync for one type of worker. The rest is handed to the other worker.
type duty int

const (
	everything duty = iota
	judging
	removing
)

func (q *Queue) sync(ctx context.Context, name cache.ObjectName, now time.Time, d duty) (wait time.Duration, err error) {
	now = now.UTC().Truncate(time.Second)
	pod, err := q.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (!convert.HasNotedChange(pod) || !q.Reader.Namespaces.Includes(name.Namespace)) {
		return 0, nil // the next iteration handles a deleted pod
	}
	if err != nil {
		return 0, err
	}
	change, err := convert.ParseChange(pod)
	if err != nil {
		return q.drop(ctx, pod, time.Time{}, err, d)
	}
	if change.At.After(now.Add(maxClockSkew)) || change.At.Before(pod.CreationTimestamp.Add(-maxClockSkew)) {
		return q.drop(ctx, pod, change.At, fmt.Errorf("change time %s is out of range for this pod", change.At), d)
	}
	if q.isFinished(pod.UID, change.At) {
		if now.Sub(change.At) > maxClockSkew { // no cache is stale for so long, so the note was written again
			if d == judging {
				q.removals.queue.Add(name)
				return 0, nil
			}
			return maxClockSkew, q.Remover.RemoveNote(client.Cleanup(ctx), pod)
		}
		return recheckInterval, nil
	}
	vpa, found, err := q.Reader.Controlling(ctx, pod, true)
	if err != nil { // the policy depends on the owner
		return 0, fmt.Errorf("find the policy of the pod: %w", err)
	}
	var of policies.Effective
	if found {
		of = q.Policies.Permitted(vpa.Object)
	}
	switch {
	case of.Policy != nil && of.Observed:
	case temporarySkips[of.Skip] && now.Sub(change.At) < maxNoteAge:
		return recheckInterval, nil
	default: // no policy allows changes of the pod any more
		return q.drop(ctx, pod, change.At, errNoPolicy, d)
	}
	return q.judge(ctx, &observedPod{pod: pod, change: change, vpa: vpa, Effective: &of}, now, d)
}

// maxClockSkew bounds the skew of clocks and the staleness of caches.
const maxClockSkew = time.Hour

// errUnrecorded drops a note: each change is recorded before the pod changes.
var errUnrecorded = errors.New("the SizingRecord of the workload has no change at this time")

var errNoPolicy = errors.New("no policy allows changes and reverts of the pod")

// drop removes an invalid note from its pod. A note that reappears is not removed again at once.
func (q *Queue) drop(ctx context.Context, pod *corev1.Pod, at time.Time, why error, d duty) (wait time.Duration, err error) {
	if q.isFinished(pod.UID, at) {
		return recheckInterval, nil
	}
	if d == judging {
		q.removals.queue.Add(cache.MetaObjectToName(pod))
		return 0, nil
	}
	klog.FromContext(ctx).Info("Removing the invalid note of a change from its pod", "pod", klog.KObj(pod), "reason", why)
	if err := q.Remover.RemoveNote(client.Cleanup(ctx), pod); err != nil {
		return 0, err
	}
	q.finish(pod.UID, at)
	return 0, nil
}

// temporarySkips may end soon, so the pod and its note stay unchanged.
var temporarySkips = map[reason.Reason]bool{reason.PolicyPaused: true, reason.PolicyUnknown: true, reason.NoRecord: true}

type observedPod struct {
	*policies.Effective
	pod    *corev1.Pod
	change rollout.Change
	vpa    snapshot.VPA
}

func (q *Queue) judge(ctx context.Context, o *observedPod, now time.Time, d duty) (wait time.Duration, err error) {
	if genuine, wait, err := q.checkRound(ctx, o, now, d); !genuine || err != nil {
		return wait, err
	}
	if d == removing { // only the judging worker judges
		q.queue.Add(cache.MetaObjectToName(o.pod))
		return 0, nil
	}
	core := o.vpa.Pod(o.pod)
	if noted, changed := o.updatedNote(&core, now); changed && !q.reverting(o) {
		return 0, q.renewNote(ctx, o, noted) // the resulting pod event triggers the next sync
	}
	verdict, measuring := q.verdict(o, &core, now)
	if measuring {
		return recheckInterval, nil
	}
	if age := now.Sub(o.change.At); verdict.Outcome == rollout.Superseded && age >= 0 && age < resizeGracePeriod {
		return resizeGracePeriod - age, nil // noted, but not resized yet
	}
	var withdrawn []policy.ContainerTarget
	switch {
	case verdict.Outcome == "":
		return o.nextCheck(now), nil
	case verdict.Outcome == rollout.Reverted:
		wait, err := q.revert(ctx, o, &core, &verdict, now)
		if errors.Is(err, snapshot.ErrStale) {
			return staleRetryDelay, nil
		} else if err != nil {
			return 0, fmt.Errorf("revert harmful change (%s): %w", verdict.Harm, err)
		} else if wait > 0 {
			return wait, q.store(ctx, o, verdict, now) // before it is complete, so that no other pod changes
		}
	case verdict.Harm == rollout.InfeasibleResize:
		if withdrawn = allocatedDifferences(&core); len(withdrawn) > 0 {
			if err := q.Executor.Revert(ctx, o.pod, withdrawn); err != nil {
				return 0, err
			}
		}
	}
	return 0, q.end(ctx, o, verdict, withdrawn, now)
}

func (q *Queue) renewNote(ctx context.Context, o *observedPod, noted rollout.Change) error {
	if o.change.Pending && !noted.Pending {
		if _, err := q.Records.Update(ctx, o.Workload, func(s rollout.State) rollout.State { return s.RecordResizeStart(noted.At) }); err != nil {
			q.Metrics.RecordFailed()
			return err
		}
	}
	return q.Executor.Note(ctx, o.pod, noted)
}

// checkRound reports whether the SizingRecord has a round for the note of the pod. If not, the note
// is checked again after wait, or dropped.
func (q *Queue) checkRound(ctx context.Context, o *observedPod, now time.Time, d duty) (genuine bool, wait time.Duration, err error) {
	state, err := q.Records.State(o.Workload)
	if err != nil || state.HadRoundAt(o.change.At) {
		return err == nil, 0, err
	}
	name := cache.MetaObjectToName(o.pod)
	if age := now.Sub(o.change.At); age >= 0 && age < resizeGracePeriod { // noted, but not recorded yet
		return false, min(q.removals.recheckAfter(name), resizeGracePeriod-age), nil
	}
	if d == judging { // notes may be forged, so they cause no API request here
		q.removals.queue.Add(name)
		return false, q.removals.recheckAfter(name), nil
	}
	// The record cache may be behind the pod cache, for example after a leader change.
	if state, err = q.Records.Reread(ctx, o.Workload); err != nil {
		return false, 0, err
	}
	if !state.HadRoundAt(o.change.At) {
		wait, err = q.drop(ctx, o.pod, o.change.At, errUnrecorded, d)
		return false, wait, err
	}
	return true, 0, nil
}

// verdict judges a change by its pod and node, and by Prometheus if needed. It reports whether the
// metrics are still being read.
func (q *Queue) verdict(o *observedPod, core *disruption.Pod, now time.Time) (verdict rollout.Verdict, measuring bool) {
	seen := q.Facts.Evidence(o.pod, core, o.Workload.Key)
	verdict = rollout.Judge(o.change, seen, o.Safety, now)
	if verdict.NeedsMetrics && q.measurer != nil {
		known, found := q.measurer.request(cache.MetaObjectToName(o.pod), changeKey{o.pod.UID, o.change.At})
		if !found {
			return verdict, true
		}
		known.add(&seen, o.pod.Name, o.change)
		verdict = rollout.Judge(o.change, seen, o.Safety, now)
	}
	if !seen.Gone && !seen.Replaced {
		verdict = q.keepRevert(o, verdict)
	}
	return verdict, false
}

func (q *Queue) store(ctx context.Context, o *observedPod, verdict rollout.Verdict, now time.Time) error {
	ending := rollout.ObservationEnd{UID: string(o.pod.UID), Change: o.change, Outcome: verdict.Outcome, Harm: verdict.Harm}
	if _, err := q.Records.Update(client.Urgent(ctx), o.Workload, func(s rollout.State) rollout.State { return s.EndObservation(ending, o.Settings, now) }); err != nil {
		q.Metrics.RecordFailed()
		return err
	}
	return nil
}

// end takes withdrawn, the resources restored after an infeasible resize.
func (q *Queue) end(ctx context.Context, o *observedPod, verdict rollout.Verdict, withdrawn []policy.ContainerTarget, now time.Time) error {
	klog.FromContext(ctx).V(2).Info("Change of a pod judged", "pod", klog.KObj(o.pod), "vpa", o.vpa.Object.Name, "outcome", verdict.Outcome, "reason", verdict.Harm, "age", now.Sub(o.change.At))
	if err := q.store(ctx, o, verdict, now); err != nil {
		return err
	}
	if verdict.Outcome == rollout.Failed {
		q.Executor.Judged(o.vpa.Object, o.pod, verdict, withdrawn)
	}
	if err := q.Executor.RemoveNote(ctx, o.pod); err != nil {
		return err
	}
	q.finish(o.pod.UID, o.change.At)
	return nil
}

// updatedNote returns the note after a change of the resize state. A deferred resize becomes
// pending. When the node acts on a pending resize, its observation begins.
func (o *observedPod) updatedNote(core *disruption.Pod, now time.Time) (noted rollout.Change, changed bool) {
	deferred := core.Resize == disruption.ResizeDeferred
	acted := core.Resize == disruption.NotResizing && !core.ResizeUnreported()
	noted = o.change
	switch {
	case deferred && !o.change.Pending:
		noted.Pending = true
	case o.change.Pending && acted:
		noted.Pending, noted.At = false, now
	default:
		return noted, false
	}
	return noted, true
}

// nextCheck returns the time until the end of the next observation period, then a fixed interval.
func (o *observedPod) nextCheck(now time.Time) time.Duration {
	for _, ends := range []time.Duration{o.Safety.Period, o.change.ObservationTime(o.Safety)} {
		if left := o.change.At.Add(ends).Sub(now); left > 0 && !o.change.Pending {
			return left
		}
	}
	return recheckInterval
}

// isFinished reports whether a change has ended while a cache may still show its note.
func (q *Queue) isFinished(uid types.UID, at time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ended, known := q.ended[uid]
	return known && ended.Equal(at)
}

func (q *Queue) finish(uid types.UID, at time.Time) {
	if q.measurer != nil {
		q.measurer.forget(uid)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.reverts, uid)
	if len(q.ended) >= maxEnded {
		clear(q.ended)
	}
	q.ended[uid] = at
}

// maxEnded bounds the number of finished changes in memory. Caches are stale only for moments.
const maxEnded = 1000
