package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// After an upgrade with the same values, objects keep their names, immutable fields, and the labels
// by which other tools find them.
func TestChart_UpgradesUpstreamRelease(t *testing.T) {
	for _, given := range []string{
		"{}", upstreamValues(t), "nameOverride: vpa", "fullnameOverride: vpa", "recommender: {replicas: 1}",
		issuerValues, selfSigned, ownCertificate, ownSecret,
	} {
		theirs := renderedFrom(t, upstreamChart(t), "kube-system", values(t, given)).objects
		ours := chart(t, given).objects
		for name, o := range theirs.of("Deployment") {
			was, is := into[appsv1.Deployment](t, o), into[appsv1.Deployment](t, ours.of("Deployment")[name])
			require.Equal(t, was.Spec.Selector, is.Spec.Selector, name)
			require.Equal(t, was.Spec.Template.Labels, is.Spec.Template.Labels, name)
			require.Equal(t, was.Spec.Template.Spec.ServiceAccountName, is.Spec.Template.Spec.ServiceAccountName)
			require.Equal(t, was.Spec.Replicas, is.Spec.Replicas)
			delete(was.Labels, "helm.sh/chart")
			delete(was.Labels, "app.kubernetes.io/version")
			for key, value := range was.Labels {
				require.Equal(t, value, is.Labels[key], "%s: label %s", name, key)
			}
			require.Subset(t, ports(is), ports(was), name)
			require.Subset(t, is.Spec.Template.Spec.Containers[0].Args, electionOf(was), name)
			require.Equal(t, was.Spec.Template.Spec.Containers[0].Name, is.Spec.Template.Spec.Containers[0].Name)
		}
		for name, o := range theirs.of("Service") {
			require.Equal(t, into[corev1.Service](t, o).Spec.Selector, into[corev1.Service](t, ours.of("Service")[name]).Spec.Selector)
			require.Equal(t, into[corev1.Service](t, o).Spec.Ports, into[corev1.Service](t, ours.of("Service")[name]).Spec.Ports)
		}
		for _, kind := range []string{"ServiceAccount", "PodDisruptionBudget", "Certificate", "Issuer", "Secret"} {
			for name := range theirs.of(kind) {
				if d := ours.of("Deployment")[name]; kind == "PodDisruptionBudget" && *into[appsv1.Deployment](t, d).Spec.Replicas == 1 {
					require.NotContains(t, ours.of(kind), name, "it would keep a node from being drained")
				} else if !strings.HasSuffix(name, "-admission-certgen") { // a job that is not needed here
					require.Contains(t, ours.of(kind), name, kind)
				}
			}
		}
		for _, kind := range []string{"RoleBinding", "ClusterRoleBinding"} {
			for name, o := range ours.of(kind) {
				if was := theirs.of(kind)[name]; was != nil { // the role of a binding is immutable
					require.Equal(t, into[rbacv1.RoleBinding](t, was).RoleRef, into[rbacv1.RoleBinding](t, o).RoleRef, name)
				}
			}
		}
	}
}

func ports(d appsv1.Deployment) (all []int32) {
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		all = append(all, p.ContainerPort)
	}
	return all
}

func electionOf(d appsv1.Deployment) []string {
	return slices.DeleteFunc(slices.Clone(d.Spec.Template.Spec.Containers[0].Args), func(arg string) bool { return !strings.HasPrefix(arg, "--leader-elect") })
}

// leaf is the path of a value without nested values, and its default.
type leaf struct {
	name  string
	value any
}

func leaves(prefix string, value any) (all []leaf) {
	below, is := value.(map[string]any)
	if !is || len(below) == 0 {
		return []leaf{{prefix, value}}
	}
	for _, key := range slices.Sorted(maps.Keys(below)) {
		all = append(all, leaves(strings.TrimPrefix(prefix+"."+key, "."), below[key])...)
	}
	return all
}

