package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	rbacv1 "k8s.io/api/rbac/v1"
)

// unjustified returns the rules of a file with verbs that their comment does not explain.
func unjustified(t *testing.T, path string) (rules []string) {
	t.Helper()
	objects, err := readManifests(path)
	require.NoError(t, err)
	for _, o := range objects {
		for i, rule := range o.Rules.Content {
			var plain rbacv1.PolicyRule
			require.NoError(t, rule.Decode(&plain))
			words := strings.FieldsFunc(rule.HeadComment, func(r rune) bool { return strings.ContainsRune("#,: \n.", r) })
			for _, verb := range plain.Verbs {
				if !slices.Contains(words, verb) {
					rules = append(rules, fmt.Sprintf("%s %s, rule %d: nothing says what %s is for", o.Kind, o.Metadata.Name, i, verb))
				}
			}
		}
	}
	return rules
}

func TestRoles_JustifyEachVerb(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "deploy/base/*/rbac.yaml"))
	require.NoError(t, err)
	require.Len(t, paths, 4)
	for _, path := range append(paths, filepath.Join(root, "deploy/external-metrics/rbac.yaml"), filepath.Join(root, "deploy/node-load/rbac.yaml"), filepath.Join(root, "deploy/explain-reader/rbac.yaml")) {
		require.Empty(t, unjustified(t, path), path)
	}
}

func TestUnjustified_DetectsMissingReasons(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rbac.yaml")
	const head = "kind: ClusterRole\nmetadata: {name: x}\nrules:\n"
	for _, tc := range []struct {
		name  string
		rules string
		want  int
	}{
		{name: "all verbs explained",
			rules: "  # list, watch: informer of pods.\n  - {apiGroups: [\"\"], resources: [pods], verbs: [list, watch]}\n"},
		{name: "verbs without a reason",
			rules: "  # list: informer of pods.\n  - {apiGroups: [\"\"], resources: [pods], verbs: [list, watch, delete]}\n", want: 2},
		{name: "rule without a reason",
			rules: "  # list: pods.\n  - {apiGroups: [\"\"], resources: [pods], verbs: [list]}\n  - {resources: [x], verbs: [get]}\n",
			want:  1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(head+tc.rules), 0o644))
			require.Len(t, unjustified(t, path), tc.want)
		})
	}
}

// permissions lists the permissions of each program: account, verb, resource, and object names
// where a rule has them.
func permissions(t *testing.T, all objects) []string {
	t.Helper()
	found := map[string]bool{}
	for _, o := range all {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		binding := into[rbacv1.RoleBinding](t, o)
		role := into[rbacv1.ClusterRole](t, all.of(binding.RoleRef.Kind)[binding.RoleRef.Name])
		for _, subject := range binding.Subjects {
			program := subject.Name
			for _, prefix := range []string{"vpa-", release + "-vertical-pod-autoscaler-"} {
				program = strings.TrimPrefix(program, prefix)
			}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						found[fmt.Sprint(program, " ", o.GetNamespace(), ": ", verb, " ", rule.APIGroups, resource, rule.ResourceNames)] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Only object names that depend on values may differ.
func TestChart_PermissionsMatchManifests(t *testing.T) {
	base := permissions(t, kustomized(t, "deploy/base"))
	require.Greater(t, len(base), 60)
	sameLease := "updater: {leaderElection: {resourceName: vpa-updater}}"
	require.Equal(t, base, permissions(t, chart(t, sameLease).objects))
	require.NotEqual(t, base, permissions(t, chart(t).objects), "the Lease of the updater has another name")

	only := permissions(t, kustomized(t, "deploy/overlays/recommend-only"))
	require.Equal(t, only, permissions(t, chart(t, onlyRecommend).objects))
	for _, permission := range only {
		require.True(t, strings.HasPrefix(permission, "recommender "), permission)
	}
	require.Subset(t, base, only)
}

// Migrating from upstream, or running a trial next to it, must not replace upstream's roles,
// because upstream continues to use them, also after a rollback.
func TestMigrate_KeepsUpstreamRoles(t *testing.T) {
	added, base := kustomized(t, "deploy/migrate"), kustomized(t, "deploy/base")
	text, err := os.ReadFile(filepath.Join(moduleFolder(t, ".", "k8s.io/autoscaler/vertical-pod-autoscaler"), "deploy/vpa-rbac.yaml"))
	require.NoError(t, err)
	reference := decode(t, text)
	require.NotEmpty(t, reference.of("ClusterRole")["system:vpa-actor"])
	for _, o := range added {
		require.Contains(t, []string{"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}, o.GetKind(), o.GetName())
		require.NotContains(t, reference.of(o.GetKind()), o.GetName())
		require.NotContains(t, base.of(o.GetKind()), o.GetName(), "who deletes them keeps what was installed since")
	}
	require.Equal(t, permissions(t, base), permissions(t, added))
	for _, o := range reference.of("ServiceAccount") {
		require.NotNil(t, base.of("ServiceAccount")[o.GetName()], "the bindings are for accounts that the reference has")
	}
}

func TestChart_RulesUseNamesFromValues(t *testing.T) {
	all := permissions(t, chart(t, `
admissionController: {tls: {secretName: tls}}
recommender: {leaderElection: {resourceName: leader, resourceNamespace: other}}
updater: {replicas: 1}
`).objects)
	require.Contains(t, all, "admission-controller kube-system: get []secrets[tls]")
	require.Contains(t, all, "recommender other: update [coordination.k8s.io]leases[leader]")
	for _, permission := range all {
		require.False(t, strings.HasPrefix(permission, "updater kube-system: update"), "one replica needs no Lease: %s", permission)
	}
	require.Empty(t, chart(t, "rbac: {create: false}").objects.of("ClusterRole"))
	require.Empty(t, chart(t, "rbac: {create: false}").objects.of("RoleBinding"))
}

// Users get the Role only if an administrator binds it.
func TestExplainReader_HasNoBinding(t *testing.T) {
	manifests := kustomized(t, "deploy/explain-reader")
	require.Len(t, manifests, 1)
	want := into[rbacv1.Role](t, manifests.of("Role")["vpa-explain-reader"])
	require.Empty(t, chart(t).objects.of("Role")[fullname+"-explain-reader"])
	with := chart(t, "rbac: {explainReader: true}").objects
	got := into[rbacv1.Role](t, with.of("Role")[fullname+"-explain-reader"])
	require.Equal(t, want.Rules, got.Rules)
	require.Equal(t, "kube-system", got.Namespace)
	require.Equal(t, permissions(t, chart(t).objects), permissions(t, with))
	for _, rule := range got.Rules {
		require.Subset(t, []string{"get", "list"}, rule.Verbs, rule.Resources)
	}
}

func TestChartRoles_KeepComments(t *testing.T) {
	text, err := chartRoles(root)
	require.NoError(t, err)
	var roles []struct{ Rules yaml.Node }
	require.NoError(t, yaml.Unmarshal(text, &roles))
	require.NotEmpty(t, roles)
	for _, role := range roles {
		for _, rule := range role.Rules.Content {
			require.NotEmpty(t, rule.HeadComment)
		}
	}
}
