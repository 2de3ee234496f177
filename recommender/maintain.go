package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/recommender/checkpoint"
	"loadline.dev/loadline/recommender/status"
)

// maintainCheckpoints saves the histories that changed and, now and then, deletes
// checkpoints that nobody needs any more.
func (l *Loop) maintainCheckpoints(ctx context.Context, now time.Time) {
	log := klog.FromContext(ctx)
	var items []checkpoint.Item
	for _, v := range l.Model.VPAs() {
		// While its target is in trouble we may see less than there is.
		if v.Trouble != nil || status.FetchingHistory(v.Object) {
			continue
		}
		items = append(items, checkpoint.Item{
			Owner:  checkpoint.Owner{Namespace: v.Object.Namespace, VPA: v.Object.Name},
			Images: func() map[string]profile.Image { return l.Advisor.Images(v, now) },
		})
	}
	result := l.Checkpoints.Save(ctx, items, now, l.Config.Checkpoints.Timeout)
	l.Metrics.checkpoints.WithLabelValues("written").Add(float64(result.Written))
	l.Metrics.checkpoints.WithLabelValues("unchanged").Add(float64(result.Unchanged))
	l.Metrics.checkpoints.WithLabelValues("late").Add(float64(result.Late))
	l.report(ctx, &l.unsaved, result.Err, "Cannot save some checkpoints, trying again in each pass", now)
	log.V(4).Info("Checkpoints", "written", result.Written, "unchanged", result.Unchanged, "late", result.Late)

	if !l.orphans.IsZero() && now.Sub(l.orphans) <= l.Config.Checkpoints.CollectInterval {
		return
	}
	l.orphans = now
	deleted, err := l.Checkpoints.Collect(ctx, func(c *vpav1.VerticalPodAutoscalerCheckpoint) checkpoint.Fate { return l.fate(c, now) })
	l.Metrics.checkpoints.WithLabelValues("deleted").Add(float64(deleted))
	l.report(ctx, &l.undeleted, err, "Cannot delete some checkpoints without VPA, trying again later", now)
}

// report logs joined errors, unless they are those of the last time, and counts
// each.
func (l *Loop) report(ctx context.Context, last *checkpoint.Complaint, err error, message string, now time.Time) {
	if ctx.Err() == nil {
		problems := last.Note(klog.FromContext(ctx), err, message, now)
		l.Metrics.checkpoints.WithLabelValues("error").Add(float64(problems))
	}
}

// fate tells what becomes of a checkpoint: it is an orphan when its VPA is gone,
// and expired when the VPA has not had the container for long.
func (l *Loop) fate(c *vpav1.VerticalPodAutoscalerCheckpoint, now time.Time) checkpoint.Fate {
	if !l.Config.Kube.Serves(c.Namespace) {
		return checkpoint.Keep
	}
	object, err := l.VPAs.VerticalPodAutoscalers(c.Namespace).Get(c.Spec.VPAObjectName)
	if apierrors.IsNotFound(err) {
		return checkpoint.Orphan
	}
	if err != nil || !l.Config.serves(object) {
		return checkpoint.Keep
	}
	v := l.Model.Find(c.Namespace, c.Spec.VPAObjectName)
	if v == nil || v.Trouble != nil || v.Restored[c.Spec.ContainerName] != nil || len(v.Series(c.Spec.ContainerName)) > 0 {
		return checkpoint.Keep
	}
	if checkpoint.Stale(c, l.age(v, c.Spec.ContainerName), now) {
		return checkpoint.Expired
	}
	return checkpoint.Keep
}
