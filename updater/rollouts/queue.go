// Package rollouts holds pods whose rollout forbids a change, stores the state of rollouts, and judges and reverts
// changes under a SizingPolicy.
//
// Queue watches the pods with a noted change. An event of such a pod wakes it, so that a revert follows a kill
// within the time of the kubelet and the API server. Otherwise it judges a change when its observation period ends.
// It needs no loop iterations, no heartbeat of the admission controller and no disruption budget, because a revert
// only grows a pod.
//
// rollout.Judge decides from the state of the pod and from the CPU metrics of Prometheus (EvidenceSource). The
// process may end at any moment: the harm is noted on the pod first, then the pod is resized, then the SizingRecord
// is written, and the note is removed last.
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
	maxPause   = time.Minute      // between failures
	stalePause = time.Second      // until a pod is looked at again that a cache did not show as it is
	again      = 30 * time.Second // until what nobody tells of is looked at again
	// workersPerNamespace judge pods of the same namespace at the same time.
	workersPerNamespace = 3
	// harmNoteTimeout bounds the patch that records the reason of a revert on its pod. Webhooks of other
	// programs may delay the patch, and the revert must not wait for them.
	harmNoteTimeout = 2 * time.Second
	// underWay is how long after a change was noted its pod may not show it yet.
	underWay = 30 * time.Second
	// forgotten is how old a note must be to be taken off while nobody knows what the policy
	// says: nothing would come of it any more.
	forgotten = 24 * time.Hour
)

// Reverter changes pods: actuate.Cluster, or actuate.DryRun.
type Reverter interface {
	// Note writes a change on its pod.
	Note(ctx context.Context, pod *corev1.Pod, note rollout.Change) error
	RemoveNote(ctx context.Context, pod *corev1.Pod) error
	// Revert resizes a pod to the sizes that its containers had before.
	Revert(ctx context.Context, pod *corev1.Pod, gets []policy.ContainerTarget) error
	// Judged says that a change did harm, or came to nothing, and what the pod got then.
	Judged(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, gets []policy.ContainerTarget)
	// RevertFailed reports a harmful change that is not reverted yet.
	RevertFailed(vpa *vpav1.VerticalPodAutoscaler, pod *corev1.Pod, v rollout.Verdict, err error)
}

// Queue judges changes and takes back those that did harm. Make it with NewQueue.
type Queue struct {
	QueueConfig
	queue    podqueue.Queue
	removals *removals

	measurer *measurer // nil: there is no Prometheus

	mu      sync.Mutex
	ended   map[types.UID]time.Time // of the change of a pod that has ended: when it was sent
	reverts map[types.UID]revertState
}

// revertState is a revert in progress. It outlives the evidence of the harm, which may disappear.
type revertState struct {
	changeAt time.Time // when the change was made
	verdict  rollout.Verdict
	since    time.Time // when the wait for the kubelet began
	reduced  bool      // limited to the resources that the harm is about, because the node is full

	reported        bool // the event about the completed revert is sent
	failureReported bool // the event about a failed request is sent
}

// QueueConfig configures a Queue. All fields but Prometheus must be set.
type QueueConfig struct {
	Reader    *snapshot.Reader
	Policies  *policies.Resolver
	Workloads *Reader
	Pods      corelisters.PodLister
	Records   *records.Store
	Executor  Reverter
	Metrics   Metrics
	// Remover removes invalid notes from pods. Its requests have their own rate. Nil: Executor.
	Remover interface {
		RemoveNote(ctx context.Context, pod *corev1.Pod) error
	}
	// Prometheus knows whether containers are throttled or wait for CPU; nil: nobody does.
	Prometheus *EvidenceSource
}

// NewQueue returns a queue.
func NewQueue(c QueueConfig) *Queue {
	q := &Queue{QueueConfig: c, queue: podqueue.New(maxPause), removals: newRemovals(), ended: map[types.UID]time.Time{}, reverts: map[types.UID]revertState{}}
	if q.Remover == nil {
		q.Remover = c.Executor
	}
	if c.Prometheus != nil {
		q.measurer = newMeasurer(c.Prometheus)
	}
	return q
}

// Watch makes the queue learn of observed pods from an informer.
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
	}, "The change of a pod is not judged yet")
	measuring.Wait()
}

// Sync does for one pod what is due at now, and returns when to look again; 0: when an event of
// the pod comes. An invalid note is removed at once.
func (q *Queue) Sync(ctx context.Context, name cache.ObjectName, now time.Time) (wait time.Duration, err error) {
	return q.sync(ctx, name, now, everything)
}

