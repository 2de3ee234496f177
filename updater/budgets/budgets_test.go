package budgets

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/kube/client"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func pod(name, owner string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, Controller: new(true)}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func budgetOf(name string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}}
}

func labelled(value string) map[string]string { return map[string]string{"app": value} }

func reader(t *testing.T, known bool, objects ...any) *Budgets {
	t.Helper()
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	pods, budgets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace), cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace)
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			require.NoError(t, pods.Add(p))
			continue
		}
		trimmed, err := Trim(o)
		require.NoError(t, err)
		require.NoError(t, budgets.Add(trimmed))
	}
	return &Budgets{pods: corelisters.NewPodLister(pods), budgets: policylisters.NewPodDisruptionBudgetLister(budgets), synced: func() bool { return known }}
}

func TestMark_SetsBudgetsOfPods(t *testing.T) {
	all := []any{pod("a", "a-1", labelled("a")), pod("b", "b-1", labelled("b")), budgetOf("second", &metav1.LabelSelector{MatchLabels: labelled("a")}), budgetOf("all", &metav1.LabelSelector{}), budgetOf("none", nil)}
	mark := func(r *Budgets, a disruption.Action) (names [][]string) {
		v := disruption.View{VPAs: []disruption.VPA{{Pods: []disruption.Pod{{Namespace: "shop", UID: "a"}, {Namespace: "shop", UID: "b"}, {Namespace: "shop", UID: "gone"}, {Namespace: "bank", UID: "a"}}}}}
		a.Namespace = "shop"
		r.AddBudgets(&v, []disruption.Action{a}, noon)
		for _, p := range v.VPAs[0].Pods {
			names = append(names, p.Budgets)
		}
		return names
	}
	want := [][]string{{"all", "second"}, {"all"}, nil, nil}
	require.Equal(t, want, mark(reader(t, true, all...), disruption.Action{Restarts: true}))
	require.Equal(t, want, mark(reader(t, true, all...), disruption.Action{Evict: true}))
	require.Equal(t, want, mark(reader(t, true, all...), disruption.Action{MayEvict: true}))
	require.Equal(t, make([][]string, 4), mark(reader(t, true, all...), disruption.Action{}), "nobody is disrupted")
	require.Equal(t, [][]string{{UnknownBudgets}, {UnknownBudgets}, nil, nil}, mark(reader(t, false, all...), disruption.Action{Restarts: true}))
}

func largeSelector(n int) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for i := range n {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprintf("key-%d", i), Operator: metav1.LabelSelectorOpExists})
	}
	return s
}

// A budget with a selector that is not evaluated may select any pod of its namespace.
func TestBudgets_BlocksDisruptionsForOversizedSelectors(t *testing.T) {
	for _, tc := range []struct {
		name         string
		requirements int
		held         bool
	}{
		{name: "100 requirements", requirements: 100, held: false},
		{name: "40,000 requirements", requirements: 40_000, held: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reader(t, true, pod("a", "a-1", labelled("a")), budgetOf("large", largeSelector(tc.requirements)))
			err := r.Oversized(pod("a", "a-1", labelled("a")), noon)
			require.Equal(t, tc.held, errors.Is(err, client.ErrSelectorTooLarge))
			if tc.held {
				require.ErrorContains(t, err, "PodDisruptionBudget shop/large")
			}
			other := pod("b", "b-1", labelled("b"))
			other.Namespace = "bank"
			require.NoError(t, r.Oversized(other, noon), "another namespace")
		})
	}
}

// 40 budgets with large selectors took 12 seconds of each iteration.
func TestBudgets_ParsesEachBudgetOnce(t *testing.T) {
	all := []any{pod("a", "a-1", labelled("a"))}
	for i := range 40 {
		all = append(all, budgetOf(fmt.Sprint("b-", i), largeSelector(40)))
	}
	r := reader(t, true, all...)
	enter := func() {
		_, err := r.Reserve(pod("a", "a-1", labelled("a")), false, noon)
		require.NoError(t, err)
	}
	enter()
	before := r.inNamespace("shop", noon)
	require.Less(t, testing.AllocsPerRun(10, enter), 200.0, "a parsed budget takes over 80 allocations")
	require.Same(t, before, r.inNamespace("shop", noon))
}

