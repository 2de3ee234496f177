package explain

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/explanation"
)

func cpu(name string, a resources.Amount) policy.Container {
	return policy.Container{Name: name, Requests: resources.List{}.With(resources.CPU, a)}
}

func lowered(minutes int) rollout.Change {
	return rollout.Change{At: plugintest.Before(minutes), Ready: true, Containers: []rollout.ContainerChange{{From: cpu("a", 800), To: cpu("a", 400)}}}
}

type shown struct {
	rollout loadlinev1alpha1.Rollout
	state   rollout.State     // recorded state, ignored without a mode
	Notes   map[string]string // annotations of the first of two pods
	going   bool              // the first pod is being deleted
	written bool              // the VPA is a user VPA
	edit    func(*loadlinev1alpha1.SizingPolicy, *loadlinev1alpha1.SizingRecord)
	list    error               // error of listing pods
	updater explanation.Rollout // computed by the updater, phase defaults to that of state
	silent  bool                // the updater does not respond
}

// lines returns the output of explain without its first line.
func (c shown) lines(t *testing.T) string {
	t.Helper()
	client, _, _, book := saved(t, "", true)
	vpas := client.AutoscalingV1().VerticalPodAutoscalers("ns")
	v, err := vpas.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	if !c.written {
		v.Name = "deployment-web"
		v.Labels = map[string]string{fleet.PolicyLabel: "shop"}
		v.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	}
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"ns"}},
		Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}}, Rollout: &c.rollout,
	}}
	c.state.Hash = convert.RolloutSettings(p).Hash
	r := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "deployment-web"}, Status: convert.RecordStatus(c.state)}
	if c.edit != nil {
		c.edit(p, r)
	}
	require.NoError(t, client.Tracker().Add(p))
	if c.state.Mode != fleet.Inherit {
		require.NoError(t, client.Tracker().Add(r))
	}
	pods := map[string]string{"app": "web"}
	pod := func(name string, notes map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: pods, Annotations: notes, OwnerReferences: plugintest.OwnedBy("ReplicaSet", "web-1")},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	}
	first := pod("web-1", c.Notes)
	if c.going {
		first.DeletionTimestamp, first.Finalizers = &metav1.Time{Time: plugintest.Now()}, []string{"example.com/wait"}
	}
	kube := kubefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, pod("web-2", nil), first,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pods}}})
	kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return c.list != nil, nil, c.list })
	if !c.silent {
		c.updater.Policy, c.updater.Phase = "shop", cmp.Or(c.updater.Phase, c.state.Phase)
		answerPod(t, kube, &explanation.Pod{VPA: v.Name, Rollout: &c.updater})
	}
	a := &vpaReport{VPA: v, Computed: book.ForAnnotation("")}
	q := inventory.Request{Namespace: "ns", Name: v.Name, Book: book, Now: plugintest.Now(), Kube: kube, Programs: "kube-system"}
	a.resolvePolicy(t.Context(), client, q)
	a.queryRollout(t.Context(), q)
	var out bytes.Buffer
	require.NoError(t, a.Print(&out))
	_, after, _ := strings.Cut(out.String(), "\n")
	return after
}

