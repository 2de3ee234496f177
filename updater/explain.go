package updater

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/serving"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/policies"
	"loadline.dev/loadline/updater/report"
	"loadline.dev/loadline/updater/rollouts"
	"loadline.dev/loadline/updater/shares"
	"loadline.dev/loadline/updater/snapshot"
)

// explainer explains pods from the caches and the last iteration, concurrently with the loop.
type explainer struct {
	reader   *snapshot.Reader
	policies *policies.Resolver
	rollouts *rollouts.Rollouts
	sharing  *shares.Sharing
	skips    *report.Skips
	dryRun   bool
	clock    actuate.Clock // nil: time.Now
}

// Explain returns the *explanation.Pod of a pod. It turns panics into errors.
func (e *explainer) Explain(ctx context.Context, namespace, name string) (answer any, err error) {
	err = serving.Guard(func() error { answer, err = e.explain(ctx, namespace, name); return err })
	return answer, err
}

func (e *explainer) explain(ctx context.Context, namespace, name string) (*explanation.Pod, error) {
	if !e.reader.Namespaces.Includes(namespace) {
		return nil, explanation.ErrUnknown
	}
	pod, err := e.reader.Pods.Pods(namespace).Get(name)
	if err != nil {
		return nil, explanation.ErrUnknown
	}
	skip, last := e.skips.ReasonOf(string(pod.UID))
	switch {
	case last.At.IsZero() && last.Waiting != "":
		return nil, fmt.Errorf("%w: %s", explanation.ErrNotReady, last.Waiting)
	case last.At.IsZero():
		return nil, explanation.ErrNotReady
	case skip == "" && pod.DeletionTimestamp != nil:
		skip = reason.Terminating
	case skip == "" && last.Waiting == "" && pod.CreationTimestamp.After(last.At):
		last.Waiting = "the pod is newer than the last iteration"
	}
	answer := &explanation.Pod{Namespace: namespace, Name: name, UID: string(pod.UID), AsOf: last.At.UTC(), Waiting: last.Waiting, DryRun: e.dryRun,
		Skip: explanation.NewSkip(skip), Share: e.sharing.Explain(pod.UID)}
	if note, err := convert.ParseChange(pod); err == nil {
		answer.Changed = note.At.UTC()
	}
	vpa, found, err := e.vpa(ctx, pod)
	if err != nil {
		answer.Problem = fmt.Sprintf("find the VPA of the pod: %v", err)
	}
	if !found {
		if answer.Skip == nil && err == nil {
			answer.Skip = explanation.NewSkip(reason.NoVPA)
		}
		answer.Containers = explanation.Containers(new(convert.RunningPod(pod, nil, policy.Rules{}, policy.Ranges{})))
		return answer, nil
	}
	e.explainVPA(ctx, answer, pod, vpa)
	return answer, nil
}

func (e *explainer) vpa(ctx context.Context, pod *corev1.Pod) (snapshot.VPA, bool, error) {
	// Owners of custom kinds are read from the API server. Skip that in namespaces without VPA.
	all, err := e.reader.VPAs.VerticalPodAutoscalers(pod.Namespace).List(labels.Everything())
	if err != nil || len(all) == 0 {
		return snapshot.VPA{}, false, err
	}
	vpa, found, err := e.reader.Controlling(ctx, pod, true)
	if found {
		vpa.Outdated = e.reader.Generations.Outdated(vpa.Object)
	}
	return vpa, found, err
}

func (e *explainer) explainVPA(ctx context.Context, answer *explanation.Pod, pod *corev1.Pod, vpa snapshot.VPA) {
	now := actuate.Now(e.clock)
	vpas := []snapshot.VPA{vpa}
	effective := e.policies.Resolve(ctx, vpas, now)[0]
	answer.VPA, answer.Mode = vpa.Object.Name, string(convert.Mode(vpa.Object))
	answer.Containers = explanation.Containers(new(vpas[0].Pod(pod)))
	mark, _ := convert.ParseShared(pod)
	answer.WithoutShared(mark)
	switch {
	case answer.Skip != nil:
	case effective.Skip != "":
		answer.Skip = explanation.NewSkip(effective.Skip)
	case !policies.ChangesPods(effective.Update):
		answer.Skip = explanation.NewSkip(reason.ModeOff)
	}
	if p := effective.Decision.Policy; p != nil {
		progress := e.rollouts.Progress(vpa.Key())
		answer.Rollout = &explanation.Rollout{Policy: p.Name, Mode: effective.Decision.Mode.String(), Phase: progress.Phase, Canary: progress.Canary, Next: progress.Next}
	}
}
