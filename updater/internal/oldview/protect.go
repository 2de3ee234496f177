package oldview

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"loadline.dev/loadline/pkg/core/reason"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// protected returns the reason why a pod must not be evicted: a protection of the pod itself, or a replacement of
// an older revision. Empty: the pod may be evicted.
func (f *filling) protected(o owned, pod *disruption.Pod) reason.Reason {
	why := pod.Protected
	if why == reason.CountsAsFailure && f.Targets.IgnoresDisruption(o.owner.Key) {
		why = ""
	}
	if why == "" && !f.Targets.KeepsRevision(o.owner.Key, o.name, o.labels) {
		why = reason.OlderRevision
	}
	return why
}

// revisions are the pods of one custom workload with their revisions. The revision of new pods is not published
// for custom kinds, so the newest pod stands for it.
type revisions struct {
	pods   []podRevision
	newest podRevision
}

type podRevision struct {
	pod     int // index into filling.pods
	hash    string
	created time.Time
}

// addRevision records the revision of a pod whose owner is of a custom kind.
func (f *filling) addRevision(o owned, group, pod int) {
	if !o.owner.Custom() {
		return
	}
	hash := cmp.Or(o.labels[appsv1.ControllerRevisionHashLabelKey], o.labels[appsv1.DefaultDeploymentUniqueLabelKey])
	if hash == "" {
		return
	}
	if f.revisions == nil {
		f.revisions = map[int]*revisions{}
	}
	all := f.revisions[group]
	if all == nil {
		all = &revisions{}
		f.revisions[group] = all
	}
	added := podRevision{pod: pod, hash: hash, created: f.pods[pod].Created}
	all.pods = append(all.pods, added)
	if len(all.pods) == 1 || added.created.After(all.newest.created) {
		all.newest = added
	}
}

// protectOlder protects the pods of custom workloads whose revision differs from the one of the newest pod.
func (f *filling) protectOlder() {
	for _, all := range f.revisions {
		for _, r := range all.pods {
			if p := &f.pods[r.pod]; p.Protected == "" && r.hash != all.newest.hash {
				p.Protected = reason.OlderRevision
			}
		}
	}
	clear(f.revisions)
}
