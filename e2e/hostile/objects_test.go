package hostile

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/convert"
)

// selecting returns a selector for the pods of an app with the given number of additional
// requirements and values.
func selecting(app string, requirements, values int) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	for i := range requirements {
		r := metav1.LabelSelectorRequirement{Key: numbered("key", i), Operator: metav1.LabelSelectorOpDoesNotExist}
		for k := range values {
			r.Operator, r.Values = metav1.LabelSelectorOpNotIn, append(r.Values, fmt.Sprintf("%03d-%03d-%s", i, k, strings.Repeat("x", 50)))
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func labelled(app string, count int) map[string]string {
	labels := map[string]string{"app": app}
	for i := range count {
		labels[numbered("label", i)] = "y"
	}
	return labels
}

// selectors creates 106 Deployments without pods, each with a selector of one megabyte.
func (n *tenant) selectors(ctx context.Context, round int) error {
	const batch, most = 10, 106
	return each(ctx, round*batch, min(batch, max(0, most-round*batch)), func(ctx context.Context, i int) error {
		w := workload(numbered("large", i), 0, "app")
		if err := n.deploy(ctx, w, selecting(w.Name, 150, 100)); err != nil {
			return err
		}
		return n.autoscale(ctx, w.Name, w.Name)
	})
}

// budgets creates 40 PodDisruptionBudgets just below the selector limit, and later 40 of a
// megabyte, for pods with continuous evictions.
func (n *tenant) budgets(ctx context.Context, round int) error {
	w := workload("evicted", 100, "app")
	w.Annotations = harness.Uses("app", "5m", "20Mi")
	if round == 0 {
		return n.autoscaled(ctx, w, func(vpa *vpav1.VerticalPodAutoscaler) {
			*vpa.Spec.UpdatePolicy.UpdateMode = vpav1.UpdateModeRecreate
		})
	}
	// A rising minimum puts all pods below their lower bounds.
	patch := fmt.Appendf(nil, `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","minAllowed":{"cpu":"%dm"}}]}}}`, 30+5*(round%50))
	if _, err := n.vpa.AutoscalingV1().VerticalPodAutoscalers(tenantNamespace).Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	const batch, most = 10, 80
	ten := intstr.FromInt32(10)
	return each(ctx, (round-1)*batch, min(batch, max(0, most-(round-1)*batch)), func(ctx context.Context, i int) error {
		selector := selecting(w.Name, 90, 1)
		if i >= most/2 {
			selector = selecting(w.Name, 150, 100)
		}
		_, err := n.kube.PolicyV1().PodDisruptionBudgets(tenantNamespace).Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: numbered("large", i)}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &ten, Selector: selector},
		}, metav1.CreateOptions{})
		return err
	})
}

// names runs pods with 6,000 container names, all targeted by 80 large VPAs, and replaces them with
// pods that have new names.
func (n *tenant) names(ctx context.Context, round int) error {
	const containers, batch, pods, vpas = 100, 10, 60, 80
	w := workload("names", 0)
	if round == 0 {
		w.Containers = []harness.Container{{Name: "app"}}
		if err := n.deploy(ctx, w, nil); err != nil {
			return err
		}
		return each(ctx, 0, vpas, func(ctx context.Context, i int) error {
			return n.autoscale(ctx, numbered("names", i), w.Name, func(vpa *vpav1.VerticalPodAutoscaler) {
				vpa.Annotations = map[string]string{"tenant/filler": strings.Repeat("x", 200<<10)}
			})
		})
	}
	return each(ctx, (round-1)*batch, batch, func(ctx context.Context, i int) error {
		own, zero := w, int64(0)
		own.Containers, own.Annotations = nil, map[string]string{}
		for k := range containers {
			name := fmt.Sprintf("c-%d-%d", i, k)
			own.Containers = append(own.Containers, harness.Container{Name: name, CPU: "1m", Memory: "1Mi"})
			maps.Copy(own.Annotations, harness.Uses(name, "5m", "20Mi"))
		}
		if old := i - pods; old >= 0 {
			if err := n.kube.CoreV1().Pods(tenantNamespace).Delete(ctx, numbered("names", old), metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
				return err
			}
		}
		template := own.Template()
		template.Name = numbered("names", i)
		_, err := n.kube.CoreV1().Pods(tenantNamespace).Create(ctx, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, metav1.CreateOptions{})
		return err
	})
}

// matching changes pods with as many labels as the API server accepts, a workload selector of
// 20,000 requirements and 20 VPAs, and pods with as many labels and requirements as the programs
// accept.
func (n *tenant) matching(ctx context.Context, round int) error {
	for _, size := range []struct {
		name                              string
		requirements, labels, pods, count int
	}{
		{name: "huge", requirements: 20000, labels: 10000, pods: 2, count: 20},
		{name: "allowed", requirements: 95, labels: 95, pods: 50, count: 20},
	} {
		w := workload(size.name, 0, "app")
		w.Annotations = harness.Uses("app", "5m", "20Mi")
		if round == 0 {
			if err := n.deploy(ctx, w, selecting(w.Name, size.requirements, 0)); err != nil {
				return err
			}
			if err := each(ctx, 0, size.count, func(ctx context.Context, i int) error { return n.autoscale(ctx, numbered(w.Name, i), w.Name) }); err != nil {
				return err
			}
		}
		err := each(ctx, 0, size.pods, func(ctx context.Context, i int) error {
			if round > 0 { // a changed label invalidates caches
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{"label-0":"%d"}}}`, round)
				_, err := n.kube.CoreV1().Pods(tenantNamespace).Patch(ctx, numbered(w.Name, i), types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			}
			template := w.Template()
			template.Name, template.Labels = numbered(w.Name, i), labelled(w.Name, size.labels)
			_, err := n.kube.CoreV1().Pods(tenantNamespace).Create(ctx, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var forged = workload("forged", 1500, "app")

// annotations forges annotations about changes that never happened on pods of the tenant, on a
// tenth of the pods in each round.
func (n *tenant) annotations(ctx context.Context, round int) error {
	pods, err := n.kube.CoreV1().Pods(tenantNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + forged.Name, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	notes := []map[string]string{
		{convert.ResizedAtAnnotation: time.Now().UTC().Format(time.RFC3339), convert.OriginalAnnotation: "{}"},
		{convert.ResizedAtAnnotation: strings.Repeat("x", 10<<10), convert.SharedAnnotation: "cpu"},
		{convert.BoostAnnotationPrefix + "app": `{"requests":{"cpu":"1m"}}`},
		{convert.ResizedAtAnnotation: time.Now().UTC().Format(time.RFC3339),
			convert.OriginalAnnotation: `{"app":{"requests":{"cpu":"2m"},"target":{"requests":{"cpu":"1m"}},"ready":true,"harm":"Restarts"}}`},
	}
	const slices = 10
	return harness.Each(ctx, len(pods.Items), func(ctx context.Context, i int) error {
		if i%slices != round%slices {
			return nil
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, strings.Join(members(notes[round%len(notes)]), ","))
		_, err := n.kube.CoreV1().Pods(tenantNamespace).Patch(ctx, pods.Items[i].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func members(object map[string]string) (all []string) {
	for key, value := range object {
		all = append(all, fmt.Sprintf("%q:%q", key, value))
	}
	return all
}
