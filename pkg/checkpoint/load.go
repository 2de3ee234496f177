// Package checkpoint knows VerticalPodAutoscalerCheckpoint objects, in which history survives a restart.
//
// Image and Status translate between an object and a profile, Record is what is written, and Loader reads all objects
// at the start. Whose history it is, memory windows that are open when a checkpoint is written, and what a recipe knows
// besides the histograms are kept in an annotation beside the status, which stays as the reference recommender writes
// it.
//
// When what is written, the recommender decides.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/target"
)

// Owner names a VPA.
type Owner struct{ Namespace, VPA string }

// History is what was kept, by VPA and container.
type History map[Owner]map[string]Past

// Past is what the checkpoint of a container held.
type Past struct {
	Profile *usage.Profile
	// Windows are the memory windows, by pod, that were open when the checkpoint
	// was written, and whose peaks Profile lacks; nil if that is not known.
	Windows map[string]usage.Window
	Sketch  []byte // image of what a recipe knew besides; empty = nothing
	// Target is whose history it was when this program wrote it; zero: it is not
	// known, as where the reference recommender wrote it.
	Target target.Key
	// Rewritten reports whether another recommender wrote Profile since, of which
	// nobody knows whose history it is then.
	Rewritten bool
}

// Foreign is a container whose history is that of another target than its VPA has.
type Foreign struct {
	Container string
	Target    target.Key
}

func (f Foreign) String() string { return f.Container + " of " + f.Target.String() }

// Disown takes out of the history of a VPA what is that of another target than its own, and returns the containers of
// which nothing is left, sorted by name. What names no target stays.
func (h History) Disown(o Owner, own target.Key) (foreign []Foreign) {
	for _, container := range slices.Sorted(maps.Keys(h[o])) {
		past := h[o][container]
		switch {
		case past.Target == target.Key{} || past.Target == own:
		case past.Rewritten:
			past.Sketch = nil
			h[o][container] = past
		default:
			foreign = append(foreign, Foreign{container, past.Target})
			delete(h[o], container)
		}
	}
	if len(h[o]) == 0 {
		delete(h, o)
	}
	return foreign
}

// Sketches returns the images of sketches of a VPA by container.
func (h History) Sketches(o Owner) map[string][]byte {
	images := map[string][]byte{}
	for container, past := range h[o] {
		if len(past.Sketch) > 0 {
			images[container] = past.Sketch
		}
	}
	return images
}

// Profiles returns the histories of a VPA by container, nil if there are none.
func (h History) Profiles(o Owner) map[string]*usage.Profile {
	if h[o] == nil {
		return nil
	}
	profiles := make(map[string]*usage.Profile, len(h[o]))
	for container, past := range h[o] {
		profiles[container] = past.Profile
	}
	return profiles
}

// Loader reads checkpoints.
type Loader struct {
	Client    versioned.Interface
	Namespace string             // empty: all
	Shape     usage.ProfileShape // of the profiles
	Ahead     Ahead
}

// Problem is a checkpoint that cannot be used, or only in part: then the error is an ErrWindows or an ErrFuture.
type Problem struct {
	Object string // namespace/name
	Err    error
}

// pageSize bounds what one answer holds: a checkpoint is some kilobytes.
const pageSize = 500

// Load reads the checkpoints of the VPAs that want returns true for, in pages. Should two hold the same container,
// the one written last counts. An error means that the history is not complete.
func (l *Loader) Load(ctx context.Context, want func(Owner) bool, now time.Time) (History, []Problem, error) {
	var pages Pages
	for {
		if done, err := l.Next(ctx, &pages, want, now); done || err != nil {
			return pages.History, pages.Problems, err
		}
	}
}

// Pages holds the history of the pages that were read so far. The zero value is ready to use.
type Pages struct {
	History       History
	Problems      []Problem
	written       map[*usage.Profile]time.Time // time of the newest checkpoint of a profile
	continueToken string                       // of the next page
}

// Next reads the next page and reports whether it was the last one. It can be called again after an error. If
// the continue token has expired, the next call starts with the first page.
func (l *Loader) Next(ctx context.Context, p *Pages, want func(Owner) bool, now time.Time) (done bool, err error) {
	if p.History == nil {
		*p = Pages{History: History{}, written: map[*usage.Profile]time.Time{}}
	}
	options := metav1.ListOptions{Limit: pageSize, Continue: p.continueToken}
	page, err := l.Client.AutoscalingV1().VerticalPodAutoscalerCheckpoints(l.Namespace).List(ctx, options)
	if apierrors.IsResourceExpired(err) {
		*p = Pages{}
	}
	if err != nil {
		return false, fmt.Errorf("list checkpoints: %w", err)
	}
	for i := range page.Items {
		if c := &page.Items[i]; want(Owner{c.Namespace, c.Spec.VPAObjectName}) {
			l.add(p, c, now)
		}
	}
	p.continueToken = page.Continue
	return p.continueToken == "", nil
}

// retryPause is the time between two attempts to load.
const retryPause = 10 * time.Second

// LoadInTheEnd is Load, repeated until it succeeds or ctx ends.
func (l *Loader) LoadInTheEnd(ctx context.Context, want func(Owner) bool, now func() time.Time) (History, []Problem, error) {
	log := klog.FromContext(ctx)
	for {
		history, problems, err := l.Load(ctx, want, now())
		if err == nil {
			log.V(1).Info("History loaded from checkpoints", "vpas", len(history))
			return history, problems, nil
		}
		if ctx.Err() == nil {
			log.Error(err, "Cannot load the history, nothing is recommended until that works. Retrying", "after", retryPause)
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

func (l *Loader) add(p *Pages, c *vpav1.VerticalPodAutoscalerCheckpoint, now time.Time) {
	past, err := l.read(c, now)
	if err != nil {
		p.Problems = append(p.Problems, Problem{c.Namespace + "/" + c.Name, err})
	}
	if past.Profile == nil {
		return
	}
	owner := Owner{c.Namespace, c.Spec.VPAObjectName}
	containers := p.History[owner]
	if containers == nil {
		containers = map[string]Past{}
		p.History[owner] = containers
	}
	if former, twice := containers[c.Spec.ContainerName]; twice && p.written[former.Profile].After(c.Status.LastUpdateTime.Time) {
		return
	}
	containers[c.Spec.ContainerName] = past
	p.written[past.Profile] = c.Status.LastUpdateTime.Time
}

// read returns what a checkpoint holds; there is no profile if it cannot be
// used. The error may also be about a part that was mended or left out.
func (l *Loader) read(c *vpav1.VerticalPodAutoscalerCheckpoint, now time.Time) (past Past, err error) {
	image, err := Image(&c.Status)
	if err != nil {
		return past, err
	}
	problems := l.Ahead.mend(&image, now)
	p := usage.NewProfile(l.Shape)
	if err := p.Load(image); err != nil {
		return past, err
	}
	past.Profile = &p
	if text, found := c.Annotations[OpenWindows]; found {
		err := past.decode(text, c.Namespace, c.Status.LastUpdateTime.Time)
		problems = errors.Join(problems, err, l.Ahead.close(past.Windows, now))
	}
	return past, problems
}
