package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// saidEvent is an event of the updater about a pod.
type saidEvent struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// podStatus is the state of one pod.
type podStatus struct {
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Node      string          `json:"node,omitempty"`
	Workload  *workloadStatus `json:"workload,omitempty"` // of its VPA; absent: none controls it
	Reason    reason.Reason   `json:"reason,omitempty"`   // why it is left alone; absent: nothing that can be seen is in the way
	Means     string          `json:"means,omitempty"`
	Advice    string          `json:"advice,omitempty"`
	By        string          `json:"by"` // who says so
	Events    []saidEvent     `json:"events,omitempty"`
	Problems  []string        `json:"problems,omitempty"`
}

// Who gives a reason.
const (
	byUpdater = "the updater, of its last pass"
	byOutside = "what can be seen from outside"
)

// statusOfPod returns why a pod is left alone.
func statusOfPod(ctx context.Context, own versioned.Interface, q question, updater string) (*podStatus, error) {
	pod, err := q.Kube.CoreV1().Pods(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	surroundings, err := newSurroundings(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := surroundings.answer(ctx, pod)
	a.Problems = append(a.Problems, surroundings.problems...)
	said, err := askUpdater(ctx, q.Kube, updater, pod.UID, q.Now)
	if err != nil {
		a.problem("the updater does not say why it leaves the pod alone: %v", err)
	}
	a.take(said)
	if a.Events, err = updaterEvents(ctx, q.Kube, pod); err != nil {
		a.problem("it is not known what the updater said of the pod: %v", err)
	}
	e := a.reason()
	s := &podStatus{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Reason: a.Left, Means: e.Means, Advice: e.Advice, By: byOutside, Problems: a.Problems}
	if a.Said {
		s.By = byUpdater
	}
	if a.VPA != nil {
		s.Workload = rowOf(a.VPA, &a.Rollout)
	}
	for i := range a.Events {
		e := &a.Events[i]
		s.Events = append(s.Events, saidEvent{e.LastTimestamp.Time, e.Reason, eventText(e)})
	}
	return s, nil
}

func (s *podStatus) tables() []table {
	t := table{Columns: []string{"POD", s.Namespace + "/" + s.Pod}}
	row := func(name, text string) {
		if text != "" {
			t.Rows = append(t.Rows, []string{name, text})
		}
	}
	row("NODE", s.Node)
	if w := s.Workload; w != nil {
		row("VPA", fmt.Sprintf("%s, mode %s", w.VPA, w.Mode))
		row("TARGET", w.Target)
		if w.Policy != "" {
			row("POLICY", w.Policy+", mode "+w.PolicyMode)
		}
		row("PHASE", w.Phase)
		if !w.CooldownUntil.IsZero() {
			row("COOLDOWN UNTIL", at(w.CooldownUntil))
		}
	}
	if s.Reason == "" {
		row("LEFT ALONE", "no: nothing that can be seen is in the way of a change")
	} else {
		row("LEFT ALONE", string(s.Reason))
		row("WHAT IT MEANS", s.Means)
		row("WHAT TO DO", s.Advice)
	}
	row("SAYS", s.By)
	for _, e := range s.Events {
		row("EVENT", fmt.Sprintf("%s %s: %s", at(e.Time), e.Reason, e.Message))
	}
	return []table{t}
}

func (s *podStatus) notes() (notes []string) {
	for _, problem := range s.Problems {
		notes = append(notes, "! "+problem)
	}
	return notes
}
