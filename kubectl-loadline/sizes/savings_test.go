package sizes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/flags"
)

func savingsIn(t *testing.T, s *plugintest.Shop, namespace string, workloads bool, scope savingsScope) (*savingsReport, error) {
	t.Helper()
	kube, own := s.Clients()
	c := savingsConfig{prices: rollout.Prices{Core: 1, GiB: 2}, workloads: workloads}
	q := request(t, s, kube, "")
	q.Namespace = namespace
	if scope.Selector == nil {
		scope.Selector = labels.Everything()
	}
	return c.answer(t.Context(), own, q, scope)
}

func tableLines(out string) (rows []string) {
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

// overRequesting returns a shop where a pod of web requests 600m more than recommended and one of
// front 100Mi less.
func overRequesting(policy bool) *plugintest.Shop {
	s := plugintest.NewShop()
	s.Pods["web-1-a"].Spec.Containers[0].Resources.Requests = plugintest.Resources("2", "200Mi")
	s.Pods["front-1-a"].Spec.Containers[0].Resources.Requests = plugintest.Resources("1400m", "100Mi")
	if !policy {
		s.Policy.Spec.Namespaces.Names = []string{"other"}
		s.VPA.Labels = nil
	}
	return s
}

const savingsHeader = "POLICY WORKLOADS CORES LESS CORES MORE GIB LESS GIB MORE SAVES COSTS"

func TestSavings_ListEveryWorkloadWithVPA(t *testing.T) {
	for _, tc := range []struct {
		name      string
		policy    bool
		namespace string
		workloads bool
		scope     savingsScope
		want      []string
	}{
		{name: "without a policy", want: []string{
			savingsHeader,
			"shop 0 0.00 0.00 0.00 0.00 0.00 0.00",
			"- 2 0.60 0.00 0.00 0.10 438.00 142.58",
			"Deployment shop/front 0.00 0.00 0.00 0.10 0.00 142.58",
			"Deployment shop/web 0.60 0.00 0.00 0.00 438.00 0.00",
			"all 2 0.60 0.00 0.00 0.10 438.00 142.58",
			"! SizingPolicy shop: no workload with a recommendation and running pods was found in any namespace",
		}},
		{name: "of a policy", policy: true, want: []string{savingsHeader, "shop 2 0.60 0.00 0.00 0.10 438.00 142.58", ""}},
		{name: "of a policy with workloads", policy: true, workloads: true, scope: savingsScope{Policies: []string{"shop"}}, want: []string{
			savingsHeader,
			"shop 2 0.60 0.00 0.00 0.10 438.00 142.58",
			"Deployment shop/front 0.00 0.00 0.00 0.10 0.00 142.58",
			"Deployment shop/web 0.60 0.00 0.00 0.00 438.00 0.00",
			"",
		}},
		{name: "of a namespace", policy: true, namespace: "shop", want: []string{savingsHeader, "shop 2 0.60 0.00 0.00 0.10 438.00 142.58", ""}},
		{name: "of another namespace", policy: true, namespace: "other", want: []string{
			savingsHeader,
			"shop 0 0.00 0.00 0.00 0.00 0.00 0.00",
			"! SizingPolicy shop: no workload with a recommendation and running pods was found in namespace other",
			"! no VPA was found in namespace other, so nothing is recommended: the command recommend shows estimates, and create writes VPAs",
		}},
		{name: "by label", policy: true, scope: savingsScope{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, want: []string{
			savingsHeader,
			"shop 1 0.60 0.00 0.00 0.00 438.00 0.00",
			"! VPAs that control no running pod with labels app=web: shop/deployment-front",
			"",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := savingsIn(t, overRequesting(tc.policy), tc.namespace, tc.workloads, tc.scope)
			require.NoError(t, err)
			require.ElementsMatch(t, tc.want, tableLines(plugintest.Printed(t, a, "table"))[:len(tc.want)])
		})
	}
}

func TestSavings_IgnoreStartupBoosts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy bool
		want   string
	}{
		{name: "VPA that sizes pods", policy: true, want: "Deployment shop/web 0.00 0.00 0.00 0.00 0.00 0.00"},
		{name: "VPA in mode Off", want: "Deployment shop/web 0.00 2.60 0.00 0.00 0.00 1898.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := overRequesting(tc.policy)
			for _, name := range []string{"web-1-a", "web-1-b"} {
				pod := s.Pods[name]
				pod.Annotations = map[string]string{convert.BoostAnnotationPrefix + "a": `{"requests":{"cpu":"100m","memory":"200Mi"},"limits":{}}`}
				pod.Spec.Containers[0].Resources.Requests = plugintest.Resources("4200m", "200Mi")
			}
			a, err := savingsIn(t, s, "", true, savingsScope{})
			require.NoError(t, err)
			require.Contains(t, tableLines(plugintest.Printed(t, a, "table")), tc.want)
		})
	}
}