// nestedYAML returns YAML that sets a value at a dotted path.
func nestedYAML(t *testing.T, name string, value any) string {
	t.Helper()
	parts := strings.Split(name, ".")
	for _, part := range slices.Backward(parts) {
		value = map[string]any{part: value}
	}
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// otherValues are valid values that differ from the upstream chart's and cannot be derived from
// them, by suffix of the path.
var otherValues = map[string]any{
	"imagePullSecrets":          []any{map[string]any{"name": "pull"}},
	"extraRules":                []any{map[string]any{"apiGroups": []any{"x"}, "resources": []any{"y"}, "verbs": []any{"get"}}},
	"extraEnv":                  []any{map[string]any{"name": "X", "value": "y"}},
	"extraArgs":                 []any{"--profiling=true"},
	"tolerations":               []any{map[string]any{"operator": "Exists"}},
	"topologySpreadConstraints": []any{map[string]any{"maxSkew": 2}},
	"service.ports":             []any{map[string]any{"port": 443, "targetPort": 8443}},
	"volumes":                   []any{map[string]any{"name": "x", "emptyDir": map[string]any{}}},
	"volumeMounts":              []any{map[string]any{"name": "x", "mountPath": "/x"}},
	"pullPolicy":                "Always",
	"failurePolicy":             "Fail",
	"algorithm":                 "ECDSA",
	"leaderElection.enabled":    false,
	"minAvailable":              2,
	"maxUnavailable":            1,
	"uration":                   "99h",
	"renewBefore":               "9h",
	"retryPeriod":               "1s",
	"renewDeadline":             "9s",
	"capabilities.drop":         []any{"NET_RAW"},
}

func otherValue(l leaf) any {
	for end, value := range otherValues {
		if strings.HasSuffix(l.name, end) {
			return value
		}
	}
	switch value := l.value.(type) {
	case bool:
		return !value
	case float64:
		return value + 1
	case map[string]any:
		return map[string]any{"other": "value"}
	default:
		return "other"
	}
}

// requiredValues returns the values that another value needs to have an effect.
func requiredValues(t *testing.T, name string) []string {
	t.Helper()
	switch {
	case strings.HasSuffix(name, "maxUnavailable"):
		return []string{nestedYAML(t, strings.TrimSuffix(name, "maxUnavailable")+"minAvailable", 0)} // which has no effect next to it
	case strings.HasSuffix(name, "registerWebhook"):
		return []string{"admissionController: {certGen: {enabled: false}}"}
	case strings.HasSuffix(name, "createSelfSignedIssuer.enabled"):
		return []string{issuerValues}
	case strings.Contains(name, "createSelfSignedIssuer."):
		return []string{selfSigned}
	case strings.HasPrefix(name, "admissionController.certManager.enabled"):
		return []string{strings.Replace(issuerValues, "enabled: true", "enabled: false", 1)}
	case strings.HasPrefix(name, "admissionController.certManager."):
		return []string{issuerValues}
	case name == "admissionController.tls.create":
		return []string{strings.Replace(ownCertificate, "create: true", "create: false", 1)}
	case strings.HasPrefix(name, "admissionController.tls."):
		return []string{ownCertificate}
	}
	return nil
}

func withoutEffect(t *testing.T) *regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, chartFolder, "README.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## Without effect\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, strings.ReplaceAll(regexp.QuoteMeta(match[1]), `\*`, `.*`))
	}
	require.NotEmpty(t, names)
	return regexp.MustCompile("^(" + strings.Join(names, "|") + ")$")
}

// Each value of the upstream chart changes the rendered objects, unless the README.md lists it as
// having no effect.
func TestChart_EachUpstreamValueHasAnEffect(t *testing.T) {
	idle := withoutEffect(t)
	var theirs map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(upstreamValues(t)), &theirs))
	all := leaves("", theirs)
	require.Greater(t, len(all), 120)
	rendered := map[string]string{} // rendered objects before a change
	for _, l := range all {
		given := append([]string{upstreamValues(t)}, requiredValues(t, l.name)...)
		if !strings.HasPrefix(l.name, "crds.") {
			given = append(given, "crds: {enabled: false}") // they are large
		}
		key := strings.Join(given[1:], "\n")
		if rendered[key] == "" {
			rendered[key] = objectsJSON(t, chart(t, given...))
		}
		before := rendered[key]
		after := objectsJSON(t, chart(t, append(given, nestedYAML(t, l.name, otherValue(l)))...))
		require.Equal(t, idle.MatchString(l.name), before == after, "%s: %v", l.name, otherValue(l))
	}
}

