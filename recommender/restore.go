package recommender

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/recommender/model"
)

// Limits for reading checkpoints of new VPAs, so that large namespaces do not delay the iteration.
const (
	minRestoreTime  = 5 * time.Second // of RunOnce
	maxRestoreTime  = 8 * time.Second
	killRestoreTime = time.Second // of HandleOOMs
)

type pendingRestore struct {
	owners map[checkpoint.Owner]bool
	pages  checkpoint.Pages
}

// restoreLate loads the checkpoints of VPAs that are new after the start, for example in a restored
// cluster. It returns the VPAs to track. The others must wait for their checkpoints, because their
// current history would overwrite them.
func (l *Loop) restoreLate(ctx context.Context, observed []model.Observed, now time.Time, limit time.Duration) []model.Observed {
	missing := l.unreadCheckpoints(ctx, observed)
	if len(missing) == 0 {
		clear(l.restoring)
		return observed
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for namespace, owners := range missing {
		if l.restoring[namespace] == nil {
			l.restoring[namespace] = &pendingRestore{owners: owners}
		}
	}
	maps.DeleteFunc(l.restoring, func(namespace string, _ *pendingRestore) bool { return missing[namespace] == nil })
	for owner := range l.readPages(ctx, now) {
		delete(missing[owner.Namespace], owner)
	}
	return slices.DeleteFunc(observed, func(o model.Observed) bool { return missing[o.Object.Namespace][ownerOf(o)] })
}

// readPages reads one page of each namespace in turn until all are read or ctx ends, and resumes
// there in the next call. It returns the VPAs with complete checkpoints.
func (l *Loop) readPages(ctx context.Context, now time.Time) map[checkpoint.Owner]bool {
	read, waiting := map[checkpoint.Owner]bool{}, slices.Sorted(maps.Keys(l.restoring))
	after, _ := slices.BinarySearchFunc(waiting, l.lastRestored, func(name, last string) int {
		if name <= last {
			return -1
		}
		return 1
	})
	for waiting = slices.Concat(waiting[after:], waiting[:after]); len(waiting) > 0 && ctx.Err() == nil; {
		namespace := waiting[0]
		waiting = waiting[1:]
		done, err := l.readPage(ctx, namespace, now)
		if l.lastRestored = namespace; err != nil {
			klog.FromContext(ctx).Error(err, "Failed to load the checkpoints of new VPAs, trying again in the next iteration", "namespace", namespace)
			continue
		}
		if !done {
			waiting = append(waiting, namespace)
			continue
		}
		r := l.restoring[namespace]
		if l.Restored == nil {
			l.Restored = checkpoint.History{}
		}
		maps.Copy(l.Restored, r.pages.History)
		l.reportCheckpoints(ctx, r.pages.Problems)
		l.Checkpoints.Saver.MarkLoaded(r.pages.History)
		maps.Copy(read, r.owners)
		delete(l.restoring, namespace)
	}
	return read
}

func (l *Loop) readPage(ctx context.Context, namespace string, now time.Time) (done bool, err error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	r, loader := l.restoring[namespace], *l.loader
	loader.Namespace = namespace
	return loader.Next(ctx, &r.pages, func(o checkpoint.Owner) bool { return r.owners[o] }, now)
}

// unreadCheckpoints returns VPAs new to the model with unread checkpoints of another process.
func (l *Loop) unreadCheckpoints(ctx context.Context, observed []model.Observed) map[string]map[checkpoint.Owner]bool {
	if l.loader == nil {
		return nil
	}
	candidates := map[checkpoint.Owner]bool{}
	for _, o := range observed {
		owner := ownerOf(o)
		_, remembered := l.Model.DeletedSince(owner.Namespace, owner.VPA)
		if !remembered && !l.loadedVPAs[owner] && l.Model.Find(owner.Namespace, owner.VPA) == nil {
			candidates[owner] = true
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	stored, err := l.Checkpoints.Saver.Lister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list cached checkpoints, tracking new VPAs without them")
		return nil
	}
	missing := map[string]map[checkpoint.Owner]bool{}
	for _, c := range stored {
		owner := checkpoint.Owner{Namespace: c.Namespace, VPA: c.Spec.VPAObjectName}
		if !candidates[owner] || l.Checkpoints.Saver.HasWritten(c) {
			continue
		}
		if missing[c.Namespace] == nil {
			missing[c.Namespace] = map[checkpoint.Owner]bool{}
		}
		missing[c.Namespace][owner] = true
	}
	return missing
}

func ownerOf(o model.Observed) checkpoint.Owner {
	return checkpoint.Owner{Namespace: o.Object.Namespace, VPA: o.Object.Name}
}
