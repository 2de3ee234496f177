package view

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"loadline.dev/loadline/pkg/core/disruption"
)

// protected returns why a pod must not be evicted: as the pod shows it, and as its owner would
// replace it.
func (f *filling) protected(o owned, pod *disruption.Pod) disruption.Reason {
	reason := pod.Protected
	if reason == disruption.CountsAsFailure && f.Targets.IgnoresDisruption(o.owner.Key) {
		reason = ""
	}
	if reason == "" && !f.Targets.KeepsRevision(o.owner.Key, o.name, o.labels) {
		reason = disruption.OlderRevision
	}
	return reason
}

// revisions are the pods of one owner of a custom kind. Which revision it gives new pods is not known: the
// newest pod shows it.
type revisions struct {
	pods   []revision
	newest revision
}

// revision is that of a pod.
type revision struct {
	pod     int // index into filling.pods
	name    string
	created time.Time
}

// revise records the revision of a pod whose owner is of a custom kind.
func (f *filling) revise(o owned, group, pod int) {
	if !o.owner.Custom() {
		return
	}
	name := o.labels[appsv1.ControllerRevisionHashLabelKey]
	if name == "" {
		name = o.labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	if name == "" {
		return
	}
	if f.revisions == nil {
		f.revisions = map[int]*revisions{}
	}
	of := f.revisions[group]
	if of == nil {
		of = &revisions{}
		f.revisions[group] = of
	}
	one := revision{pod: pod, name: name, created: f.pods[pod].Created}
	of.pods = append(of.pods, one)
	if len(of.pods) == 1 || one.created.After(of.newest.created) {
		of.newest = one
	}
}

// protectOlder protects the pods of custom workloads that have another revision than the newest one.
func (f *filling) protectOlder() {
	for _, of := range f.revisions {
		for _, one := range of.pods {
			if p := &f.pods[one.pod]; p.Protected == "" && one.name != of.newest.name {
				p.Protected = disruption.OlderRevision
			}
		}
	}
	clear(f.revisions)
}
