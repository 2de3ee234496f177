package recommender

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/pkg/source/prometheus"
	"loadline.dev/loadline/recommender/backfill"
	"loadline.dev/loadline/recommender/checkpoints"
	"loadline.dev/loadline/recommender/model"
	"loadline.dev/loadline/recommender/policies"
	"loadline.dev/loadline/recommender/recommend"
)

// Loop turns usage into recommendations. Its fields are set once. RunOnce must not overlap itself.
type Loop struct {
	Config  *Config
	Metrics *metrics
	Health  *serving.Health // ticks during long steps

	Roster   *model.Roster
	Policies *sizing.Policies // nil: no policies
	Changes  *model.Changes

	Store        *usage.Store
	Model        *model.Model
	Sketches     *recommend.SketchKeeper
	Ingester     *Ingester
	Ambiguities  *prometheus.AmbiguousContainers // of the usage sources, nil: none
	Advisor      *recommend.Advisor
	Publisher    *recommend.Publisher
	Checkpoints  *checkpoints.Maintainer
	Backfill     *backfill.Loader     // from Prometheus, nil: history is in checkpoints
	LateBackfill *backfill.LateLoader // for VPAs that Backfill does not cover
	Restored     checkpoint.History   // for VPAs and pods of the first iteration

	loader     *checkpoint.Loader        // nil: history is in Prometheus
	loadedVPAs map[checkpoint.Owner]bool // VPAs whose checkpoints were read at startup

	restoring    map[string]*pendingRestore // by namespace
	lastRestored string                     // namespace of the last page

	podless map[*model.VPA]podless // VPAs whose selectors match no pods

	removed         map[cache.ObjectName]struct{} // pods deleted since the last iteration
	firstIteration  time.Time                     // time of the first iteration
	iterationStart  time.Time                     // wall-clock time of the last iteration
	lastCollection  time.Time                     // last clean-up of histories
	historyComplete bool                          // all history was loaded in the last iteration
}

// RunOnce runs one iteration: read changes, add usage, publish, save. A panic in the work on one
// VPA, pod or sample does not stop the others.
func (l *Loop) RunOnce(ctx context.Context, now time.Time) {
	l.iterationStart = time.Now()
	defer l.Metrics.observeStep(stepTotal, l.iterationStart)
	if l.firstIteration.IsZero() {
		l.firstIteration = now
	}
	l.step(stepVPAs, func() { l.loadVPAs(ctx, now, min(max(l.timeBudget()/4, minRestoreTime), maxRestoreTime)) })
	l.step(stepPods, func() { l.Model.Change(func() { l.loadPods(now) }); l.recheckTargets(now) })
	l.step(stepMetrics, func() { l.addUsage(ctx, now) })
	l.step(stepRemoved, func() { l.Model.Change(l.deleteRemovedPods) })
	l.step(stepUpdate, func() { l.publish(ctx, now) })
	l.step(stepCheckpoints, func() { l.maintainCheckpoints(ctx, now) })
	l.step(stepCollect, func() { l.Model.Change(func() { l.garbageCollect(now) }) })
}

func (l *Loop) step(name string, do func()) {
	defer l.Metrics.observeStep(name, time.Now())
	defer model.NewGuard(name, l.Metrics.panics).Recover(nil)
	do()
}

// HandleOOMs stores waiting kills and publishes their effect. serving.RunEvery calls it one second
// after KillQueue.Wake, but at least five seconds after the last call. New VPAs and changed pods are
// read first, so that their containers exist. Deleted pods stay until the next iteration, which may
// bring their last samples. Before the first iteration, for example after a leader change, it runs
// RunOnce instead.
func (l *Loop) HandleOOMs(ctx context.Context, now time.Time) {
	if l.firstIteration.IsZero() {
		l.RunOnce(ctx, now)
		return
	}
	began := time.Now()
	defer model.NewGuard("HandleOOMs", l.Metrics.panics).Recover(nil)
	if l.Roster.HasUnknown(l.Model) {
		l.loadVPAs(ctx, now, killRestoreTime)
	}
	l.Model.Change(func() { l.loadPods(now) })
	l.Ingester.StoreKills(klog.FromContext(ctx), now)
	l.Model.Change(l.Sketches.UpdateLimits)
	l.Publisher.PublishChanged(ctx, l.Model.VPAs(), now, l.timeBudget())
	l.Checkpoints.Save(ctx, l.Checkpoints.RemainingScope(), now, l.timeBudget())
	klog.FromContext(ctx).V(4).Info("Reacted to out-of-memory kills", "duration", time.Since(began))
}

