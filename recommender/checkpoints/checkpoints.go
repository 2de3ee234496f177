// Package checkpoints keeps checkpoint objects up to date while the recommender runs.
//
// Saver writes the VPAs that changed: at once if a published target rests on what is not saved yet, else each at its
// own moment within an interval. A good checkpoint is never lost to a poor one: an object is left alone that another
// VPA owns, or that holds much more history than would be written and was not read at the start. Maintainer adds the
// clean-up of checkpoints whose VPA is gone, and says what went wrong.
//
// What goes into a checkpoint is for the caller to say; its form is that of package checkpoint.
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

// Maintainer saves what changed, and now and then deletes checkpoints that nobody
// needs any more. Its exported fields are set once.
type Maintainer struct {
	Off     bool // history is not in checkpoints: none is written or deleted
	Saver   *Saver
	Model   *model.Model
	Roster  *model.Roster
	Store   *usage.Store           // of the model
	Collect time.Duration          // least time between two clean-ups
	Results *prometheus.CounterVec // by what became of a checkpoint

	late      bool      // the last Save left some
	collected time.Time // last clean-up

	unsaved, full, undeleted serving.Reminder
}

// Save writes the VPAs of scope; see Saver.
func (u *Maintainer) Save(ctx context.Context, scope Scope, now time.Time, idle time.Duration) {
	if u.Off {
		return
	}
	result := u.Saver.Save(ctx, u.Model.VPAs(), scope, now, idle)
	u.late = result.Late > 0
	u.Results.WithLabelValues("written").Add(float64(result.Written))
	u.Results.WithLabelValues("unchanged").Add(float64(result.Unchanged))
	u.Results.WithLabelValues("late").Add(float64(result.Late))
	u.report(ctx, &u.unsaved, result.Err, "error", "Some checkpoints are not saved: a restart would begin with what is stored", now)
	u.report(ctx, &u.full, result.Full, "namespace_full", "Checkpoints exceed the limit of their namespace, so they are not saved", now)
	klog.FromContext(ctx).V(4).Info("Checkpoints", "written", result.Written, "unchanged", result.Unchanged, "late", result.Late)
}

// Secure writes one VPA before its status; see Saver.
func (u *Maintainer) Secure(ctx context.Context, v *model.VPA, now time.Time) {
	if u.Off {
		return
	}
	result := u.Saver.Secure(ctx, v, now)
	u.Results.WithLabelValues("written").Add(float64(result.Written))
	u.Results.WithLabelValues("unchanged").Add(float64(result.Unchanged))
}

// Rest returns what to save between two passes: what is urgent, and what the last Save left.
func (u *Maintainer) Rest() Scope {
	if u.late {
		return Due
	}
	return Urgent
}

// Clean deletes orphans and what has expired, unless it did so a short time ago.
func (u *Maintainer) Clean(ctx context.Context, now time.Time) {
	if since := now.Sub(u.collected); u.Off || !u.collected.IsZero() && 0 <= since && since <= u.Collect {
		return
	}
	u.collected = now
	deleted, err := u.Saver.Collect(ctx, func(c *vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return u.disposition(c, now) })
	if errors.Is(err, errLate) {
		u.collected = time.Time{}
	}
	u.Results.WithLabelValues("deleted").Add(float64(deleted))
	u.report(ctx, &u.undeleted, err, "error", "Cannot delete some checkpoints without VPA, trying again later", now)
}

const loggedLines = 10

// report logs joined errors, unless they are those of the last time, and counts
// each as a result. Most stay until a user acts.
func (u *Maintainer) report(ctx context.Context, last *serving.Reminder, err error, result, message string, now time.Time) {
	if ctx.Err() != nil {
		return
	}
	var lines []string
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	slices.Sort(lines) // they come in the order of the workers
	text := strings.Join(lines[:min(len(lines), loggedLines)], "; ")
	if due, _ := last.Due(text, now); due && err != nil {
		klog.FromContext(ctx).Error(errors.New(text), message, "problems", len(lines))
	}
	u.Results.WithLabelValues(result).Add(float64(len(lines)))
}

// disposition returns what becomes of a checkpoint: it is an orphan when its VPA is gone, and expired when the VPA has
// not had the container for long, or had it with another target. One whose VPA has just gone stays for the time between
// two clean-ups: should that be created again, and the program end before it has saved it, the history is still there.
// One that went during this pass is in the model until the next. A new checkpoint stays as long: where a cluster is
// restored its VPA follows.
func (u *Maintainer) disposition(c *vpav1.VerticalPodAutoscalerCheckpoint, now time.Time) Disposition {
	if !u.Roster.Namespaces.Serves(c.Namespace) {
		return Keep
	}
	object, err := u.Roster.VPAs.VerticalPodAutoscalers(c.Namespace).Get(c.Spec.VPAObjectName)
	v, container := u.Model.Find(c.Namespace, c.Spec.VPAObjectName), c.Spec.ContainerName
	switch {
	case apierrors.IsNotFound(err):
		since, remembered := u.Model.DeletedSince(c.Namespace, c.Spec.VPAObjectName)
		if v != nil || now.Sub(c.CreationTimestamp.Time) < u.Collect || remembered && now.Sub(since) < u.Collect {
			return Keep
		}
		return Orphan
	case err != nil, !u.Roster.Serves(object), v == nil, v.TargetError != nil:
		return Keep
	case !v.Keeps(container):
		return Expired
	case v.Restored[container] != nil, len(v.Series(container)) > 0:
		return Keep
	case u.Saver.Foreign(v, c), Stale(c, v.RulesOf(container).Age(), u.Store.Credible(now)):
		return Expired
	}
	return Keep
}
