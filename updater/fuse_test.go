package updater

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
)

// fuseCluster is a cluster of many Deployments of one pod each, under one policy with a recipe that
// lowers all resources.
type fuseCluster struct {
	*rolling
	changed  map[string]bool // changed pods
	minute   int             // of the last iteration
	harmless bool            // no workload is harmed
}

func newFuseCluster(t *testing.T, workloads int, policy *loadlinev1alpha1.SizingPolicy) *fuseCluster {
	t.Helper()
	objects := []runtime.Object{policy, healthy("n1")}
	for i := range workloads {
		objects = append(objects, renamedDeployment(fmt.Sprintf("app-%04d", i))...)
	}
	config := Default()
	config.Disruption.MinReplicas = 1
	s := &fuseCluster{rolling: roll(t, config, objects...), changed: map[string]bool{}, minute: -1}
	s.events.Events = make(chan string, 100000)
	return s
}

// renamedDeployment returns the objects of deployment and generatedVPA under another name.
func renamedDeployment(name string) (objects []runtime.Object) {
	rename := func(m *metav1.ObjectMeta) {
		m.Name, m.UID = strings.Replace(m.Name, "web", name, 1), types.UID(name+"-"+string(m.UID))
		for i := range m.OwnerReferences {
			m.OwnerReferences[i].Name = strings.Replace(m.OwnerReferences[i].Name, "web", name, 1)
		}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	for _, o := range append(deployment(1, nil), lowering(generatedVPA())) {
		switch o := o.(type) {
		case *appsv1.Deployment:
			rename(&o.ObjectMeta)
			o.Spec.Selector = selector
		case *appsv1.ReplicaSet:
			rename(&o.ObjectMeta)
			o.Spec.Selector = selector
		case *corev1.Pod:
			rename(&o.ObjectMeta)
			o.Labels = map[string]string{"app": name}
			o.Spec.NodeName = "n1"
		case *vpav1.VerticalPodAutoscaler:
			rename(&o.ObjectMeta)
			o.Spec.TargetRef.Name = name
		}
		objects = append(objects, o)
	}
	return objects
}

// runUntil runs an iteration each minute. Containers of one in three workloads keep restarting
// while they have less memory than before the recipe lowered it.
func (s *fuseCluster) runUntil(minute int) {
	s.t.Helper()
	for s.minute < minute {
		s.minute++
		after := time.Duration(s.minute) * time.Minute
		s.judge(after)
		for _, name := range s.at(after) {
			s.changed[name] = true
		}
		s.restartHarmed()
	}
}

func (s *fuseCluster) restartHarmed() {
	s.t.Helper()
	for name := range s.changed {
		var i int
		_, err := fmt.Sscanf(name, "app-%d-1-0", &i)
		require.NoError(s.t, err)
		pod := s.pod(name)
		if memory := pod.Spec.Containers[0].Resources.Requests.Memory(); s.harmless || i%3 != 0 || memory.Cmp(resource.MustParse("100Mi")) >= 0 {
			continue
		}
		restarts := int32(1)
		if all := pod.Status.ContainerStatuses; len(all) > 0 {
			restarts += all[0].RestartCount
		}
		s.restarted(name, restarts)
	}
}

func (s *fuseCluster) condition() *metav1.Condition {
	p, err := s.vpa.LoadlineV1alpha1().SizingPolicies().Get(s.t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(s.t, err)
	return meta.FindStatusCondition(p.Status.Conditions, convert.ConditionFuseTripped)
}

// update changes the policy or its status and waits for the informer cache.
func (s *fuseCluster) update(change func(*loadlinev1alpha1.SizingPolicy)) {
	s.t.Helper()
	policies := s.vpa.LoadlineV1alpha1().SizingPolicies()
	p, err := policies.Get(s.t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(s.t, err)
	p = p.DeepCopy()
	change(p)
	s.steps++
	p.Labels = map[string]string{"step": fmt.Sprint(s.steps)}
	_, err = policies.Update(s.t.Context(), p, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	s.awaitPolicy(p.Labels["step"])
}

func (s *fuseCluster) awaitPolicy(step string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		known := s.caches.policies.Snapshot().Object("fleet")
		return known != nil && known.Labels["step"] == step
	}, time.Minute, time.Millisecond)
}

func (s *fuseCluster) acknowledge(value string) {
	s.update(func(p *loadlinev1alpha1.SizingPolicy) {
		p.Annotations = map[string]string{convert.AcknowledgeAnnotation: value}
	})
}

func newTrippedFuse(t *testing.T, workloads int, changes ...func(*loadlinev1alpha1.SizingPolicySpec)) *fuseCluster {
	t.Helper()
	s := newFuseCluster(t, workloads, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, changes...))
	s.runUntil(30)
	require.NotNil(t, s.condition())
	require.Equal(t, metav1.ConditionTrue, s.condition().Status)
	return s
}

func TestFuse_TripsWhenOneInThreeIsHarmed(t *testing.T) {
	for workloads, minutes := range map[int]int{200: 130, 2000: 12} {
		t.Run(fmt.Sprint(workloads), func(t *testing.T) {
			s := newFuseCluster(t, workloads, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
			s.runUntil(0)
			require.Len(t, s.changed, 10, "the policy is new")
			require.Equal(t, workloads-10, s.skipped("StartRate"))
			require.Zero(t, s.value("loadline_policy_fuse_tripped", "policy", "fleet"))
			require.Nil(t, s.condition())

			s.runUntil(minutes)
			require.LessOrEqual(t, len(s.changed), 15)
			require.EqualValues(t, 1, s.value("loadline_policy_fuse_tripped", "policy", "fleet"))
			require.Positive(t, s.skipped("FuseTripped"))
			c := s.condition()
			require.Equal(t, metav1.ConditionTrue, c.Status)
			require.Equal(t, "TooManyReverts", c.Reason)
			require.Contains(t, c.Message, "kubectl annotate --overwrite sizingpolicy fleet loadline.dev/acknowledge="+c.LastTransitionTime.UTC().Format(time.RFC3339))
			events := slices.DeleteFunc(s.drainEvents(), func(line string) bool { return !strings.HasPrefix(line, "Warning FuseTripped ") })
			require.Len(t, events, 1, "once")
			for name := range s.changed {
				require.Empty(t, s.pod(name).Annotations[convert.ResizedAtAnnotation], "observations end")
			}
		})
	}
}

func TestFuse_RequiresValidAcknowledgement(t *testing.T) {
	s := newTrippedFuse(t, 60)
	since := s.condition().LastTransitionTime.UTC()
	touched := len(s.changed)
	message := s.condition().Message
	require.NotContains(t, message, "Invalid value")
	for _, tc := range []struct{ name, value, problem string }{
		{"a time before the trip", since.Add(-time.Second).Format(time.RFC3339), "is before the trip"},
		{"a time ahead of the clock", since.Add(1000 * time.Hour).Format(time.RFC3339), "is in the future"},
		{"no time", "true", "is not a time (RFC 3339)"},
		{"nothing", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.drainEvents()
			s.acknowledge(tc.value)
			s.runUntil(s.minute + 21)
			require.Len(t, s.changed, touched)
			require.Equal(t, metav1.ConditionTrue, s.condition().Status)
			require.Equal(t, since, s.condition().LastTransitionTime.UTC())
			want, events := message, 0
			if tc.problem != "" {
				want += fmt.Sprintf("; metadata.annotations[loadline.dev/acknowledge]: Invalid value: %q: %s, must be %s", tc.value, tc.problem, since.Format(time.RFC3339))
			}
			require.Equal(t, want, s.condition().Message)
			for _, line := range s.drainEvents() {
				if strings.HasPrefix(line, "Warning FuseTripped ") {
					events++
				}
			}
			require.Equal(t, 1, events, "once for each value")
		})
	}
	s.acknowledge(since.Format(time.RFC3339))
	s.runUntil(s.minute + 1)
	require.Equal(t, metav1.ConditionFalse, s.condition().Status)
	require.Equal(t, "Acknowledged", s.condition().Reason)
	require.Zero(t, s.value("loadline_policy_fuse_tripped", "policy", "fleet"))
	require.Greater(t, len(s.changed), touched)

	s.runUntil(s.minute + 20) // the recipe is unchanged
	again := s.condition()
	require.Equal(t, metav1.ConditionTrue, again.Status, "an old acknowledgement does not cover a later trip")
	require.True(t, again.LastTransitionTime.After(since))
	require.LessOrEqual(t, len(s.changed), 2*touched)
}

func TestFuse_SurvivesRestartAndLostState(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, s *fuseCluster)
	}{
		{"another leader", func(*testing.T, *fuseCluster) {}},
		{"the condition is lost", func(_ *testing.T, s *fuseCluster) {
			s.update(func(p *loadlinev1alpha1.SizingPolicy) { p.Status = loadlinev1alpha1.SizingPolicyStatus{} })
		}},
		{"the records are lost", func(t *testing.T, s *fuseCluster) {
			for name := range s.changed {
				err := s.vpa.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), "deployment-"+strings.TrimSuffix(name, "-1-0"), metav1.DeleteOptions{})
				require.NoError(t, err)
			}
		}},
		{"the policy is created again", func(t *testing.T, s *fuseCluster) {
			policies := s.vpa.LoadlineV1alpha1().SizingPolicies()
			require.NoError(t, policies.Delete(t.Context(), "fleet", metav1.DeleteOptions{}))
			require.Eventually(t, func() bool { return s.caches.policies.Snapshot().Object("fleet") == nil }, time.Minute, time.Millisecond)
			s.runUntil(s.minute + 1)
			again := sizingPolicy(loadlinev1alpha1.RolloutModeAuto)
			again.Labels = map[string]string{"step": "again"}
			_, err := policies.Create(t.Context(), again, metav1.CreateOptions{})
			require.NoError(t, err)
			s.awaitPolicy("again")
		}},
		{"the recipe changes", func(_ *testing.T, s *fuseCluster) {
			s.update(func(p *loadlinev1alpha1.SizingPolicy) { p.Spec.Recipe = new("loadline") })
		}},
		{"the clock goes back by two hours", func(_ *testing.T, s *fuseCluster) { s.minute -= 120 }},
		{"the clock is a day ahead", func(_ *testing.T, s *fuseCluster) { s.minute += 24 * 60 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTrippedFuse(t, 20)
			touched := len(s.changed)
			tc.change(t, s)
			s.restart()
			s.events.Events = make(chan string, 100000)
			s.runUntil(s.minute + 130)
			require.Len(t, s.changed, touched)
			require.Equal(t, metav1.ConditionTrue, s.condition().Status)
		})
	}
}

