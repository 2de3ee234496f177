package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

type rollout struct {
	workload              string
	written, writtenLimit amounts // in its template
	pods                  []podState
	mode                  vpav1.UpdateMode // of the generated VPA, empty: none yet
	target                *amounts         // nil: no recommendation yet
	record                loadlinev1alpha1.SizingRecordStatus
}

// sized returns the number of pods with smaller requests than their template.
func (r rollout) sized() (n int) {
	for _, p := range r.pods {
		if p.request.cpu < r.written.cpu || p.request.memory < r.written.memory {
			n++
		}
	}
	return n
}

// reverted reports whether a round was reverted because of a kill.
func (r rollout) reverted() bool {
	return slices.ContainsFunc(r.record.Rounds, func(round loadlinev1alpha1.Round) bool {
		return round.Outcome == loadlinev1alpha1.RoundReverted && round.Reason == "OOMKilled"
	})
}

// lastRound returns the outcome of the newest round, with the reason.
func (r rollout) lastRound() string {
	if len(r.record.Rounds) == 0 {
		return "-"
	}
	round := r.record.Rounds[0]
	switch {
	case round.Outcome == "":
		return "under way"
	case round.Reason == "":
		return string(round.Outcome)
	}
	return string(round.Outcome) + ", " + round.Reason
}

func (s snapshot) rollout(workload string) rollout {
	for _, r := range s.rollouts {
		if r.workload == workload {
			return r
		}
	}
	return rollout{}
}

// event is an event of the updater about a pod or a VPA.
type event struct {
	uid                     types.UID
	reason, object, message string
}

func readRollouts(ctx context.Context, cluster *harness.Cluster) (all []rollout, events []event, err error) {
	for _, w := range underPolicy() {
		r, err := readRollout(ctx, cluster, w)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, r)
	}
	events, err = readEvents(ctx, cluster)
	return all, events, err
}

func readRollout(ctx context.Context, cluster *harness.Cluster, w workload) (rollout, error) {
	c := w.Containers[0]
	r := rollout{workload: w.Name, written: written(c.CPU, c.Memory), writtenLimit: written(c.CPULimit, c.MemoryLimit)}
	list, err := cluster.Pods(ctx, w.Workload)
	if err != nil {
		return r, err
	}
	for _, pod := range list {
		r.pods = append(r.pods, stateOf(w.Name, &pod, nil))
	}
	slices.SortFunc(r.pods, func(a, b podState) int { return cmp.Compare(a.name, b.name) })
	name := "deployment-" + w.Name // of VPA and record
	vpa, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(policyNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return r, nil
	case err != nil:
		return r, fmt.Errorf("get VPA %s: %w", name, err)
	}
	r.mode = *vpa.Spec.UpdatePolicy.UpdateMode
	if b, ok := boundsOf(vpa); ok {
		r.target = &b.target
	}
	record, err := cluster.VPA.LoadlineV1alpha1().SizingRecords(policyNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // before the first change
	case err != nil:
		return r, fmt.Errorf("get SizingRecord %s: %w", name, err)
	default:
		r.record = record.Status
	}
	return r, nil
}

// written returns quantities of a template. An empty text means none.
func written(cpu, memory string) amounts {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return amountsOf(list)
}

// readEvents lists the rollout events of the updater, oldest first.
func readEvents(ctx context.Context, cluster *harness.Cluster) (events []event, err error) {
	list, err := cluster.Kube.CoreV1().Events(policyNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list events of %s: %w", policyNamespace, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, e := range list.Items {
		// A revert has an event on the VPA too.
		if e.Reason == "Reverted" && e.InvolvedObject.Kind == "Pod" || strings.HasPrefix(e.Reason, "Canary") {
			events = append(events, event{e.UID, e.Reason, e.InvolvedObject.Name, e.Message})
		}
	}
	return events, nil
}

func rolloutChanges(before, after snapshot, started time.Time) []string {
	d := diary{seconds: after.at.Sub(started).Seconds()}
	for _, now := range after.rollouts {
		was := before.rollout(now.workload)
		if was.mode == "" && now.mode != "" {
			d.say("%s: VPA deployment-%s made, in mode %s", now.workload, now.workload, now.mode)
		}
		if was.target == nil && now.target != nil {
			d.say("%s: first recommendation: target %s", now.workload, pair(*now.target))
		}
		d.pods(was.pods, now.pods)
		if now.sized() != was.sized() || now.record.Phase != was.record.Phase || now.lastRound() != was.lastRound() {
			d.say("%s: %d of %d pods have the new size, phase %s, last round: %s",
				now.workload, now.sized(), len(now.pods), cmp.Or(string(now.record.Phase), "-"), now.lastRound())
		}
	}
	for _, e := range after.events {
		if !slices.ContainsFunc(before.events, func(old event) bool { return old.uid == e.uid }) {
			d.say("%s: event %s: %s", e.object, e.reason, e.message)
		}
	}
	return d.lines
}

func rolloutRows(s snapshot) []string {
	const form = "%-24s %15s %15s %15s %12s  %s"
	rows := []string{fmt.Sprintf(form, "WORKLOAD", "WRITTEN", "TARGET", "WITH NEW SIZE", "PHASE", "LAST ROUND")}
	for _, r := range s.rollouts {
		target := "-"
		if r.target != nil {
			target = pair(*r.target)
		}
		rows = append(rows, fmt.Sprintf(form, r.workload, pair(r.written), target,
			fmt.Sprintf("%d of %d", r.sized(), len(r.pods)), cmp.Or(string(r.record.Phase), "-"), r.lastRound()))
	}
	return rows
}
