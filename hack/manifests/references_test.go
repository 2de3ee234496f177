package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// dangling returns references to objects that are not in the set.
func dangling(t *testing.T, all objects) (problems []string) {
	t.Helper()
	missing := func(o *unstructured.Unstructured, what, name string) {
		problems = append(problems, fmt.Sprintf("%s %s: no %s %s", o.GetKind(), o.GetName(), what, name))
	}
	pods := map[string]labels.Set{}
	idle := all.of("ServiceAccount")
	bound := map[string]bool{}
	for name, o := range all.of("Deployment") {
		d := into[appsv1.Deployment](t, o)
		pods[name] = d.Spec.Template.Labels
		account := d.Spec.Template.Spec.ServiceAccountName
		if all.of("ServiceAccount")[account] == nil {
			missing(o, "ServiceAccount", account)
		}
		delete(idle, account)
		if d.Spec.Template.Spec.PriorityClassName == "" {
			missing(o, "priority class", "")
		}
		if !selectsOne(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
			missing(o, "pods of its", "selector")
		}
	}
	for name, o := range idle {
		missing(o, "pods of account", name)
	}
	selects := func(o *unstructured.Unstructured, wanted map[string]string) {
		if !selectsOne(wanted, slices.Collect(maps.Values(pods))...) {
			missing(o, "single Deployment with", labels.FormatLabels(wanted))
		}
	}
	for _, o := range all {
		switch o.GetKind() {
		case "RoleBinding", "ClusterRoleBinding":
			b := into[rbacv1.RoleBinding](t, o)
			bound[b.RoleRef.Kind+b.RoleRef.Name] = true
			if role := all.of(b.RoleRef.Kind)[b.RoleRef.Name]; role == nil || role.GetNamespace() != o.GetNamespace() {
				missing(o, b.RoleRef.Kind, b.RoleRef.Name)
			}
			for _, subject := range b.Subjects {
				account := all.of("ServiceAccount")[subject.Name]
				if account == nil || account.GetNamespace() != subject.Namespace {
					missing(o, subject.Kind, subject.Namespace+"/"+subject.Name)
				}
			}
		case "PodDisruptionBudget":
			selects(o, into[policyv1.PodDisruptionBudget](t, o).Spec.Selector.MatchLabels)
		case "Service":
			selects(o, into[corev1.Service](t, o).Spec.Selector)
		case "NetworkPolicy":
			selects(o, into[networkingv1.NetworkPolicy](t, o).Spec.PodSelector.MatchLabels)
		}
	}
	for _, o := range all {
		unbound := strings.HasSuffix(o.GetName(), strings.TrimPrefix(unboundRole, "vpa")) // for users
		if kind := o.GetKind(); (kind == "Role" || kind == "ClusterRole") && !bound[kind+o.GetName()] && !unbound {
			missing(o, "binding of", o.GetName())
		}
	}
	for name := range pods {
		if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "PodDisruptionBudget" && selectsOne(into[policyv1.PodDisruptionBudget](t, o).Spec.Selector.MatchLabels, pods[name])
		}) {
			problems = append(problems, "no PodDisruptionBudget for "+name)
		}
	}
	return problems
}

func selectsOne(wanted labels.Set, sets ...labels.Set) bool {
	count := 0
	for _, set := range sets {
		if labels.SelectorFromSet(wanted).Matches(set) {
			count++
		}
	}
	return len(wanted) > 0 && count == 1
}

func TestDangling_DetectsEachMissingReference(t *testing.T) {
	require.Empty(t, dangling(t, kustomized(t, "deploy/overlays/full")))
	for _, gone := range []string{
		"ServiceAccount/vpa-updater", "Deployment/vpa-updater", "ClusterRole/system:vpa-updater", "Role/system:vpa-updater",
		"ClusterRoleBinding/system:vpa-evictioner-binding", "PodDisruptionBudget/vpa-recommender",
	} {
		rest := slices.DeleteFunc(kustomized(t, "deploy/overlays/full"), func(o *unstructured.Unstructured) bool { return o.GetKind()+"/"+o.GetName() == gone })
		require.NotEmpty(t, dangling(t, rest), gone)
	}
	for _, tc := range []struct {
		name   string
		change func(objects)
	}{
		{name: "Service without pods", change: func(all objects) {
			require.NoError(t, unstructured.SetNestedField(all.of("Service")["vpa-webhook"].Object, "vpa", "spec", "selector", "app"))
		}},
		{name: "Role in another namespace", change: func(all objects) { all.of("Role")["system:vpa-updater"].SetNamespace("default") }},
		{name: "missing service account", change: func(all objects) {
			require.NoError(t, unstructured.SetNestedField(all.of("Deployment")["vpa-updater"].Object, "vpa-recommender", "spec", "template", "spec", "serviceAccountName"))
		}},
		{name: "no priority class", change: func(all objects) {
			unstructured.RemoveNestedField(all.of("Deployment")["vpa-updater"].Object, "spec", "template", "spec", "priorityClassName")
		}},
		{name: "service account in another namespace",
			change: func(all objects) { all.of("ServiceAccount")["vpa-updater"].SetNamespace("default") }},
		{name: "selector without matching pods", change: func(all objects) {
			unstructured.RemoveNestedField(all.of("Deployment")["vpa-updater"].Object, "spec", "template", "metadata")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := kustomized(t, "deploy/overlays/full")
			tc.change(all)
			require.NotEmpty(t, dangling(t, all))
		})
	}
}