// The recommender writes other conditions of the same policy concurrently.
func TestFuse_KeepsRecommenderConditions(t *testing.T) {
	s := newFuseCluster(t, 12, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	resource, conflicts := loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingpolicies"), 0
	s.vpa.PrependReactor("patch", "sizingpolicies", func(a ktesting.Action) (bool, runtime.Object, error) {
		var asked struct{ Metadata metav1.ObjectMeta }
		require.NoError(t, json.Unmarshal(a.(ktesting.PatchAction).GetPatch(), &asked))
		object, err := s.vpa.Tracker().Get(resource, "", "fleet")
		require.NoError(t, err)
		stored := object.(*loadlinev1alpha1.SizingPolicy).DeepCopy()
		if stored.ResourceVersion == "" { // the recommender writes first
			stored.ResourceVersion = "2"
			stored.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"}}
			require.NoError(t, s.vpa.Tracker().Update(resource, stored, ""))
		}
		if asked.Metadata.ResourceVersion != stored.ResourceVersion {
			conflicts++
			return true, nil, apierrors.NewConflict(resource.GroupResource(), "fleet", errors.New("it was modified"))
		}
		return false, nil, nil
	})
	for conflicts == 0 && s.minute < 30 {
		s.runUntil(s.minute + 1)
	}
	require.Equal(t, 1, conflicts)
	require.Nil(t, s.condition())
	require.Eventually(t, func() bool { return s.caches.policies.Snapshot().Object("fleet").ResourceVersion == "2" }, time.Minute, time.Millisecond)
	s.runUntil(s.minute + 1)
	require.Equal(t, 1, conflicts)
	require.Equal(t, metav1.ConditionTrue, s.condition().Status)
	p, err := s.vpa.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), "fleet", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, "Ready"))
}