func TestBudgets_BoundsMatchingPerNamespace(t *testing.T) {
	own := func(i int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: labelled(fmt.Sprint("app-", i))}
	}
	for _, tc := range []struct {
		name     string
		budgets  int
		selector func(i int) *metav1.LabelSelector
		want     []string
	}{
		{name: "one for each workload", budgets: 5000, selector: own, want: []string{"b-7"}},
		{name: "too many in all", budgets: 10001, selector: own, want: []string{UnknownBudgets}},
		{name: "too many for one label", budgets: 1001, selector: func(int) *metav1.LabelSelector { return own(0) }, want: []string{UnknownBudgets}},
		{name: "too many requirements without a label", budgets: 30, selector: func(int) *metav1.LabelSelector { return largeSelector(100) }, want: []string{UnknownBudgets}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all []any
			for i := range tc.budgets {
				all = append(all, budgetOf(fmt.Sprint("b-", i), tc.selector(i)))
			}
			require.Equal(t, tc.want, reader(t, true, all...).inNamespace("shop", noon).namesFor(pod("a", "a-1", labelled("app-7"))))
		})
	}
}

func TestBudgets_FindsAllBudgetsOfPod(t *testing.T) {
	selector := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	both := map[string]string{"app": "web", "tier": "front"}
	r := reader(t, true,
		budgetOf("a-label", &metav1.LabelSelector{MatchLabels: labelled("web")}), budgetOf("b-both", &metav1.LabelSelector{MatchLabels: both}),
		budgetOf("c-in", selector("app", metav1.LabelSelectorOpIn, "web")), budgetOf("d-several", selector("app", metav1.LabelSelectorOpIn, "web", "db")),
		budgetOf("e-exists", selector("app", metav1.LabelSelectorOpExists)), budgetOf("f-not", selector("app", metav1.LabelSelectorOpNotIn, "web")),
		budgetOf("g-missing", selector("tier", metav1.LabelSelectorOpDoesNotExist)), budgetOf("h-every", &metav1.LabelSelector{}), budgetOf("i-none", nil))
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   []string
	}{
		{name: "both labels", labels: both, want: []string{"a-label", "b-both", "c-in", "d-several", "e-exists", "h-every"}},
		{name: "one label", labels: labelled("web"), want: []string{"a-label", "c-in", "d-several", "e-exists", "g-missing", "h-every"}},
		{name: "another value", labels: labelled("db"), want: []string{"d-several", "e-exists", "f-not", "g-missing", "h-every"}},
		{name: "no labels", want: []string{"f-not", "g-missing", "h-every"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, r.inNamespace("shop", noon).namesFor(pod("a", "a-1", tc.labels)))
		})
	}
}

func TestReserve_AllowsOneRestartAtATime(t *testing.T) {
	shared := budgetOf("shared", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}})
	a, sibling, b, c := pod("a", "a-1", labelled("a")), pod("a2", "a-1", labelled("x")), pod("b", "b-1", labelled("b")), pod("c", "c-1", labelled("c"))
	now := noon
	for _, tc := range []struct {
		name  string
		known bool
	}{
		{name: "known budgets", known: true},
		{name: "unknown budgets"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reader(t, tc.known, shared)
			now = noon
			enter := func(p *corev1.Pod, restarts bool) bool {
				leave, err := r.Reserve(p, restarts, now)
				if err == nil && p != a {
					leave()
				}
				return err == nil
			}
			require.True(t, enter(a, true))
			require.True(t, enter(a, true), "the same pod")
			require.False(t, enter(b, true), "the same budget")
			require.False(t, enter(b, false), "an eviction")
			require.False(t, enter(sibling, true), "the same owner")
			require.Equal(t, tc.known, enter(sibling, false), "an eviction of the same owner has a budget of its own")
			require.Equal(t, tc.known, enter(c, true))
			now = noon.Add(cacheDelay)
			require.True(t, enter(b, true), "from now on the caches tell")

			leave, err := r.Reserve(a, true, now)
			require.NoError(t, err)
			leave()
			require.True(t, enter(b, true), "it was not done")
		})
	}
}

