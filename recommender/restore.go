package main

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

// minRestoreTime is how long checkpoints may be read in an iteration, however short it is.
const minRestoreTime = 5 * time.Second

// restoreLate loads the checkpoints of VPAs that are not tracked yet and were not read at the start,
// as where a cluster is restored while the program runs. It returns the VPAs that can be tracked: one
// whose checkpoints cannot be read waits, because what is known of it now would replace them.
func (l *Loop) restoreLate(ctx context.Context, observed []model.Observed) []model.Observed {
	missing := l.unreadCheckpoints(ctx, observed)
	if len(missing) == 0 {
		return observed
	}
	ctx, cancel := context.WithTimeout(ctx, max(l.idle()/4, minRestoreTime))
	defer cancel()
	if l.Restored == nil {
		l.Restored = checkpoint.History{}
	}
	for _, namespace := range slices.Sorted(maps.Keys(missing)) {
		owners, loader := missing[namespace], *l.loader
		loader.Namespace, loader.Wanted = namespace, func(o checkpoint.Owner) bool { return owners[o] }
		history, err := loader.Load(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to load the checkpoints of new VPAs, trying again in the next iteration", "namespace", namespace, "vpas", len(owners))
			continue
		}
		maps.Copy(l.Restored, history)
		l.Checkpoints.Saver.Know(history)
		delete(missing, namespace)
	}
	return slices.DeleteFunc(observed, func(o model.Observed) bool { return missing[o.Object.Namespace][ownerOf(o)] })
}

// unreadCheckpoints returns the VPAs that are new to the model and have checkpoints that another process
// wrote and this one has not read, by namespace.
func (l *Loop) unreadCheckpoints(ctx context.Context, observed []model.Observed) map[string]map[checkpoint.Owner]bool {
	if l.loader == nil {
		return nil
	}
	candidates := map[checkpoint.Owner]bool{}
	for _, o := range observed {
		owner := ownerOf(o)
		_, remembered := l.Model.DeletedSince(owner.Namespace, owner.VPA)
		if !remembered && !l.read[owner] && l.Model.Find(owner.Namespace, owner.VPA) == nil {
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