// A new policy for the same workloads needs an acknowledgement of its own.
func TestFuse_AppliesToNewPolicyWithHigherPriority(t *testing.T) {
	s := newTrippedFuse(t, 20)
	touched := len(s.changed)
	other := sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(p *loadlinev1alpha1.SizingPolicySpec) { p.Priority = new(int32(900)) })
	other.Name = "other"
	policies := s.vpa.LoadlineV1alpha1().SizingPolicies()
	_, err := policies.Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.caches.policies.Snapshot().Object("other") != nil }, time.Minute, time.Millisecond)
	s.runUntil(s.minute + 61)
	require.Len(t, s.changed, touched)
	require.EqualValues(t, 1, s.value("loadline_policy_fuse_tripped", "policy", "other"))
	p, err := policies.Get(t.Context(), "other", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, convert.ConditionFuseTripped))
}

// Without a start rate, one iteration may change all workloads.
func TestFuse_TripsDuringIteration(t *testing.T) {
	s := newFuseCluster(t, 20, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, func(p *loadlinev1alpha1.SizingPolicySpec) { p.Rollout.StartRate = new(int32(0)) }))
	s.loop.runner.Executor = &hookedExecutor{s.loop.runner.Executor, func(pod string) {
		if pod != "app-0008-1-0" {
			return
		}
		for i := range 5 {
			name := fmt.Sprintf("app-%04d-1-0", i)
			s.settled(name)
			s.await("the note", func(c *corev1.Pod) bool { return convert.HasNotedChange(c) }, name)
			s.restarted(name, 2)
			_, err := s.observer.Sync(t.Context(), cache.NewObjectName("shop", name), noon)
			require.NoError(t, err)
		}
	}}
	s.runOnce(noon)
	lowered := 0
	for _, p := range s.pods() {
		if convert.HasNotedChange(&p) {
			lowered++
		}
	}
	require.Equal(t, 4, lowered, "those on their way, no other one is changed")
	require.Equal(t, 11, s.skipped("FuseTripped"))
	require.Equal(t, metav1.ConditionTrue, s.condition().Status, "in the same pass")
}