// Close saves unsaved changes before the program ends.
func (l *Loop) Close(ctx context.Context, now time.Time) {
	if l.firstIteration.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	defer model.NewGuard("Close", l.Metrics.panics).Recover(nil)
	l.Checkpoints.Save(ctx, checkpoints.All, now, closeTime)
}

const closeTime = 5 * time.Second

// loadVPAs syncs the model with the served VPAs, and reads new checkpoints for at most restoreTime.
func (l *Loop) loadVPAs(ctx context.Context, now time.Time, restoreTime time.Duration) {
	log := klog.FromContext(ctx)
	observed, err := l.Roster.Observe(ctx, l.Health)
	if err != nil {
		log.Error(err, "Failed to list VPAs, using the VPAs of the last iteration")
		return
	}
	model.LogTargetErrors(log, l.Model, observed)
	observed = l.restoreLate(ctx, observed, now, restoreTime)
	l.Model.Change(func() { l.syncVPAs(log, observed, now) })
}

func (l *Loop) syncVPAs(log klog.Logger, observed []model.Observed, now time.Time) {
	fresh, ahead := l.Model.SyncVPAs(observed, now), l.Config.Aggregation.Ahead(true).Sample
	if l.Policies != nil {
		policies.Follow(l.Policies, l.Model)
	}
	l.Sketches.Follow(log, now)
	for _, v := range fresh {
		owner := checkpoint.Owner{Namespace: v.Object.Namespace, VPA: v.Object.Name}
		l.dropForeignHistory(log, v, owner)
		v.Restored = l.Restored.Profiles(owner)
		if err := l.Sketches.Restore(v, l.Restored.Sketches(owner), now, ahead); err != nil {
			l.Metrics.checkpoints.WithLabelValues("mended").Inc()
			log.Error(err, "Using only part of a checkpoint", "vpa", klog.KObj(v.Object))
		}
		if l.Restored[owner] == nil {
			l.inheritHistory(log, v, now, ahead)
		}
		recommend.NoteUntrusted(v, l.Restored[owner])
		v.Invalidate()
		l.Publisher.AddVPA(v, now)
	}
}

// inheritHistory gives a user VPA the history of the generated VPA with the same target.
func (l *Loop) inheritHistory(log klog.Logger, v *model.VPA, now time.Time, ahead time.Duration) {
	generated := l.Model.Find(v.Object.Namespace, convert.GeneratedName(v.Object))
	if generated == nil || generated == v || !convert.IsGenerated(generated.Object) || !generated.SameTarget(v) {
		return
	}
	v.Restored = maps.Clone(generated.Restored) // restored profiles do not change
	v.Backfill = generated.Backfill
	images := make(map[string][]byte, len(generated.Sketches))
	for container, sketch := range generated.Sketches {
		images[container] = sketch.Image()
	}
	if err := l.Sketches.Restore(v, images, now, ahead); err != nil {
		log.Error(err, "Failed to pass all history of a generated VPA to the user VPA of the same workload", "vpa", klog.KObj(v.Object), "from", klog.KObj(generated.Object))
	}
}

// dropForeignHistory drops loaded history of another target. Without other history, the status
// belongs to that target too.
func (l *Loop) dropForeignHistory(log klog.Logger, v *model.VPA, owner checkpoint.Owner) {
	foreign := l.Restored.RemoveForeign(owner, v.Target())
	if len(foreign) == 0 {
		return
	}
	log.Info("Target of VPA changed, discarding the history of the previous target", "vpa", klog.KObj(v.Object),
		"target", v.Target().String(), "unused", fmt.Sprint(foreign))
	l.Metrics.checkpoints.WithLabelValues("foreign").Add(float64(len(foreign)))
	l.Checkpoints.Saver.MarkForeign(owner, foreign)
	v.Retargeted = v.Retargeted || l.Restored[owner] == nil
}

// loadPods applies pod changes and hands loaded history to the pods. Checkpoint history that is not
// taken in the first iteration is dropped.
func (l *Loop) loadPods(now time.Time) {
	for _, change := range l.Changes.Drain() {
		l.applyPod(change, now)
	}
	if l.Backfill != nil {
		l.Backfill.Absorb(l.Model, l.Store, l.Sketches, l.Metrics.history, now)
		l.LateBackfill.Absorb(l.Model, l.Store, l.Sketches, now)
		l.Metrics.history.SetPending(l.LateBackfill.Request(l.Model, now))
	}
	model.ResumeWindows(l.Restored, l.Store, l.Model)
	l.Restored, l.loadedVPAs = nil, nil
}