func TestExplainVPA_Rollout(t *testing.T) {
	mode := func(m loadlinev1alpha1.RolloutMode) loadlinev1alpha1.Rollout {
		return loadlinev1alpha1.Rollout{Mode: &m, StartRate: new(int32(0))}
	}
	canary := mode(loadlinev1alpha1.RolloutModeCanary)
	canary.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(50))}
	promoting := canary
	promoting.Canary = &loadlinev1alpha1.Canary{Percentage: new(int32(50)), AutoPromote: new(true), ObservationPeriod: &metav1.Duration{Duration: time.Hour}}
	auto := mode(loadlinev1alpha1.RolloutModeAuto)
	round := func(o rollout.Outcome, why rollout.Harm) []rollout.Round {
		return []rollout.Round{{Time: plugintest.Before(20), Pods: 1, From: []policy.Container{cpu("a", 800)}, To: []policy.Container{cpu("a", 400)}, Outcome: o, Reason: why}}
	}
	member := func(o rollout.Outcome) []rollout.Member { return []rollout.Member{{UID: "web-1", Outcome: o}} }
	for name, c := range map[string]struct {
		shown
		want string
	}{
		"not started": {shown{rollout: auto}, `
SizingPolicy: shop, mode Auto
  last round  none: no pod was changed yet
  new pods    get what is recommended
`},
		"not started because of the start rate": {shown{rollout: auto, edit: func(p *loadlinev1alpha1.SizingPolicy, _ *loadlinev1alpha1.SizingRecord) {
			p.Spec.Rollout.StartRate = nil
		}}, `
SizingPolicy: shop, mode Auto
  last round  none: no pod was changed yet
  start rate  the policy starts at most 10 workloads in the first hour, and doubles their number each hour: spec.rollout.startRate (StartRate)
  new pods    get what is recommended
`},
		"fuse that has tripped": {shown{rollout: auto, edit: func(p *loadlinev1alpha1.SizingPolicy, _ *loadlinev1alpha1.SizingRecord) {
			p.Status.Conditions = []metav1.Condition{convert.FuseCondition(p, rollout.Trip{At: plugintest.Before(5), Reverted: 3, Judged: 10}, plugintest.Before(0))}
		}}, `
SizingPolicy: shop, mode Auto
  last round  none: no pod was changed yet
  fuse        tripped at 2026-03-02T07:55:00Z, because too many rounds of the policy were reverted: no pod is changed until you acknowledge it: kubectl annotate --overwrite sizingpolicy shop loadline.dev/acknowledge=2026-03-02T07:55:00Z (FuseTripped)
  new pods    get what is recommended
`},
		"fuse that holds another namespace": {shown{rollout: auto, edit: func(p *loadlinev1alpha1.SizingPolicy, _ *loadlinev1alpha1.SizingRecord) {
			trip := rollout.Trip{At: plugintest.Before(5), Reverted: 3, Judged: 10, Namespaces: []string{"attacker"}}
			p.Status.Conditions = []metav1.Condition{convert.FuseCondition(p, trip, plugintest.Before(0))}
		}}, `
SizingPolicy: shop, mode Auto
  last round  none: no pod was changed yet
  new pods    get what is recommended
`},
		"Recommend": {shown{rollout: mode(loadlinev1alpha1.RolloutModeRecommend)}, `
SizingPolicy: shop, mode Recommend; running pods are skipped: RecommendOnly
`},
		"canary not begun": {shown{updater: explanation.Rollout{Phase: rollout.PhaseCanary, Canary: rollout.NotObserved}, rollout: canary}, `
SizingPolicy: shop, mode Canary
  phase         Canary, which has not begun
  not promoted  NotObserved: no change of a member ended in Success yet
  last round    none: no pod was changed yet
  new pods      as they are written: InitialSizingOff
`},
		"canary with a member that is still observed": {shown{updater: explanation.Rollout{Canary: rollout.MemberNotSuccessful}, rollout: canary, Notes: convert.FormatChange(lowered(2)), state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Success), CanarySince: plugintest.Before(20), CooldownUntil: plugintest.Before(5)}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, 1 of 1 members did well, since 2026-03-02T07:40:00Z
  not promoted  MemberNotSuccessful: a change of a member ended otherwise, or is still to come
  last round    none: no pod was changed yet
  new pods      as they are written: InitialSizingOff
  pod web-1     under observation since 2026-03-02T07:58:00Z, until 2026-03-02T08:03:00Z
`},
		"canary with a member that goes": {shown{updater: explanation.Rollout{Canary: rollout.NotObserved}, rollout: canary, going: true, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Failed), CanarySince: plugintest.Before(20)}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, 0 of 1 members did well, 1 did not, since 2026-03-02T07:40:00Z
  not promoted  NotObserved: no change of a member ended in Success yet
  last round    none: no pod was changed yet
  new pods      as they are written: InitialSizingOff
`},
		"canary that is paused": {shown{rollout: canary, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Success), CanarySince: plugintest.Before(20), CooldownUntil: plugintest.Before(-40)},
			edit: func(p *loadlinev1alpha1.SizingPolicy, _ *loadlinev1alpha1.SizingRecord) { p.Spec.Paused = new(true) }}, `
SizingPolicy: shop, mode Recommend; running pods are skipped: PolicyPaused
  phase       Canary, 1 of 1 members did well, since 2026-03-02T07:40:00Z
  last round  none: no pod was changed yet
  new pods    as they are written: PolicyPaused
`},
		"halted before what is recommended changed": {shown{updater: explanation.Rollout{Phase: rollout.PhaseCanary, Canary: rollout.NotObserved}, rollout: canary, state: rollout.State{Mode: fleet.Canary, Phase: rollout.PhaseHalted, HaltedTarget: []policy.Container{cpu("a", 200)}}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, which has not begun
  not promoted  NotObserved: no change of a member ended in Success yet
  last round    none: no pod was changed yet
  new pods      as they are written: InitialSizingOff
`},
		"canary under observation": {shown{updater: explanation.Rollout{Canary: rollout.RoundOpen}, rollout: canary, Notes: convert.FormatChange(lowered(2)), state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(""), CanarySince: plugintest.Before(2), Rounds: round("", "")}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, 0 of 1 members did well, since 2026-03-02T07:58:00Z
  not promoted  RoundOpen: its members are still changed or observed
  last round    2026-03-02T07:40:00Z, pods changed: 1, in progress
                container a: cpu 800m to 400m
  new pods      as they are written: InitialSizingOff
  pod web-1     under observation since 2026-03-02T07:58:00Z, until 2026-03-02T08:03:00Z
`},
		"canary that did well": {shown{updater: explanation.Rollout{Canary: rollout.AutoPromoteOff, Next: plugintest.Before(-40)}, rollout: canary, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Success), CanarySince: plugintest.Before(20), Rounds: round(rollout.Success, ""), CooldownUntil: plugintest.Before(-40)}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, 1 of 1 members did well, since 2026-03-02T07:40:00Z
  not promoted  AutoPromoteOff: manual promotion is required: spec.rollout.canary.autoPromote is not true
  last round    2026-03-02T07:40:00Z, pods changed: 1, Success
                container a: cpu 800m to 400m
  cooldown      until 2026-03-02T08:40:00Z
  next change   not before 2026-03-02T08:40:00Z
  new pods      as they are written: InitialSizingOff
`},
		"canary that is to be watched": {shown{updater: explanation.Rollout{Canary: rollout.PeriodNotOver}, rollout: promoting, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Success), CanarySince: plugintest.Before(20), Rounds: round(rollout.Success, "")}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, 1 of 1 members did well, since 2026-03-02T07:40:00Z
  not promoted  PeriodNotOver: it is observed until 2026-03-02T08:40:00Z
  last round    2026-03-02T07:40:00Z, pods changed: 1, Success
                container a: cpu 800m to 400m
  new pods      as they are written: InitialSizingOff
`},
		"canary that did harm": {shown{updater: explanation.Rollout{Canary: rollout.MemberNotSuccessful, Next: plugintest.Before(-100)}, rollout: canary, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Failed), Rounds: round(rollout.Reverted, rollout.OOMKill), CooldownUntil: plugintest.Before(-100),
			ProvenResources: []policy.Container{cpu("a", 800)}, RevertedResources: []rollout.RevertedResources{{Container: cpu("a", 400), At: plugintest.Before(10)}}}}, `
SizingPolicy: shop, mode Canary
  phase         Canary, 0 of 1 members did well, 1 did not
  not promoted  MemberNotSuccessful: a change of a member ended otherwise, or is still to come
  last round    2026-03-02T07:40:00Z, pods changed: 1, Reverted: OOMKilled
                container a: cpu 800m to 400m
  cooldown      until 2026-03-02T09:40:00Z, extended after consecutive reverted rounds: 1
  next change   not before 2026-03-02T09:40:00Z
  kept          container a: cpu 800m, although 400m is recommended, because less did harm
  new pods      as they are written: InitialSizingOff
`},
		"revert that the node did not apply": {shown{rollout: auto, state: rollout.State{Mode: fleet.Auto, Rounds: round(rollout.RevertDeferred, rollout.OOMKill)}}, `
SizingPolicy: shop, mode Auto
  last round  2026-03-02T07:40:00Z, pods changed: 1, Deferred: OOMKilled; the node did not apply the revert in time
              container a: cpu 800m to 400m
  new pods    get what is recommended
`},
		"canary whose nodes are full": {shown{updater: explanation.Rollout{Canary: rollout.MemberNotSuccessful}, rollout: canary, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(""), CanarySince: plugintest.Before(20), Rounds: round(rollout.Superseded, ""),
			ResizeBlocked: rollout.Condition{Reason: "PodsDeferred", Since: plugintest.Before(15)}}}, `
SizingPolicy: shop, mode Canary
  phase          Canary, 0 of 1 members did well, since 2026-03-02T07:40:00Z
  not promoted   MembersBlocked: the nodes of its members do not grant the change
  last round     2026-03-02T07:40:00Z, pods changed: 1, Superseded
                 container a: cpu 800m to 400m
  ResizeBlocked  since 2026-03-02T07:45:00Z, PodsDeferred: No node of the pods to change has room for the resize now.
  new pods       as they are written: InitialSizingOff
`},
		"full rollout": {shown{rollout: canary, state: rollout.State{Mode: fleet.Canary, Phase: rollout.PhaseFullRollout, Rounds: round(rollout.Success, "")}}, `
SizingPolicy: shop, mode Canary
  phase       FullRollout
  last round  2026-03-02T07:40:00Z, pods changed: 1, Success
              container a: cpu 800m to 400m
  new pods    get what is recommended
`},
		"full rollout of another recipe": {shown{updater: explanation.Rollout{Phase: rollout.PhaseCanary, Canary: rollout.NotObserved}, rollout: canary, state: rollout.State{Mode: fleet.Canary, Phase: rollout.PhaseFullRollout, Rounds: round(rollout.Success, "")},
			edit: func(_ *loadlinev1alpha1.SizingPolicy, r *loadlinev1alpha1.SizingRecord) {
				r.Status.PolicyHash = "former"
			}}, `
SizingPolicy: shop, mode Canary
  policy        changed since the last change of a pod: the rollout begins anew
  phase         Canary, which has not begun
  not promoted  NotObserved: no change of a member ended in Success yet
  last round    2026-03-02T07:40:00Z, pods changed: 1, Success
                container a: cpu 800m to 400m
  new pods      as they are written: InitialSizingOff
`},
		"halted": {shown{rollout: canary, state: rollout.State{Mode: fleet.Canary, Phase: rollout.PhaseHalted, HaltedTarget: []policy.Container{cpu("a", 400)}, Rounds: round(rollout.Reverted, rollout.Restart),
			Degraded: rollout.Condition{Reason: "HighRevertRate", Since: plugintest.Before(10)}}}, `
SizingPolicy: shop, mode Canary
  phase       Halted, until the recommendation or the policy changes: changes were reverted repeatedly
  last round  2026-03-02T07:40:00Z, pods changed: 1, Reverted: Restarts
              container a: cpu 800m to 400m
  Degraded    since 2026-03-02T07:50:00Z, HighRevertRate: At least three of the last five rounds were reverted.
  new pods    as they are written: InitialSizingOff
`},
		"closed window": {shown{updater: explanation.Rollout{Next: plugintest.Now().Add(14 * time.Hour)}, rollout: loadlinev1alpha1.Rollout{Mode: auto.Mode, StartRate: auto.StartRate, Schedule: &loadlinev1alpha1.Schedule{Windows: []loadlinev1alpha1.Window{{Start: "22:00", End: "06:00"}}}},
			state: rollout.State{Mode: fleet.Auto, ScheduleBlocked: rollout.Condition{Reason: "OutsideWindow", Since: plugintest.Before(90)}}}, `
SizingPolicy: shop, mode Auto
  last round       none: no pod was changed yet
  next change      not before 2026-03-02T22:00:00Z
  ScheduleBlocked  since 2026-03-02T06:30:00Z, OutsideWindow: The schedule of the policy does not allow changes now.
  new pods         get what is recommended
`},
		"paused under observation": {shown{rollout: auto, Notes: convert.FormatChange(lowered(2)), state: rollout.State{Mode: fleet.Auto, Rounds: round("", "")},
			edit: func(p *loadlinev1alpha1.SizingPolicy, _ *loadlinev1alpha1.SizingRecord) { p.Spec.Paused = new(true) }}, `
SizingPolicy: shop, mode Recommend; running pods are skipped: PolicyPaused
  last round  2026-03-02T07:40:00Z, pods changed: 1, in progress
              container a: cpu 800m to 400m
  new pods    as they are written: PolicyPaused
  pod web-1   under observation since 2026-03-02T07:58:00Z, until 2026-03-02T08:03:00Z
`},
		"waiting for a node": {shown{rollout: auto, written: true, Notes: convert.FormatChange(rollout.Change{At: plugintest.Before(2), Pending: true, Containers: lowered(2).Containers})}, `
SizingPolicy: shop, mode Auto
  last round  none: no pod was changed yet
  new pods    as the VPA says
  pod web-1   changed at 2026-03-02T07:58:00Z, and its node has not begun: the observation begins then
`},
		"a note that cannot be read": {shown{rollout: auto, Notes: map[string]string{convert.ResizedAtAnnotation: "today"}}, `
SizingPolicy: shop, mode Auto
  last round  none: no pod was changed yet
  new pods    get what is recommended
  pod web-1   under observation, but it cannot be judged: annotation loadline.dev/resized-at: parsing time "today" as "2006-01-02T15:04:05Z07:00": cannot parse "today" as "2006"
`},
		"a record that cannot be read": {shown{rollout: auto, state: rollout.State{Mode: fleet.Auto}, edit: func(_ *loadlinev1alpha1.SizingPolicy, r *loadlinev1alpha1.SizingRecord) {
			r.Annotations = map[string]string{vpav1.UnreadableAnnotation: "status: cpu"}
		}}, `
SizingPolicy: shop, mode Auto
! the rollout state is unknown, so no running pod is changed: SizingRecords cannot be read: ns/deployment-web: status: cpu
  new pods  as they are written
`},
		"pods that may not be listed": {shown{rollout: canary, list: errors.New("forbidden"), state: rollout.State{Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Success), CanarySince: plugintest.Before(20)}}, `
SizingPolicy: shop, mode Canary
  phase       Canary, 1 of 1 members did well, since 2026-03-02T07:40:00Z
  last round  none: no pod was changed yet
  new pods    as they are written: InitialSizingOff
! it is not known which pods are under observation: list pods: forbidden
`},
		"without an answer of the updater": {shown{rollout: canary, silent: true, state: rollout.State{
			Mode: fleet.Canary, Phase: rollout.PhaseCanary, Members: member(rollout.Success), CanarySince: plugintest.Before(20), CooldownUntil: plugintest.Before(-40)}}, `
SizingPolicy: shop, mode Canary
  phase       Canary, 1 of 1 members did well, since 2026-03-02T07:40:00Z
  last round  none: no pod was changed yet
  cooldown    until 2026-03-02T08:40:00Z
  new pods    as they are written: InitialSizingOff
! the rollout is as the updater stored it last: query the updater in namespace kube-system: no pod found
`},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, strings.TrimPrefix(c.want, "\n"), c.lines(t)) })
	}
}