func TestStartRate_SurvivesRestart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*loadlinev1alpha1.SizingPolicySpec)
		started int // pods changed after two hours
	}{
		{name: "another leader", started: 40},
		{name: "the schedule changes", change: func(p *loadlinev1alpha1.SizingPolicySpec) { p.Rollout.Schedule = &loadlinev1alpha1.Schedule{} }, started: 40},
		{name: "the limit is lifted", change: func(p *loadlinev1alpha1.SizingPolicySpec) { p.Rollout.StartRate = new(int32(0)) }, started: 80},
		{name: "the recipe changes", change: func(p *loadlinev1alpha1.SizingPolicySpec) { p.Recipe = new("loadline") }, started: 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFuseCluster(t, 80, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
			s.harmless = true
			s.runUntil(30)
			require.Len(t, s.changed, 10)
			s.restart()
			s.events.Events = make(chan string, 100000)
			s.runUntil(59)
			require.Len(t, s.changed, 10)
			s.runUntil(119)
			require.Len(t, s.changed, 20)
			if tc.change != nil {
				s.update(func(p *loadlinev1alpha1.SizingPolicy) { tc.change(&p.Spec) })
			}
			s.runUntil(125)
			require.Len(t, s.changed, tc.started)
		})
	}
}

func TestStartRate_IgnoresBlockedWorkloads(t *testing.T) {
	s := newFuseCluster(t, 30, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	s.harmless = true
	for i := range 15 {
		s.change(fmt.Sprintf("app-%04d-1-0", i), func(p *corev1.Pod) { p.Spec.NodeName = "unknown" })
	}
	s.runUntil(1)
	require.Len(t, s.changed, 10)
}

func TestFuse_AllowsMemoryAfterOOMKill(t *testing.T) {
	s := newTrippedFuse(t, 40)
	name := "app-0039-1-0"
	require.False(t, s.changed[name])
	vpas := s.vpa.AutoscalingV1().VerticalPodAutoscalers("shop")
	vpa, err := vpas.Get(t.Context(), fleet.GeneratedVPAName("Deployment", "apps", "app-0039"), metav1.GetOptions{})
	require.NoError(t, err)
	vpa = vpa.DeepCopy()
	one := &vpa.Status.Recommendation.ContainerRecommendations[0]
	one.LowerBound, one.Target, one.UpperBound = list("100m", "300Mi"), list("100m", "300Mi"), list("100m", "300Mi")
	_, err = vpas.Update(t.Context(), vpa, metav1.UpdateOptions{})
	require.NoError(t, err)
	now := noon.Add(time.Duration(s.minute+1) * time.Minute)
	s.change(name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 1, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: convert.OOMKilled, FinishedAt: metav1.NewTime(now.Add(-time.Second))}}}}
	})
	s.runOnce(now)
	require.Equal(t, "300Mi", s.pod(name).Spec.Containers[0].Resources.Requests.Memory().String())
}