// duty is the part of Sync that a worker does. It leaves the other part to the other worker.
type duty int

const (
	everything duty = iota
	judging         // changes of pods
	removing        // notes that nothing follows from
)

// sync does the part of Sync that is the duty of the caller.
func (q *Queue) sync(ctx context.Context, name cache.ObjectName, now time.Time, d duty) (wait time.Duration, err error) {
	now = now.UTC().Truncate(time.Second)
	pod, err := q.Pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && (!convert.HasNotedChange(pod) || !q.Reader.Namespaces.Serves(name.Namespace)) {
		return 0, nil // of a pod that is gone the next pass takes notice
	}
	if err != nil {
		return 0, err
	}
	change, err := convert.NotedChange(pod)
	if err != nil {
		return q.drop(ctx, pod, time.Time{}, err, d)
	}
	if change.At.After(now.Add(longest)) || change.At.Before(pod.CreationTimestamp.Add(-longest)) {
		return q.drop(ctx, pod, change.At, fmt.Errorf("%s is no time of a change of this pod", change.At), d)
	}
	if q.done(pod.UID, change.At) {
		if now.Sub(change.At) > longest { // no cache is behind for so long: the note came back
			if d == judging {
				q.removals.queue.Add(name)
				return 0, nil
			}
			return longest, q.Remover.RemoveNote(client.Cleanup(ctx), pod)
		}
		return again, nil
	}
	vpa, found, err := q.Reader.Controlling(ctx, pod, true)
	if err != nil { // without the owner, the policy is unknown
		return 0, fmt.Errorf("find the policy of the pod: %w", err)
	}
	var of policies.Effective
	if found {
		of = q.Policies.Permitted(vpa.Object)
	}
	switch {
	case of.Policy != nil && of.Observed:
	case mayLift[of.Skip] && now.Sub(change.At) < forgotten:
		return again, nil
	default: // nobody is to change the pod any more
		return q.drop(ctx, pod, change.At, errUngoverned, d)
	}
	return q.judge(ctx, &observed{pod: pod, change: change, vpa: vpa, Effective: &of}, now, d)
}

// longest is by how much clocks, and caches, may be behind.
const longest = time.Hour

// errUnknown is why a note is dropped that is not of the updater: before it changes a pod, it stores that it does.
var errUnknown = errors.New("the SizingRecord of the workload knows of no change at that time")

// errUngoverned is why the note of a pod is dropped that no policy lets be changed any more.
var errUngoverned = errors.New("no policy lets the pod be changed and taken back any more")

// drop removes an invalid note from its pod. A note that reappears is not removed again at once.
func (q *Queue) drop(ctx context.Context, pod *corev1.Pod, at time.Time, why error, d duty) (wait time.Duration, err error) {
	if q.done(pod.UID, at) {
		return again, nil
	}
	if d == judging {
		q.removals.queue.Add(cache.MetaObjectToName(pod))
		return 0, nil
	}
	klog.FromContext(ctx).Info("The note of a change is taken off its pod, and nothing is judged", "pod", klog.KObj(pod), "reason", why)
	if err := q.Remover.RemoveNote(client.Cleanup(ctx), pod); err != nil {
		return 0, err
	}
	q.finish(pod.UID, at)
	return 0, nil
}

// mayLift are the reasons for which a policy holds its pods that may end soon: until then nothing is
// changed, and nothing forgotten.
var mayLift = map[reason.Reason]bool{reason.PolicyPaused: true, reason.PolicyUnknown: true, reason.NoRecord: true}

type observed struct {
	*policies.Effective
	pod    *corev1.Pod
	change rollout.Change
	vpa    snapshot.VPA
}

