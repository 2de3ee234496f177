package policies

import (
	"fmt"
	"maps"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// After VPAs were refused in a namespace, as by an admission policy, a quota, or because the
// namespace is about to go, it is tried again there after a pause, which doubles each time.
const (
	firstPause = time.Minute
	lastPause  = time.Hour
)

// refusals are the namespaces where VPAs were refused.
type refusals map[string]*refusal

type refusal struct {
	vpa     string // that was refused last
	problem string
	pause   time.Duration
	until   time.Time
}

// waiting returns why no VPA is written in a namespace now; empty: it may be tried.
func (r refusals) waiting(namespace string, now time.Time) string {
	if known := r[namespace]; known != nil && now.Before(known.until) {
		return known.problem
	}
	return ""
}

// last returns the name of the VPA that was refused last in a namespace.
func (r refusals) last(namespace string) string {
	if known := r[namespace]; known != nil {
		return known.vpa
	}
	return ""
}

// refused notes a refusal, and returns what is wrong.
func (r refusals) refused(v *vpav1.VerticalPodAutoscaler, err error, now time.Time) string {
	known := r[v.Namespace]
	if known == nil {
		known = &refusal{pause: firstPause / 2}
		r[v.Namespace] = known
	}
	known.vpa, known.problem = v.Name, fmt.Sprintf("VPAs cannot be written in namespace %s: %v", v.Namespace, err)
	known.pause = min(2*known.pause, lastPause)
	known.until = now.Add(known.pause)
	return known.problem
}

// prune forgets namespaces where nothing was tried for long: they may be gone.
func (r refusals) prune(now time.Time) {
	maps.DeleteFunc(r, func(_ string, known *refusal) bool { return now.Sub(known.until) > lastPause })
}

// accepted begins the pauses of a namespace anew.
func (r refusals) accepted(namespace string) {
	if known := r[namespace]; known != nil {
		known.pause, known.until = firstPause/2, time.Time{}
	}
}
