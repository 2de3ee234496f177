package updater

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/plan"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

// explainer explains pods by the caches and the last iteration. It changes nothing, and runs beside the loop, for one
// request at a time.
type explainer struct {
	reader   *snapshot.Reader // not that of the loop
	policies *policies.Resolver
	rollouts *rollouts.Reader
	sharing  *shares.Sharing
	skips    *report.Skips
	plan     disruption.Config
	clock    actuate.Clock // nil: time.Now
}

// Explain explains a pod, as *explanation.Pod.
func (e *explainer) Explain(ctx context.Context, namespace, name string) (any, error) {
	if !e.reader.Namespaces.Serves(namespace) {
		return nil, explanation.ErrUnknown
	}
	pod, err := e.reader.Pods.Pods(namespace).Get(name)
	if err != nil {
		return nil, explanation.ErrUnknown
	}
	skip, known := e.skips.Of(string(pod.UID))
	if !known {
		return nil, explanation.ErrNotReady
	}
	answer := &explanation.Pod{Namespace: namespace, Name: name, UID: string(pod.UID), Skip: explanation.NewSkip(skip), Share: e.sharing.Explain(pod.UID)}
	if note, err := convert.NotedChange(pod); err == nil {
		answer.Changed = note.At
	}
	vpa, found, err := e.reader.Controlling(ctx, pod, true)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the VPA of the pod: %w", err)
	case !found:
		answer.Containers = explanation.Containers(new(convert.RunningPod(pod, nil, policy.Rules{}, policy.Ranges{})))
		return answer, nil
	}
	vpa.Outdated = e.reader.Generations.Outdated(vpa.Object)
	answer.VPA, answer.Mode = vpa.Object.Name, string(convert.Mode(vpa.Object))
	return answer, e.explainVPA(ctx, answer, pod, vpa)
}

// explainVPA adds what VPA and policy decide.
func (e *explainer) explainVPA(ctx context.Context, answer *explanation.Pod, pod *corev1.Pod, vpa snapshot.VPA) error {
	now := time.Now()
	if e.clock != nil {
		now = e.clock.Now()
	}
	vpas := []snapshot.VPA{vpa}
	all := e.policies.Resolve(ctx, vpas, now)
	effective := &all[0]
	answer.Containers = explanation.Containers(new(vpas[0].Pod(pod)))
	answer.WithoutShared()
	switch {
	case answer.Skip != nil:
	case effective.Skip != "":
		answer.Skip = explanation.NewSkip(effective.Skip)
	case !policies.Acts(effective.Update):
		answer.Skip = explanation.NewSkip(reason.ModeOff)
	}
	if p := effective.Decision.Policy; p != nil {
		answer.Rollout = &explanation.Rollout{Policy: p.Name, Mode: effective.Decision.Mode.String()}
	}
	if effective.Policy == nil {
		return nil
	}
	pods, err := e.reader.ReadPods(ctx, vpas, []snapshot.Scope{snapshot.States})
	if err != nil {
		return err
	}
	view := plan.NewView(ctx, vpas, all, &pods, e.reader.PerVPAConfig)
	if len(view.VPAs) == 0 {
		return nil
	}
	state, err := e.policies.Records.State(effective.Workload)
	if err != nil {
		return fmt.Errorf("read the record of the workload: %w", err)
	}
	held := rollout.Hold(state, e.rollouts.Workload(&view.VPAs[0], view.States[0], effective, e.plan, now), effective.Settings, now)
	r := answer.Rollout
	r.Phase, r.Canary, r.Next = held.State.Phase, held.Canary, held.Next
	return nil
}
