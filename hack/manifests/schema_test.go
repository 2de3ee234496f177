package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yannh/kubeconform/pkg/validator"
	appsv1 "k8s.io/api/apps/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

type schema = map[string]any

// newValidator returns kubeconform with the schemas of Kubernetes (in the version of hack/cluster),
// of Loadline's definitions and of cert-manager. Unknown fields are errors.
func newValidator(t *testing.T) validator.Validator {
	t.Helper()
	dir := t.TempDir()
	kubernetes := moduleFolder(t, filepath.Join(root, "hack/cluster"), "k8s.io/kubernetes")
	for _, group := range []string{
		"api__v1", "apis__admissionregistration.k8s.io__v1", "apis__apiextensions.k8s.io__v1", "apis__apps__v1",
		"apis__networking.k8s.io__v1", "apis__policy__v1", "apis__rbac.authorization.k8s.io__v1",
	} {
		writeKubernetes(t, dir, filepath.Join(kubernetes, "api/openapi-spec/v3", group+"_openapi.json"))
	}
	certManager := moduleFolder(t, ".", "github.com/cert-manager/cert-manager")
	for _, pattern := range []string{filepath.Join(root, crdsFolder, "*_*.yaml"), filepath.Join(certManager, "deploy/crds/cert-manager.io_*.yaml")} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			writeDefinition(t, dir, path)
		}
	}
	v, err := validator.New([]string{dir + "/{{ .Group }}/{{ .ResourceAPIVersion }}/{{ .ResourceKind }}.json"}, validator.Opts{Strict: true})
	require.NoError(t, err)
	return v
}

func writeKubernetes(t *testing.T, dir, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text = bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/definitions/"))
	var document struct {
		Components struct{ Schemas map[string]schema }
	}
	require.NoError(t, json.Unmarshal(text, &document))
	definitions := document.Components.Schemas
	for _, definition := range definitions {
		closed(definition)
	}
	for _, definition := range definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue
		}
		kind := kinds[0].(map[string]any)
		whole := maps.Clone(definition)
		whole["definitions"] = reachable(definitions, definition)
		writeSchema(t, dir, kind["group"].(string), kind["version"].(string), kind["kind"].(string), whole)
	}
}

// writeDefinition writes the schema of a custom resource.
func writeDefinition(t *testing.T, dir, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var definition extensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &definition))
	for _, version := range definition.Spec.Versions {
		text, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		require.NoError(t, err)
		var whole schema
		require.NoError(t, json.Unmarshal(text, &whole))
		closed(whole)
		// Kubernetes validates metadata.
		delete(whole["properties"].(map[string]any)["metadata"].(map[string]any), "additionalProperties")
		writeSchema(t, dir, definition.Spec.Group, version.Name, definition.Spec.Names.Kind, whole)
	}
}

func writeSchema(t *testing.T, dir, group, version, kind string, whole schema) {
	t.Helper()
	if group == "" {
		group = version // kubeconform's name of the core group
	}
	dir = filepath.Join(dir, group, version)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	text, err := json.Marshal(whole)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, strings.ToLower(kind)+".json"), text, 0o644))
}

// closed converts an OpenAPI schema to a JSON schema that rejects unknown fields.
func closed(s any) {
	switch s := s.(type) {
	case []any:
		for _, item := range s {
			closed(item)
		}
	case schema:
		for _, item := range s {
			closed(item)
		}
		if s["properties"] != nil && s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] == nil {
			s["additionalProperties"] = false
		}
		if s["format"] == "int-or-string" || s["x-kubernetes-int-or-string"] == true {
			delete(s, "type")
			delete(s, "oneOf")
			s["type"] = []any{"integer", "string"}
		}
		if s["nullable"] == true {
			s["type"] = []any{s["type"], "null"}
		}
	}
}