func TestReserve_CountsRestartsInCache(t *testing.T) {
	all := budgetOf("all", &metav1.LabelSelector{})
	asked := metav1.NewTime(noon.Add(-time.Minute)).Time
	marked := func(restarts int32, ready corev1.ConditionStatus) *corev1.Pod {
		p := pod("other", "b-1", nil)
		p.Annotations = map[string]string{convert.RestartAnnotation: convert.FormatRestart(disruption.Restart{At: asked, Count: 1})}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: restarts}}
		p.Status.Conditions[0].Status = ready
		return p
	}
	resized := pod("other", "b-1", nil)
	cpu := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
	}
	has := cpu("1")
	resized.Spec.Containers = []corev1.Container{{Name: "c", Resources: cpu("2"), ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}}}
	resized.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &has}}
	deleted := marked(1, corev1.ConditionTrue)
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}
	for _, tc := range []struct {
		name  string
		other *corev1.Pod
		may   bool
	}{
		{name: "pending restart", other: marked(1, corev1.ConditionTrue), may: false},
		{name: "not ready after the restart", other: marked(2, corev1.ConditionFalse), may: false},
		{name: "ready after the restart", other: marked(2, corev1.ConditionTrue), may: true},
		{name: "resize in progress", other: resized, may: false},
		{name: "ordinary pod", other: pod("other", "b-1", nil), may: true},
		{name: "deleted pod", other: deleted, may: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := reader(t, true, all, tc.other)
			_, err := r.Reserve(pod("a", "a-1", nil), true, noon)
			require.Equal(t, tc.may, err == nil, err)
			if err != nil {
				require.ErrorContains(t, err, "pod other of PodDisruptionBudget shop/all is being restarted")
			}
		})
	}
}

// A resize that the node never applies must not block others forever, and two of them must not
// block each other.
func TestReserve_IgnoresRestartThatNeverHappens(t *testing.T) {
	cpu := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
	}
	waiting := func(name string, since time.Time) *corev1.Pod {
		p, has := pod(name, name, nil), cpu("1")
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: cpu("2"), ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &has}}
		if !since.IsZero() {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: corev1.PodReasonDeferred, LastTransitionTime: metav1.NewTime(since)})
		}
		return p
	}
	all := budgetOf("all", &metav1.LabelSelector{})
	now, state := noon, disruption.State{}
	enters := func(r *Budgets, p *corev1.Pod) error {
		leave, err := r.Reserve(p, true, now)
		if err == nil {
			leave()
		}
		return err
	}
	r := reader(t, true, all, waiting("silent", time.Time{})) // without a VPA
	plan := func() {
		v := disruption.View{}
		r.AddBudgets(&v, []disruption.Action{{Subject: disruption.Subject{Namespace: "shop"}, Restarts: true}}, now)
		state = disruption.Plan(v, state, disruption.Config{}, now).State
		r.RecordPlan(state, now)
	}
	a := pod("a", "a", nil)
	require.ErrorContains(t, enters(r, a), "pod silent of PodDisruptionBudget shop/all is being restarted")
	for ; now.Before(noon.Add(disruption.RestartLimit)); now = now.Add(time.Minute) {
		plan()
		require.Error(t, enters(r, a), now)
	}
	plan()
	require.NoError(t, enters(r, a))
	now = now.Add(disruption.RestartGrace)
	require.Error(t, enters(r, a), "nobody planned for long: it may be another restart")

	now = noon
	first, second := waiting("first", noon.Add(-20*time.Minute)), waiting("second", noon.Add(-10*time.Minute))
	r = reader(t, true, all, first, second)
	require.ErrorContains(t, enters(r, second), "pod first of")
	require.NoError(t, enters(r, first))
	require.ErrorContains(t, enters(r, a), "pod first of")
	require.Error(t, enters(reader(t, true, all, waiting("late", noon.Add(-59*time.Minute))), a))
	require.NoError(t, enters(reader(t, true, all, waiting("late", noon.Add(-time.Hour))), a))
}

// No plan has covered the pod meanwhile, because its VPA is gone or iterations were skipped.
func TestReserve_LateRestartBlocksOthers(t *testing.T) {
	cpu := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
	}
	other, has := pod("other", "b-1", nil), cpu("1")
	other.Annotations = map[string]string{convert.RestartAnnotation: convert.FormatRestart(disruption.Restart{At: noon})}
	other.Spec.Containers = []corev1.Container{{Name: "c", Resources: cpu("2"), ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}}}
	other.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &has}}
	r, now := reader(t, true, budgetOf("all", &metav1.LabelSelector{}), other), noon
	r.RecordPlan(disruption.State{}, now)
	held := func() bool { _, err := r.Reserve(pod("a", "a-1", nil), true, now); return err != nil }
	for range 10 {
		now = now.Add(time.Minute)
		require.True(t, held(), "the node has still to grant it")
	}
	granted := cpu("2")
	other.Status.ContainerStatuses[0].Resources = &granted
	now = now.Add(time.Minute)
	require.True(t, held(), "the restart comes now")
	now = now.Add(disruption.RestartGrace)
	require.False(t, held(), "it needed none")
}
