package checkpoint

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/profile"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// Owner names a VPA.
type Owner struct{ Namespace, VPA string }

// History is what was kept, by VPA and container.
type History map[Owner]map[string]*profile.Profile

// Loader reads checkpoints.
type Loader struct {
	Client    versioned.Interface
	Namespace string                         // empty: all
	Shape     profile.Shape                  // of the profiles
	Wanted    func(Owner) bool               // whose checkpoints are read
	Report    func(object string, err error) // called for each that cannot be used
}

// pageSize bounds what one answer holds: a checkpoint is some kilobytes.
const pageSize = 500

// Load reads all checkpoints once, in pages. One that cannot be used is
// reported and left out. Should two hold the same container, the one written
// last counts. An error means that the history is not complete.
func (l *Loader) Load(ctx context.Context) (History, error) {
	history, written := History{}, map[*profile.Profile]time.Time{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := l.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(l.Namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list checkpoints: %w", err)
		}
		for i := range page.Items {
			l.add(history, written, &page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return history, nil
		}
	}
}

// retryPause is the time between two attempts to load.
const retryPause = 10 * time.Second

// LoadInTheEnd is Load, repeated until it succeeds or ctx ends.
func (l *Loader) LoadInTheEnd(ctx context.Context) (History, error) {
	log := klog.FromContext(ctx)
	for {
		history, err := l.Load(ctx)
		if err == nil {
			log.V(1).Info("History loaded from checkpoints", "vpas", len(history))
			return history, nil
		}
		if ctx.Err() == nil {
			log.Error(err, "Cannot load the history, nothing is recommended until that works. Retrying", "after", retryPause)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

func (l *Loader) add(history History, written map[*profile.Profile]time.Time, c *vpav1.VerticalPodAutoscalerCheckpoint) {
	owner := Owner{c.Namespace, c.Spec.VPAObjectName}
	if !l.Wanted(owner) {
		return
	}
	image, err := Image(&c.Status)
	p := profile.New(l.Shape)
	if err == nil {
		err = p.Load(image)
	}
	if err != nil {
		l.Report(c.Namespace+"/"+c.Name, err)
		return
	}
	containers := history[owner]
	if containers == nil {
		containers = map[string]*profile.Profile{}
		history[owner] = containers
	}
	if former := containers[c.Spec.ContainerName]; former != nil && written[former].After(c.Status.LastUpdateTime.Time) {
		return
	}
	containers[c.Spec.ContainerName] = &p
	written[&p] = c.Status.LastUpdateTime.Time
}