func reachable(definitions map[string]schema, from schema) map[string]schema {
	found := map[string]schema{}
	var visit func(any)
	visit = func(s any) {
		switch s := s.(type) {
		case []any:
			for _, item := range s {
				visit(item)
			}
		case schema:
			for _, item := range s {
				visit(item)
			}
			ref, _ := s["$ref"].(string)
			name := strings.TrimPrefix(ref, "#/definitions/")
			if definition, is := definitions[name]; is && found[name] == nil {
				found[name] = definition
				visit(definition)
			}
		}
	}
	visit(from)
	return found
}

func invalid(t *testing.T, v validator.Validator, all objects) (problems []string) {
	t.Helper()
	for _, o := range all {
		text, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		for _, result := range v.Validate(o.GetName(), io.NopCloser(bytes.NewReader(text))) {
			if result.Status != validator.Valid {
				problems = append(problems, o.GetKind()+" "+o.GetName()+": "+result.Err.Error())
			}
		}
	}
	return problems
}

func TestManifests_AreValid(t *testing.T) {
	v := newValidator(t)
	for _, folder := range additions() {
		require.Empty(t, invalid(t, v, kustomized(t, folder)), folder)
	}
	t.Run("what is wrong is found", func(t *testing.T) { testInvalidObjects(t, v) })

	// All objects are rendered once and shared by the checks.
	all := applied(t)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		unseen := slices.DeleteFunc(slices.Clone(all[name]), func(o *unstructured.Unstructured) bool {
			text, err := o.MarshalJSON()
			require.NoError(t, err)
			was := seen[string(text)]
			seen[string(text)] = true
			return was
		})
		require.Empty(t, invalid(t, v, unseen), name)
		require.Empty(t, dangling(t, all[name]), name)
		deployments := all[name].of("Deployment")
		require.NotEmpty(t, deployments, name)
		if name == upstreamName {
			continue // these values configure pods as in the upstream chart, see requireAsUpstream
		}
		for _, o := range deployments {
			require.Empty(t, flaws(t, into[appsv1.Deployment](t, o)), "%s: %s", name, o.GetName())
		}
	}
}

func testInvalidObjects(t *testing.T, v validator.Validator) {
	vpa := func(update map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": map[string]any{"name": "shop", "namespace": "shop"},
			"spec": map[string]any{"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}, "updatePolicy": update},
		}}
	}
	require.Empty(t, invalid(t, v, objects{vpa(map[string]any{"updateMode": "Off"})}))
	require.NotEmpty(t, invalid(t, v, objects{vpa(map[string]any{"mode": "Off"})}), "a field that our definition does not have")
	require.NotEmpty(t, invalid(t, v, objects{{Object: map[string]any{"apiVersion": "v1", "kind": "Servant", "metadata": map[string]any{"name": "x"}}}}), "a kind that nobody has")

	for _, tc := range []struct {
		name   string
		change func(*unstructured.Unstructured)
	}{
		{name: "unknown field", change: func(o *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(o.Object, int64(2), "spec", "replica"))
		}},
		{name: "wrong type", change: func(o *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(o.Object, "two", "spec", "replicas"))
		}},
		{name: "missing field",
			change: func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "selector") }},
		{name: "unknown field of a container", change: func(o *unstructured.Unstructured) {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			require.NoError(t, err)
			containers[0].(map[string]any)["arg"] = []any{}
			require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := kustomized(t, "deploy/overlays/full").of("Deployment")["vpa-updater"]
			require.Empty(t, invalid(t, v, objects{broken}))
			tc.change(broken)
			require.NotEmpty(t, invalid(t, v, objects{broken}))
		})
	}
	issuer := chart(t, issuerValues).objects.of("Certificate")["prod-vertical-pod-autoscaler-webhook-cert"]
	require.Empty(t, invalid(t, v, objects{issuer}))
	unstructured.RemoveNestedField(issuer.Object, "spec", "issuerRef")
	require.NotEmpty(t, invalid(t, v, objects{issuer}), "a certificate of nobody")
}