func TestSavings_ReportMissingObjects(t *testing.T) {
	s := overRequesting(false)
	s.VPA.Status.Recommendation = nil
	s.Pods["front-1-a"].Status.Phase = corev1.PodPending
	a, err := savingsIn(t, s, "shop", false, savingsScope{})
	require.NoError(t, err)
	require.Contains(t, a.Problems, "VPAs without a recommendation: shop/deployment-front, shop/deployment-web")

	_, err = savingsIn(t, s, "", false, savingsScope{Policies: []string{"nothing", "shop"}})
	require.EqualError(t, err, "SizingPolicy nothing does not exist")
}

func TestSavings_RandomVPAsHaveRowOrProblem(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := plugintest.NewShop()
		s.Policy.Spec.Namespaces.Names = []string{[]string{"shop", "other"}[random.IntN(2)]}
		for i := range 1 + random.IntN(6) {
			name := fmt.Sprintf("app-%d", i)
			v := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
			v.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: name}
			if random.IntN(2) == 0 {
				v.Status.Recommendation = s.VPA.Status.Recommendation.DeepCopy()
			}
			s.Own = append(s.Own, v)
			s.More = append(s.More, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}})
			for j := range random.IntN(3) {
				pod := s.Pods["web-1-a"].DeepCopy()
				pod.Name, pod.Labels, pod.OwnerReferences = fmt.Sprintf("%s-%d", name, j), map[string]string{"app": name}, plugintest.OwnedBy("StatefulSet", name)
				pod.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded}[random.IntN(3)]
				s.Pods[pod.Name] = pod
			}
		}
		a, err := savingsIn(t, s, "shop", true, savingsScope{})
		require.NoError(t, err)
		var rows []string
		for _, listed := range a.Workloads {
			for _, r := range listed {
				rows = append(rows, strings.ReplaceAll(r.Name, "StatefulSet ", ""))
			}
		}
		for _, object := range s.Own {
			v := object.(*vpav1.VerticalPodAutoscaler)
			said := slices.ContainsFunc(a.Problems, func(p string) bool { return strings.Contains(p+",", "shop/"+v.Name+",") })
			require.NotEqual(t, said, slices.Contains(rows, "shop/"+v.Name), "%s: %v %v", v.Name, rows, a.Problems)
		}
	}
}

func TestSavings_Formats(t *testing.T) {
	a, err := savingsIn(t, overRequesting(false), "shop", false, savingsScope{})
	require.NoError(t, err)
	var read savingsReport
	require.NoError(t, json.Unmarshal([]byte(plugintest.Printed(t, a, "json")), &read))
	require.InDelta(t, 0.6, read.All.CoresLess, 1e-9)
	require.Equal(t, "Deployment shop/front", read.Workloads[withoutPolicy][0].Name)
	var out, errOut bytes.Buffer
	require.NoError(t, (&cli.OutputFlag{Format: "csv"}).Print(&out, &errOut, a))
	require.Contains(t, out.String(), "-,2,0.60,0.00,0.00,0.10,438.00,142.58\n")
	require.Contains(t, errOut.String(), "! SizingPolicy shop: ", "what CSV has no place for")
}

func TestSavings_CommandLine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		absent string
		args   []string
		code   int
		want   string
	}{
		{name: "unknown policy", args: []string{"nothing"}, code: flags.ExitFailed, want: "SizingPolicy nothing does not exist"},
		{name: "missing definition with a policy", absent: "sizingpolicies", args: []string{"shop"}, code: flags.ExitFailed,
			want: "install their definition"},
		{name: "missing definition", absent: "sizingpolicies", code: flags.ExitOK},
		{name: "invalid prices", args: []string{"--core-price=-1", "--gib-price=NaN"}, code: flags.ExitUsage,
			want: "--core-price=-1: must be a number that is not negative; --gib-price=NaN: must be"},
		{name: "infinite price", args: []string{"--core-price=Inf"}, code: flags.ExitUsage, want: "--core-price=+Inf"},
		{name: "unknown flag", args: []string{"--price=1"}, code: flags.ExitUsage, want: "unknown flag"},
		{name: "invalid selector", args: []string{"-l", "a=b=c"}, code: flags.ExitUsage, want: "--selector=a=b=c"},
		{name: "unknown context", args: []string{"--context=other"}, code: flags.ExitFailed, want: "context: other"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, code, out, errs := plugintest.AskServer(t, Commands(), tc.absent, append([]string{"savings"}, tc.args...)...)
			require.Equal(t, tc.code, code, errs)
			require.Equal(t, tc.code == flags.ExitOK, out != "")
			require.Contains(t, errs, tc.want)
		})
	}
}

func request(t *testing.T, s *plugintest.Shop, kube kubernetes.Interface, pod string) inventory.Request {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	return inventory.Request{Namespace: "shop", Name: pod, Book: book, Now: plugintest.Now(), Kube: kube}
}