func (q *Queue) judge(ctx context.Context, o *observed, now time.Time, d duty) (wait time.Duration, err error) {
	state, err := q.Records.State(o.Workload)
	if err != nil {
		return 0, err
	}
	if age := now.Sub(o.change.At); !state.HadRoundAt(o.change.At) {
		name := cache.MetaObjectToName(o.pod)
		if age >= 0 && age < underWay { // it was noted, and is stored in a moment
			return min(q.removals.recheckAfter(name), underWay-age), nil
		}
		if d == judging { // nothing is requested for notes that may be forged
			q.removals.queue.Add(name)
			return q.removals.recheckAfter(name), nil
		}
		// The cache of records may be behind that of pods, as after a change of the leader.
		if state, err = q.Records.Reread(ctx, o.Workload); err != nil {
			return 0, err
		}
		if !state.HadRoundAt(o.change.At) {
			return q.drop(ctx, o.pod, o.change.At, errUnknown, d)
		}
	}
	if d == removing { // no pod is judged by two workers at once
		q.queue.Add(cache.MetaObjectToName(o.pod))
		return 0, nil
	}
	core := o.vpa.Pod(o.pod)
	if noted, changed := o.begun(&core, now); changed && !q.reverting(o) {
		if o.change.Pending && !noted.Pending {
			if _, err := q.Records.Update(ctx, o.Workload, func(s rollout.State) rollout.State { return s.Began(noted.At) }); err != nil {
				q.Metrics.RecordFailed()
				return 0, err
			}
		}
		return 0, q.Executor.Note(ctx, o.pod, noted) // the event of it comes back here
	}
	// Kills, restarts, readiness and the resize, from the pod and its node. Prometheus is asked below.
	seen := q.Workloads.Evidence(o.pod, &core, o.Workload.Key)
	verdict := rollout.Judge(o.change, seen, o.Safety, now)
	if verdict.Ask && q.measurer != nil {
		known, found := q.measurer.want(cache.MetaObjectToName(o.pod), changeOf{o.pod.UID, o.change.At})
		if !found {
			return again, nil
		}
		known.add(&seen, o.pod.Name, o.change)
		verdict = rollout.Judge(o.change, seen, o.Safety, now)
	}
	if !seen.Gone && !seen.Replaced {
		verdict = q.keepRevert(o, verdict)
	}
	if age := now.Sub(o.change.At); verdict.Outcome == rollout.Superseded && age >= 0 && age < underWay {
		return underWay - age, nil // it was noted, and the resize is on its way
	}
	var withdrawn []policy.ContainerTarget
	switch {
	case verdict.Outcome == "":
		return o.next(now), nil
	case verdict.Outcome == rollout.Reverted:
		wait, err := q.revert(ctx, o, &core, &verdict, now)
		if errors.Is(err, snapshot.ErrStale) {
			return stalePause, nil
		} else if err != nil {
			return 0, fmt.Errorf("the change did harm (%s) and is to be taken back, which is tried again: %w", verdict.Harm, err)
		} else if wait > 0 {
			return wait, q.store(ctx, o, verdict, now)
		}
	case verdict.Harm == rollout.InfeasibleResize:
		if withdrawn = allocated(&core); len(withdrawn) > 0 {
			if err := q.Executor.Revert(ctx, o.pod, withdrawn); err != nil {
				return 0, err
			}
		}
	}
	return 0, q.end(ctx, o, verdict, withdrawn, now)
}

func (q *Queue) store(ctx context.Context, o *observed, verdict rollout.Verdict, now time.Time) error {
	ending := rollout.Ending{UID: string(o.pod.UID), Change: o.change, Outcome: verdict.Outcome, Harm: verdict.Harm}
	if _, err := q.Records.Update(client.Urgent(ctx), o.Workload, func(s rollout.State) rollout.State { return s.End(ending, o.Settings, now) }); err != nil {
		q.Metrics.RecordFailed()
		return err
	}
	return nil
}

// end stores how the observation of a change ended, and takes its note off the pod. withdrawn is
// what the node was asked for no more, of a resize that it could not do.
func (q *Queue) end(ctx context.Context, o *observed, verdict rollout.Verdict, withdrawn []policy.ContainerTarget, now time.Time) error {
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

// begun returns what is to be noted when a node that had no room has none still, or has acted:
// then the observation begins.
func (o *observed) begun(core *disruption.Pod, now time.Time) (noted rollout.Change, changed bool) {
	deferred := core.Resize == disruption.ResizeDeferred
	acted := core.Resize == disruption.NotResizing && !core.Unanswered()
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

// next is when to look again: at the end of the period, when the shares of CPU are known, and then again and again.
func (o *observed) next(now time.Time) time.Duration {
	for _, ends := range []time.Duration{o.Safety.Period, o.change.Observed(o.Safety)} {
		if left := o.change.At.Add(ends).Sub(now); left > 0 && !o.change.Pending {
			return left
		}
	}
	return again
}

// done reports whether a change has ended, though a cache still shows its note.
func (q *Queue) done(uid types.UID, at time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ended, known := q.ended[uid]
	return known && ended.Equal(at)
}

// finish remembers that a change has ended, and forgets what was measured of its pod.
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

// maxEnded is how many ended changes are remembered. Caches lag behind only for moments.
const maxEnded = 1000
