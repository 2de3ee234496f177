package disruption

import (
	"cmp"
	"slices"
	"time"
)

// RestartHolder is a pod that is about to be restarted by a resize, or is not ready again after
// one. Others that share something with it wait.
type RestartHolder struct {
	UID     string
	Pending time.Time // since when it waits for its node; zero: it does not wait
}

// order has those first that do not wait for their node, then those that wait longest.
func (h RestartHolder) order(other RestartHolder) int {
	return cmp.Or(h.Pending.Compare(other.Pending), cmp.Compare(h.UID, other.UID))
}

// BlockingRestart returns the first of the holders for which a pod must wait, or false. Of those
// that only wait for their nodes the first goes on: else two of them would hold each
// other.
func BlockingRestart(uid string, all []RestartHolder) (first RestartHolder, blocked bool) {
	self := slices.IndexFunc(all, func(h RestartHolder) bool { return h.UID == uid })
	for _, h := range all {
		if h.UID == uid || self >= 0 && !h.Pending.IsZero() && !all[self].Pending.IsZero() && all[self].order(h) < 0 {
			continue
		}
		if !blocked || h.order(first) < 0 {
			first, blocked = h, true
		}
	}
	return first, blocked
}

// RestartHolders are pods that are being restarted, by what they share with others.
type RestartHolders map[string][]RestartHolder

// Add records that a pod holds what it shares.
func (h *RestartHolders) Add(one RestartHolder, keys ...string) {
	if *h == nil {
		*h = RestartHolders{}
	}
	for _, key := range keys {
		if !slices.ContainsFunc((*h)[key], func(known RestartHolder) bool { return known.UID == one.UID }) {
			(*h)[key] = append((*h)[key], one)
		}
	}
}

// Blocker returns for which other pod one must wait, and the first of the keys that they
// share; or false.
func (h RestartHolders) Blocker(uid string, keys ...string) (by RestartHolder, key string, blocked bool) {
	for _, key := range keys {
		if by, blocked := BlockingRestart(uid, h[key]); blocked {
			return by, key, true
		}
	}
	return RestartHolder{}, "", false
}
