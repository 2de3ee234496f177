package compat

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

func loadlineDefinitions(t *testing.T) map[string]*apiextensions.CustomResourceDefinition {
	files, err := filepath.Glob("../../deploy/crds/loadline.dev_*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 2)
	out := map[string]*apiextensions.CustomResourceDefinition{}
	for name, crd := range definitions(t, files...) {
		for _, version := range crd.Spec.Versions {
			visit(version.Schema.OpenAPIV3Schema, "", func(path string, s *extensionsv1.JSONSchemaProps) {
				if path != "metadata" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, ".*") {
					require.NotEmpty(t, s.Description, "%s: field %s", name, path)
				}
				require.Nil(t, s.Default, "%s: field %s", name, path)
			})
		}
		extensionsv1.SetDefaults_CustomResourceDefinition(crd)
		extensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		require.NoError(t, extensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil))
		internal.Status.StoredVersions = []string{"v1alpha1"}
		require.Empty(t, extensionsvalidation.ValidateCustomResourceDefinition(t.Context(), internal))
		out[name] = internal
	}
	return out
}

func TestSizingPolicyCRD_RejectsInvalidFields(t *testing.T) {
	crd := loadlineDefinitions(t)["sizingpolicies.loadline.dev"]
	require.NotNil(t, crd)
	props := crd.Spec.Validation
	if props == nil {
		props = crd.Spec.Versions[0].Schema
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	require.NoError(t, err)
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	require.NoError(t, err)
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	check := func(fields string) field.ErrorList {
		spec := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(`{"namespaces":{"names":["shop"]},"workloads":[{"apiVersion":"apps/v1","kind":"Deployment"}]}`), &spec))
		var more map[string]any
		d := json.NewDecoder(strings.NewReader("{" + fields + "}"))
		require.NoError(t, d.Decode(&more), fields)
		for k, v := range more {
			spec[k] = v
		}
		raw, err := json.Marshal(map[string]any{"apiVersion": "loadline.dev/v1alpha1", "kind": "SizingPolicy", "metadata": map[string]any{"name": "p"}, "spec": spec})
		require.NoError(t, err)
		var object map[string]any
		require.NoError(t, unmarshalInts(raw, &object))
		all := validation.ValidateCustomResource(nil, object, validator)
		more2, _ := rules.Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		return append(all, more2...)
	}
	for _, good := range []string{
		``, `"priority":1,"paused":true,"recommender":"night","vpas":"Never","recipe":"x"`,
		`"namespaces":{"selector":{}}`,
		`"workloads":[{"apiVersion":"batch/v1","kind":"CronJob"},{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","name":"web"}]`,
		`"resourcePolicy":{"containerPolicies":[{"containerName":"*","minAllowed":{"cpu":"10m"}}]}`,
		`"rollout":{"mode":"Canary","canary":{"percentage":10,"observationPeriod":"1h30m"},"cooldown":"0s","maxConcurrent":0,"schedule":{"windows":[{"start":"22:00","end":"06:00"}],"daysOfWeek":["Monday"],"timezone":"UTC"}}`,
		`"safety":{"observationPeriod":"1m","restarts":2,"throttle":"0.5","pressure":"0"}`,
		`"sharing":{"mode":"Off","resources":["cpu","memory"]}`,
	} {
		require.Empty(t, check(good), good)
	}
	for _, bad := range []string{
		`"priority":0`, `"priority":1001`, `"namespaces":{}`, `"namespaces":{"names":[]}`, `"namespaces":{"names":[""]}`,
		`"workloads":[]`, `"workloads":[{"apiVersion":"v1","kind":"Deployment"}]`, `"workloads":[{"apiVersion":"apps/v1","kind":"Rollout"}]`, `"workloads":[{"apiVersion":"apps/v1","kind":"Rollout","name":""}]`,
		`"workloads":[` + strings.Repeat(`{"apiVersion":"apps/v1","kind":"Deployment"},`, 32) + `{"apiVersion":"apps/v1","kind":"Deployment"}]`,
		`"vpas":"x"`, `"containers":{"exclude":[` + strings.Repeat(`"a",`, 100) + `"a"]}`,
		`"rollout":{"mode":"auto"}`, `"rollout":{"mode":"Canary"}`, `"rollout":{"mode":"Canary","canary":{}}`, `"rollout":{"canary":{"percentage":0}}`, `"rollout":{"canary":{"percentage":101}}`,
		`"rollout":{"canary":{"observationPeriod":"59s"}}`, `"rollout":{"cooldown":"-1s"}`, `"rollout":{"cooldown":"soon"}`, `"rollout":{"cooldown":3}`, `"rollout":{"maxConcurrent":-1}`,
		`"rollout":{"schedule":{"windows":[{"start":"22:00","end":"22:00"}]}}`, `"rollout":{"schedule":{"windows":[{"start":"9:00","end":"22:00"}]}}`, `"rollout":{"schedule":{"windows":[{"start":"09:00","end":"24:00"}]}}`,
		`"rollout":{"schedule":{"daysOfWeek":["Mon"]}}`, `"rollout":{"method":"x"}`, `"rollout":{"initialSizing":"x"}`, `"rollout":{"hpa":"x"}`,
		`"safety":{"observationPeriod":"1s"}`, `"safety":{"restarts":0}`, `"safety":{"throttle":"1.1"}`, `"safety":{"pressure":"50%"}`, `"safety":{"throttle":0.5}`,
		`"sharing":{"mode":"x"}`, `"sharing":{"resources":["gpu"]}`, `"sharing":{"cpuLimit":"x"}`, `"sharing":{"nodeAutoscaler":"x"}`,
	} {
		errs := check(bad)
		require.NotEmpty(t, errs, bad)
		t.Logf("%.80s: %v", bad, errs.ToAggregate())
	}
}

func unmarshalInts(raw []byte, into *map[string]any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	fix(*into)
	return nil
}

func fix(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = fix(v[k])
		}
	case []any:
		for i := range v {
			v[i] = fix(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}