// objectsJSON returns a comparable form of rendered objects.
func objectsJSON(t *testing.T, r rendered) string {
	t.Helper()
	text, err := json.Marshal(r.objects)
	require.NoError(t, err)
	return string(text)
}

// Values of an invalid type are rejected before anything is applied.
func TestChartSchema_RejectsInvalidValues(t *testing.T) {
	for _, tc := range []struct{ name, values, want string }{
		{name: "replicas is a word", values: "recommender: {replicas: many}", want: "/recommender/replicas"},
		{name: "negative replicas", values: "recommender: {replicas: -1}", want: "/recommender/replicas"},
		{name: "arguments are no list", values: "updater: {extraArgs: --v=2}", want: "/updater/extraArgs"},
		{name: "unknown pull policy", values: "updater: {image: {pullPolicy: Sometimes}}", want: "/updater/image/pullPolicy"},
		{name: "invalid lease duration", values: "updater: {leaderElection: {leaseDuration: fifteen}}",
			want: "/updater/leaderElection/leaseDuration"},
		{name: "unknown failure policy", values: "admissionController: {mutatingWebhookConfiguration: {failurePolicy: Warn}}",
			want: "failurePolicy"},
		{name: "timeout above the maximum", values: "admissionController: {mutatingWebhookConfiguration: {timeoutSeconds: 60}}",
			want: "timeoutSeconds"},
		{name: "unknown key algorithm", values: "admissionController: {certManager: {privateKey: {algorithm: DSA}}}", want: "algorithm"},
		{name: "invalid minAvailable", values: "updater: {podDisruptionBudget: {minAvailable: half}}", want: "minAvailable"},
		{name: "unknown field of networkPolicy", values: "networkPolicy: {apiservers: [10.0.0.7/32]}", want: "networkPolicy"},
		{name: "API server without a prefix length", values: "networkPolicy: {apiServers: [10.0.0.7]}", want: "apiServers"},
		{name: "egress without API servers", values: "networkPolicy: {egress: {enabled: true}}",
			want: "networkPolicy.egress.apiServers: must name"},
		{name: "label is a number", values: "recommender: {podLabels: {a: 1}}", want: "podLabels"},
		{name: "extra rules are no list", values: "rbac: {extraRules: all}", want: "extraRules"},
		{name: "keep is no boolean", values: "crds: {keep: later}", want: "crds"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Contains(t, chartRefuses(t, tc.values), tc.want)
		})
	}
	chart(t, "{somethingElse: 1, recommender: {somethingElse: 1}}") // as in the upstream chart
}

func TestChartSchema_CoversEachValue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, chartFolder, "values.schema.json"))
	require.NoError(t, err)
	var whole schema
	require.NoError(t, json.Unmarshal(text, &whole))
	text, err = os.ReadFile(filepath.Join(root, chartFolder, "values.yaml"))
	require.NoError(t, err)
	var ours map[string]any
	require.NoError(t, yaml.Unmarshal(text, &ours))
	for _, l := range leaves("", ours) {
		at := []schema{whole}
		for _, part := range strings.Split(l.name, ".") {
			var below []schema
			for _, s := range at {
				if free := s["type"]; s["properties"] == nil && fmt.Sprint(free) == "[object null]" {
					below = append(below, s) // schema as in Kubernetes
				}
				if properties, is := s["properties"].(schema); is && properties[part] != nil {
					below = append(below, alternatives(whole, properties[part].(schema))...)
				}
			}
			require.NotEmpty(t, below, "values.schema.json does not have %s", l.name)
			at = below
		}
	}
}

// alternatives resolves the references and allOf parts of a schema.
func alternatives(whole, s schema) (all []schema) {
	if ref, is := s["$ref"].(string); is {
		s = whole["definitions"].(schema)[strings.TrimPrefix(ref, "#/definitions/")].(schema)
	}
	parts, _ := s["allOf"].([]any)
	for _, part := range parts {
		all = append(all, alternatives(whole, part.(schema))...)
	}
	return append(all, s)
}
