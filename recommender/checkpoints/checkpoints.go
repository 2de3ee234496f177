// Package checkpoints saves the usage histories of VPAs in checkpoint objects.
//
// Saver writes changed VPAs: immediately if a published target depends on unsaved history, else in
// their slot. It does not overwrite checkpoints of other VPAs, nor checkpoints with much more
// history that were not read at the start. Maintainer also deletes obsolete checkpoints and reports
// errors. Package checkpoint defines the format.
package checkpoints

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/recommender/model"
)

// Maintainer saves changed VPAs and deletes obsolete checkpoints. Its exported fields are set once.
type Maintainer struct {
	Disabled        bool // no checkpoint is written or deleted
	Saver           *Saver
	Model           *model.Model
	Roster          *model.Roster
	Store           *usage.Store           // of the model
	CollectInterval time.Duration          // min time between two clean-ups
	Results         *prometheus.CounterVec // checkpoints by result

	incomplete     bool      // the last Save left VPAs
	lastCollection time.Time // last clean-up

	unsaved, full, undeleted serving.Reminder
}

// Save writes the VPAs of scope, see Saver.Save.
func (u *Maintainer) Save(ctx context.Context, scope Scope, now time.Time, idle time.Duration) {
	if u.Disabled {
		return
	}
	result := u.Saver.Save(ctx, u.Model.VPAs(), scope, now, idle)
	u.incomplete = result.Late > 0
	u.Results.WithLabelValues("written").Add(float64(result.Written))
	u.Results.WithLabelValues("unchanged").Add(float64(result.Unchanged))
	u.Results.WithLabelValues("late").Add(float64(result.Late))
	u.report(ctx, &u.unsaved, result.Err, "error", "Failed to save some checkpoints, a restart would load older ones", now)
	u.report(ctx, &u.full, result.Full, "namespace_full", "Skipping checkpoints that exceed the limit of their namespace", now)
	klog.FromContext(ctx).V(4).Info("Checkpoints", "written", result.Written, "unchanged", result.Unchanged, "late", result.Late)
}

// Secure writes one VPA before its status, see Saver.Secure.
func (u *Maintainer) Secure(ctx context.Context, v *model.VPA, now time.Time) {
	if u.Disabled {
		return
	}
	result := u.Saver.Secure(ctx, v, now)
	u.Results.WithLabelValues("written").Add(float64(result.Written))
	u.Results.WithLabelValues("unchanged").Add(float64(result.Unchanged))
}

// RemainingScope returns Due if the last Save left VPAs, else Urgent.
func (u *Maintainer) RemainingScope() Scope {
	if u.incomplete {
		return Due
	}
	return Urgent
}

// Clean deletes orphaned and expired checkpoints, at most once per interval.
func (u *Maintainer) Clean(ctx context.Context, now time.Time) {
	if since := now.Sub(u.lastCollection); u.Disabled || !u.lastCollection.IsZero() && 0 <= since && since <= u.CollectInterval {
		return
	}
	u.lastCollection = now
	deleted, err := u.Saver.Collect(ctx, func(c *vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return u.disposition(c, now) })
	if errors.Is(err, errLate) {
		u.lastCollection = time.Time{}
	}
	u.Results.WithLabelValues("deleted").Add(float64(deleted))
	u.report(ctx, &u.undeleted, err, "error", "Failed to delete some checkpoints without a VPA, retrying later", now)
}

const loggedLines = 10

// report counts errors as results, and logs them if they changed. Most persist until a user acts.
func (u *Maintainer) report(ctx context.Context, last *serving.Reminder, err error, result, message string, now time.Time) {
	if ctx.Err() != nil {
		return
	}
	var lines []string
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	slices.Sort(lines) // their order depends on the workers
	text := strings.Join(lines[:min(len(lines), loggedLines)], "; ")
	if due, _ := last.Due(text, now); due && err != nil {
		klog.FromContext(ctx).Error(errors.New(text), message, "problems", len(lines))
	}
	u.Results.WithLabelValues(result).Add(float64(len(lines)))
}

// disposition returns Orphan if the VPA is deleted, and Expired if the container is long gone or
// was of another target. Checkpoints of recently deleted VPAs stay for one clean-up interval, so
// that a recreated VPA keeps its history even if the recommender ends first. New checkpoints stay
// as long, because in a restored cluster their VPA may follow.
func (u *Maintainer) disposition(c *vpav1.VerticalPodAutoscalerCheckpoint, now time.Time) Disposition {
	if !u.Roster.Namespaces.Includes(c.Namespace) {
		return Keep
	}
	object, err := u.Roster.VPAs.VerticalPodAutoscalers(c.Namespace).Get(c.Spec.VPAObjectName)
	v, container := u.Model.Find(c.Namespace, c.Spec.VPAObjectName), c.Spec.ContainerName
	switch {
	case apierrors.IsNotFound(err):
		since, remembered := u.Model.DeletedSince(c.Namespace, c.Spec.VPAObjectName)
		if v != nil || now.Sub(c.CreationTimestamp.Time) < u.CollectInterval || remembered && now.Sub(since) < u.CollectInterval {
			return Keep
		}
		return Orphan
	case err != nil, !u.Roster.Serves(object), v == nil, v.TargetError != nil:
		return Keep
	case !v.Keeps(container):
		return Expired
	case v.Restored[container] != nil, len(v.Series(container)) > 0:
		return Keep
	case u.Saver.Foreign(v, c), Stale(c, v.RulesOf(container).Age(), u.Store.CredibleTime(now)):
		return Expired
	}
	return Keep
}