// applyPod recovers panics, because drained changes come only once and the others must not be lost.
func (l *Loop) applyPod(change model.Change, now time.Time) {
	defer model.NewGuard(stepPods, l.Metrics.panics).Recover(nil)
	pod := change.Pod()
	if pod == nil {
		l.removed[change.Name] = struct{}{}
		return
	}
	delete(l.removed, change.Name)
	countSources(l.Metrics.resources, pod)
	l.Model.PutPod(pod, now)
}

func (l *Loop) addUsage(ctx context.Context, now time.Time) {
	l.Ingester.RunOnce(ctx, now)
	l.Model.MarkAmbiguous(l.Ambiguities.Each)
	l.Metrics.series.Set(float64(l.Store.Len()))
}

// deleteRemovedPods runs after the last samples and kills of these pods are stored.
func (l *Loop) deleteRemovedPods() {
	names := slices.SortedFunc(maps.Keys(l.removed), func(a, b cache.ObjectName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, name := range names {
		l.removePod(name)
	}
	clear(l.removed)
	l.Sketches.UpdateLimits()
}

func (l *Loop) removePod(name cache.ObjectName) {
	defer model.NewGuard(stepRemoved, l.Metrics.panics).Recover(nil)
	l.Model.RemovePod(name.Namespace, name.Name)
}

const collectInterval = time.Hour

func (l *Loop) garbageCollect(now time.Time) {
	if since := now.Sub(l.lastCollection); !l.lastCollection.IsZero() && 0 <= since && since < collectInterval {
		return
	}
	l.lastCollection = now
	l.Model.Expire(now)
	l.Model.ExpireRestored(now, l.firstIteration)
	l.Sketches.Expire(l.Store.CredibleTime(now))
}

func (l *Loop) publish(ctx context.Context, now time.Time) {
	if complete := l.Metrics.history.Complete(); complete != l.historyComplete {
		l.historyComplete = complete
		for _, v := range l.Model.VPAs() {
			v.Invalidate() // held targets may be released
		}
	}
	if left := l.Publisher.Publish(ctx, l.Model.VPAs(), now, l.timeBudget()*2/3); left > 0 {
		klog.FromContext(ctx).Info("Time limit reached, publishing the remaining VPAs first in the next iteration", "vpas", left)
	}
	recommend.CountByHistory(l.Metrics.depth, l.Model.VPAs())
	recommend.CountRising(l.Metrics.rising, l.Model.VPAs())
	recommend.CountLimited(l.Metrics.limited, l.Model.VPAs())
	countVPAs(l.Metrics.objects, l.Model.VPAs())
	l.Sketches.Count(l.Metrics.recipes)
}

func (l *Loop) maintainCheckpoints(ctx context.Context, now time.Time) {
	l.Checkpoints.Save(ctx, checkpoints.Due, now, l.timeBudget())
	l.Checkpoints.Clean(ctx, now)
}

// Explain explains the recommendation of a VPA. It may run concurrently with RunOnce.
func (l *Loop) Explain(ctx context.Context, namespace, name string) (any, error) {
	cached, err := l.Roster.VPAs.VerticalPodAutoscalers(namespace).Get(name)
	if err != nil {
		return nil, explanation.ErrUnknown
	}
	var answer *explanation.VPA
	err = explanation.ErrUnknown
	if wait := l.Model.Read(ctx, func() {
		if v := l.Model.Find(namespace, name); v != nil {
			answer, err = l.Advisor.Explain(v, cached)
		}
	}); wait != nil {
		return nil, wait
	}
	return answer, err
}

// timeBudget returns the time for deferrable work, which must end well before the next iteration.
func (l *Loop) timeBudget() time.Duration {
	return l.Config.Interval*3/4 - time.Since(l.iterationStart)
}

type podless struct{ since, next time.Time }

const minRecheck = time.Minute

// recheckTargets rereads targets without matching pods, because a release may have changed their
// selectors. The pauses double, because most of these targets are scaled to zero.
func (l *Loop) recheckTargets(now time.Time) {
	found := map[*model.VPA]podless{}
	for _, v := range l.Model.VPAs() {
		if v.TargetError != nil || v.Pods() > 0 {
			continue
		}
		state, known := l.podless[v]
		if !known {
			state = podless{since: now, next: now}
		}
		if !now.Before(state.next) {
			l.Roster.Targets.Recheck(v.Object.Namespace, v.Object.Spec.TargetRef)
			state.next = now.Add(max(now.Sub(state.since), minRecheck))
		}
		found[v] = state
	}
	l.podless = found
}
