// Package checkpoint stores usage histories in VerticalPodAutoscalerCheckpoint objects, so that
// they survive a restart.
//
// The status of an object stays as the reference recommender writes it. An annotation holds the
// target of the history, the open memory windows and the sketches of a recipe. The recommender
// decides when to write checkpoints.
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

// Owner identifies a VPA.
type Owner struct{ Namespace, VPA string }

// History is the loaded history, by VPA and container.
type History map[Owner]map[string]ContainerHistory

// ContainerHistory is the content of the checkpoint of a container.
type ContainerHistory struct {
	Profile *usage.Profile
	// Windows holds the open memory windows by pod. Profile lacks their peaks. Nil means unknown.
	Windows map[string]usage.Window
	Sketch  []byte // encoded recipe state, may be empty
	// Target is the workload of the history, zero for checkpoints of the reference recommender.
	Target target.Key
	// Rewritten means that another recommender has written Profile, for an unknown workload.
	Rewritten bool
}

// ForeignContainer is a container with the history of another target than its VPA has.
type ForeignContainer struct {
	Container string
	Target    target.Key
}

func (f ForeignContainer) String() string { return f.Container + " of " + f.Target.String() }

// RemoveForeign removes the history of other targets from the history of a VPA. It returns the
// containers without any remaining history, sorted by name. History without a target stays.
func (h History) RemoveForeign(o Owner, own target.Key) (foreign []ForeignContainer) {
	for _, container := range slices.Sorted(maps.Keys(h[o])) {
		past := h[o][container]
		switch {
		case past.Target == target.Key{} || past.Target == own:
		case past.Rewritten:
			past.Sketch = nil
			h[o][container] = past
		default:
			foreign = append(foreign, ForeignContainer{container, past.Target})
			delete(h[o], container)
		}
	}
	if len(h[o]) == 0 {
		delete(h, o)
	}
	return foreign
}

// Sketches returns the encoded sketches of a VPA by container.
func (h History) Sketches(o Owner) map[string][]byte {
	images := map[string][]byte{}
	for container, past := range h[o] {
		if len(past.Sketch) > 0 {
			images[container] = past.Sketch
		}
	}
	return images
}

// Profiles returns the profiles of a VPA by container, nil if there are none.
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
	Namespace string // empty: all
	Shape     usage.ProfileShape
	MaxSkew   MaxSkew
}

// Problem is an unusable checkpoint, or with ErrWindows or ErrFuture a partly unusable one.
type Problem struct {
	Object string // namespace/name
	Err    error
}

// pageSize bounds a response: a checkpoint has some kilobytes.
const pageSize = 500

// Load reads the checkpoints of all included VPAs in pages. If two checkpoints hold the same
// container, the newer one counts. After an error the history is incomplete.
func (l *Loader) Load(ctx context.Context, include func(Owner) bool, now time.Time) (History, []Problem, error) {
	var pages Pages
	for {
		if done, err := l.Next(ctx, &pages, include, now); done || err != nil {
			return pages.History, pages.Problems, err
		}
	}
}

// Pages holds the history of the pages read so far. The zero value is ready to use.
type Pages struct {
	History       History
	Problems      []Problem
	written       map[*usage.Profile]time.Time // write time of the newest checkpoint
	continueToken string
}

// Next reads the next page and reports whether it was the last one. It can be called again after an
// error. If the continue token has expired, the next call starts with the first page.
func (l *Loader) Next(ctx context.Context, p *Pages, include func(Owner) bool, now time.Time) (done bool, err error) {
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
		if c := &page.Items[i]; include(Owner{c.Namespace, c.Spec.VPAObjectName}) {
			l.add(p, c, now)
		}
	}
	p.continueToken = page.Continue
	return p.continueToken == "", nil
}

const retryPause = 10 * time.Second

// LoadWithRetry repeats Load until it succeeds or ctx ends.
func (l *Loader) LoadWithRetry(ctx context.Context, include func(Owner) bool, now func() time.Time) (History, []Problem, error) {
	log := klog.FromContext(ctx)
	for {
		history, problems, err := l.Load(ctx, include, now())
		if err == nil {
			log.V(1).Info("History loaded from checkpoints", "vpas", len(history))
			return history, problems, nil
		}
		if ctx.Err() == nil {
			log.Error(err, "Failed to load usage history from checkpoints, retrying before any recommendation", "after", retryPause)
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
		containers = map[string]ContainerHistory{}
		p.History[owner] = containers
	}
	if former, twice := containers[c.Spec.ContainerName]; twice && p.written[former.Profile].After(c.Status.LastUpdateTime.Time) {
		return
	}
	containers[c.Spec.ContainerName] = past
	p.written[past.Profile] = c.Status.LastUpdateTime.Time
}

// read returns no profile if the checkpoint is unusable. Errors include repaired or dropped parts.
func (l *Loader) read(c *vpav1.VerticalPodAutoscalerCheckpoint, now time.Time) (past ContainerHistory, err error) {
	image, err := Image(&c.Status)
	if err != nil {
		return past, err
	}
	problems := l.MaxSkew.clampTimes(&image, now)
	p := usage.NewProfile(l.Shape)
	if err := p.Load(image); err != nil {
		return past, err
	}
	past.Profile = &p
	if text, found := c.Annotations[OpenWindows]; found {
		err := past.decode(text, c.Namespace, c.Status.LastUpdateTime.Time)
		problems = errors.Join(problems, err, l.MaxSkew.closeWindows(past.Windows, now))
	}
	return past, problems
}
