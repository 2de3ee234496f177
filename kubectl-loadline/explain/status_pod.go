package explain

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// podEvent is an event of the updater about a pod.
type podEvent struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// podStatus is the state of one pod.
type podStatus struct {
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Node      string          `json:"node,omitempty"`
	Workload  *workloadStatus `json:"workload,omitempty"` // of its VPA, if any
	Reason    reason.Reason   `json:"reason,omitempty"`   // why it is skipped. Absent: no visible obstacle
	Means     string          `json:"means,omitempty"`
	Advice    string          `json:"advice,omitempty"`
	By        string          `json:"by"` // source of the reason
	Events    []podEvent      `json:"events,omitempty"`
	Problems  []string        `json:"problems,omitempty"`
}

// Sources of a reason.
const (
	fromUpdater = "the updater, of its last pass"
	fromStatus  = "what can be seen from outside"
)

// statusOfPod returns why a pod is skipped.
func statusOfPod(ctx context.Context, own versioned.Interface, q inventory.Request, updater string) (*podStatus, error) {
	pod, err := q.Kube.CoreV1().Pods(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	surroundings, err := inventory.NewReader(ctx, own, q)
	if err != nil {
		return nil, err
	}
	a := podReportOf(ctx, surroundings, pod)
	a.Problems = append(a.Problems, surroundings.Problems...)
	skips, err := programs.SkipReasons(ctx, q.Kube, updater, pod.UID, q.Now)
	if err != nil {
		a.problem("the updater does not say why it leaves the pod alone: %v", err)
	}
	a.useUpdater(skips)
	if a.Events, err = updaterEvents(ctx, q.Kube, pod); err != nil {
		a.problem("it is not known what the updater said of the pod: %v", err)
	}
	e := a.explanation()
	s := &podStatus{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Reason: a.SkipReason, Means: e.Means, Advice: e.Advice, By: fromStatus, Problems: a.Problems}
	if a.FromUpdater {
		s.By = fromUpdater
	}
	if a.VPA != nil {
		s.Workload = rowOf(a.VPA, &a.Rollout)
	}
	for i := range a.Events {
		e := &a.Events[i]
		s.Events = append(s.Events, podEvent{e.LastTimestamp.Time, e.Reason, eventText(e)})
	}
	return s, nil
}

// Tables implements cli.Report.
func (s *podStatus) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"POD", s.Namespace + "/" + s.Pod}}
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
			row("COOLDOWN UNTIL", cli.Timestamp(w.CooldownUntil))
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
		row("EVENT", fmt.Sprintf("%s %s: %s", cli.Timestamp(e.Time), e.Reason, e.Message))
	}
	return []cli.Table{t}
}

// Notes implements cli.Report.
func (s *podStatus) Notes() []string { return cli.Warnings(s.Problems) }
