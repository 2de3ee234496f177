package compat

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// violation is a rule of the schema and a change to testdata/<kind>.yaml that breaks it.
type violation struct {
	rule  string // path in the schema and the keyword, see rulesOf
	patch string // one operation of a JSON patch
	field string // the field that the error must name
}

func (v violation) explains(err *field.Error) bool {
	_, keyword, _ := strings.Cut(v.rule, " ")
	switch keyword {
	case "required":
		return err.Field == v.field && err.Type == field.ErrorTypeRequired
	case "enum":
		return err.Field == v.field && err.Type == field.ErrorTypeNotSupported
	case "minimum", "pattern":
		return err.Field == v.field && err.Type == field.ErrorTypeInvalid
	default:
		about := strings.TrimPrefix(keyword, "rule ")
		return err.Field == v.field && err.Type == field.ErrorTypeInvalid && strings.HasPrefix(err.Detail, about+" is required")
	}
}

var vpaViolations = []violation{
	{"spec required", `{"op": "remove", "path": "/spec"}`, "spec"},
	{"spec.targetRef required", `{"op": "remove", "path": "/spec/targetRef"}`, "spec.targetRef"},
	{"spec.targetRef.kind required", `{"op": "remove", "path": "/spec/targetRef/kind"}`, "spec.targetRef.kind"},
	{"spec.targetRef.name required", `{"op": "remove", "path": "/spec/targetRef/name"}`, "spec.targetRef.name"},

	{"spec.updatePolicy.updateMode enum", `{"op": "add", "path": "/spec/updatePolicy/updateMode", "value": "Sometimes"}`, "spec.updatePolicy.updateMode"},
	{"spec.updatePolicy.updateMode enum", `{"op": "add", "path": "/spec/updatePolicy/updateMode", "value": ""}`, "spec.updatePolicy.updateMode"},
	{"spec.updatePolicy.evictAfterOOMSeconds minimum", `{"op": "add", "path": "/spec/updatePolicy/evictAfterOOMSeconds", "value": 0}`, "spec.updatePolicy.evictAfterOOMSeconds"},
	{"spec.updatePolicy.evictionRequirements[].resources required", `{"op": "remove", "path": "/spec/updatePolicy/evictionRequirements/0/resources"}`, "spec.updatePolicy.evictionRequirements[0].resources"},
	{"spec.updatePolicy.evictionRequirements[].changeRequirement required", `{"op": "remove", "path": "/spec/updatePolicy/evictionRequirements/0/changeRequirement"}`, "spec.updatePolicy.evictionRequirements[0].changeRequirement"},
	{"spec.updatePolicy.evictionRequirements[].changeRequirement enum", `{"op": "add", "path": "/spec/updatePolicy/evictionRequirements/0/changeRequirement", "value": "TargetEqual"}`, "spec.updatePolicy.evictionRequirements[0].changeRequirement"},

	{"spec.resourcePolicy.containerPolicies[].mode enum", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/mode", "value": "On"}`, "spec.resourcePolicy.containerPolicies[0].mode"},
	{"spec.resourcePolicy.containerPolicies[].controlledValues enum", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/controlledValues", "value": "LimitsOnly"}`, "spec.resourcePolicy.containerPolicies[0].controlledValues"},
	{"spec.resourcePolicy.containerPolicies[].minAllowed.* pattern", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/minAllowed/cpu", "value": "half"}`, "spec.resourcePolicy.containerPolicies[0].minAllowed.cpu"},
	{"spec.resourcePolicy.containerPolicies[].maxAllowed.* pattern", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/maxAllowed/memory", "value": "8GB"}`, "spec.resourcePolicy.containerPolicies[0].maxAllowed.memory"},
	{"spec.resourcePolicy.containerPolicies[].oomBumpUpRatio pattern", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/oomBumpUpRatio", "value": "20%"}`, "spec.resourcePolicy.containerPolicies[0].oomBumpUpRatio"},
	{"spec.resourcePolicy.containerPolicies[].oomMinBumpUp pattern", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/oomMinBumpUp", "value": "1 Gi"}`, "spec.resourcePolicy.containerPolicies[0].oomMinBumpUp"},
	{"spec.resourcePolicy.containerPolicies[].memoryAggregationIntervalSeconds minimum", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/memoryAggregationIntervalSeconds", "value": 0}`, "spec.resourcePolicy.containerPolicies[0].memoryAggregationIntervalSeconds"},
	{"spec.resourcePolicy.containerPolicies[].memoryAggregationIntervalCount minimum", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/memoryAggregationIntervalCount", "value": -1}`, "spec.resourcePolicy.containerPolicies[0].memoryAggregationIntervalCount"},

	{"spec.resourcePolicy.containerPolicies[].startupBoost.cpu.type required", `{"op": "remove", "path": "/spec/resourcePolicy/containerPolicies/0/startupBoost/cpu/type"}`, "spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.type"},
	{"spec.resourcePolicy.containerPolicies[].startupBoost.cpu.type enum", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/startupBoost/cpu/type", "value": "Percent"}`, "spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.type"},
	{"spec.resourcePolicy.containerPolicies[].startupBoost.cpu.quantity pattern", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/startupBoost/cpu/quantity", "value": "much"}`, "spec.resourcePolicy.containerPolicies[0].startupBoost.cpu.quantity"},
	{"spec.resourcePolicy.containerPolicies[].startupBoost.cpu rule factor", `{"op": "add", "path": "/spec/resourcePolicy/containerPolicies/0/startupBoost/cpu/factor", "value": 2}`, "spec.resourcePolicy.containerPolicies[0].startupBoost.cpu"},
	{"spec.resourcePolicy.containerPolicies[].startupBoost.cpu rule quantity", `{"op": "remove", "path": "/spec/resourcePolicy/containerPolicies/0/startupBoost/cpu/quantity"}`, "spec.resourcePolicy.containerPolicies[0].startupBoost.cpu"},

	{"spec.startupBoost.cpu.type required", `{"op": "remove", "path": "/spec/startupBoost/cpu/type"}`, "spec.startupBoost.cpu.type"},
	{"spec.startupBoost.cpu.type enum", `{"op": "add", "path": "/spec/startupBoost/cpu/type", "value": ""}`, "spec.startupBoost.cpu.type"},
	{"spec.startupBoost.cpu.quantity pattern", `{"op": "add", "path": "/spec/startupBoost/cpu", "value": {"type": "Quantity", "quantity": "1core"}}`, "spec.startupBoost.cpu.quantity"},
	{"spec.startupBoost.cpu rule factor", `{"op": "remove", "path": "/spec/startupBoost/cpu/factor"}`, "spec.startupBoost.cpu"},
	{"spec.startupBoost.cpu rule quantity", `{"op": "add", "path": "/spec/startupBoost/cpu/quantity", "value": "1"}`, "spec.startupBoost.cpu"},

	{"spec.recommenders[].name required", `{"op": "remove", "path": "/spec/recommenders/0/name"}`, "spec.recommenders[0].name"},

	{"status.observedGeneration minimum", `{"op": "add", "path": "/status/observedGeneration", "value": -1}`, "status.observedGeneration"},
	{"status.conditions[].type required", `{"op": "remove", "path": "/status/conditions/0/type"}`, "status.conditions[0].type"},
	{"status.conditions[].status required", `{"op": "remove", "path": "/status/conditions/0/status"}`, "status.conditions[0].status"},
	{"status.conditions[].observedGeneration minimum", `{"op": "add", "path": "/status/conditions/0/observedGeneration", "value": -1}`, "status.conditions[0].observedGeneration"},
	{"status.recommendation.containerRecommendations[].target required", `{"op": "remove", "path": "/status/recommendation/containerRecommendations/0/target"}`, "status.recommendation.containerRecommendations[0].target"},
	{"status.recommendation.containerRecommendations[].target.* pattern", `{"op": "add", "path": "/status/recommendation/containerRecommendations/0/target/cpu", "value": "x"}`, "status.recommendation.containerRecommendations[0].target.cpu"},
	{"status.recommendation.containerRecommendations[].lowerBound.* pattern", `{"op": "add", "path": "/status/recommendation/containerRecommendations/0/lowerBound/cpu", "value": "x"}`, "status.recommendation.containerRecommendations[0].lowerBound.cpu"},
	{"status.recommendation.containerRecommendations[].upperBound.* pattern", `{"op": "add", "path": "/status/recommendation/containerRecommendations/0/upperBound/cpu", "value": "x"}`, "status.recommendation.containerRecommendations[0].upperBound.cpu"},
	{"status.recommendation.containerRecommendations[].uncappedTarget.* pattern", `{"op": "add", "path": "/status/recommendation/containerRecommendations/0/uncappedTarget/cpu", "value": "x"}`, "status.recommendation.containerRecommendations[0].uncappedTarget.cpu"},
}

func TestSchema_AcceptsValidObjects(t *testing.T) {
	for _, tt := range []struct{ name, crd, file, patch string }{
		{"VPA with every field", vpaCRD, "testdata/vpa.yaml", `[]`},
		{"VPA with a target only", vpaCRD, "testdata/vpa.yaml", `[{"op": "replace", "path": "/spec", "value": {"targetRef": {"kind": "Deployment", "name": "web"}}}, {"op": "remove", "path": "/status"}]`},
		{"checkpoint with every field", checkpointCRD, "testdata/checkpoint.yaml", `[]`},
		{"checkpoint with nothing", checkpointCRD, "testdata/checkpoint.yaml", `[{"op": "remove", "path": "/spec"}, {"op": "remove", "path": "/status"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			crd := ourDefinitions(t)[tt.crd]
			require.Empty(t, check(t, crd, object(t, tt.file, tt.patch)))
		})
	}
	for _, mode := range []string{"Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"} {
		t.Run("update mode "+mode, func(t *testing.T) {
			patch := `[{"op": "add", "path": "/spec/updatePolicy/updateMode", "value": "` + mode + `"}]`
			require.Empty(t, check(t, ourDefinitions(t)[vpaCRD], object(t, "testdata/vpa.yaml", patch)))
		})
	}
}

func TestSchema_RejectsInvalidObjects(t *testing.T) {
	crd := ourDefinitions(t)[vpaCRD]
	for _, v := range vpaViolations {
		t.Run(v.rule, func(t *testing.T) {
			errs := check(t, crd, object(t, "testdata/vpa.yaml", "["+v.patch+"]"))
			require.NotEmpty(t, errs, "accepted")
			// An invalid value can also break a rule of the enclosing object.
			require.Truef(t, slices.ContainsFunc(errs, v.explains), "refused for another reason than %s: %v", v.rule, errs)
		})
	}
}

// A new rule needs a violation, so that no field stays untested.
func TestSchema_EveryRuleHasAViolation(t *testing.T) {
	definitions := ourDefinitions(t)
	tested := map[string]bool{}
	for _, v := range vpaViolations {
		tested[v.rule] = true
	}
	require.Equal(t, rulesOf(definitions[vpaCRD]), slices.Sorted(maps.Keys(tested)))
	require.Empty(t, rulesOf(definitions[checkpointCRD]), "checkpoints have no rules but types")
}

func TestSchema_PrunesUnknownFields(t *testing.T) {
	definitions := ourDefinitions(t)

	checkpoint := object(t, "testdata/checkpoint.yaml", `[{"op": "add", "path": "/status/surprise", "value": 1}]`)
	want := object(t, "testdata/checkpoint.yaml", `[]`)
	pruning.Prune(checkpoint, structural(t, definitions[checkpointCRD]), true)
	require.Equal(t, want, checkpoint)

	vpa := object(t, "testdata/vpa.yaml", `[{"op": "add", "path": "/spec/updatePolicy/surprise", "value": true}]`)
	want = object(t, "testdata/vpa.yaml", `[]`)
	pruning.Prune(vpa, structural(t, definitions[vpaCRD]), true)
	require.Equal(t, want, vpa, "the object with every field must lose the unknown field and nothing else")
}

// rulesOf lists the rules of the stored version, sorted: "<path> enum", "<path> required", "<path>
// minimum", "<path> pattern" and "<path> rule <field of the CEL rule>".
func rulesOf(crd *extensionsv1.CustomResourceDefinition) []string {
	var rules []string
	visit(stored(crd).Schema.OpenAPIV3Schema, "", func(path string, s *extensionsv1.JSONSchemaProps) {
		for _, name := range s.Required {
			rules = append(rules, strings.TrimPrefix(path+"."+name+" required", "."))
		}
		if len(s.Enum) > 0 {
			rules = append(rules, path+" enum")
		}
		if s.Minimum != nil {
			rules = append(rules, path+" minimum")
		}
		if s.Pattern != "" {
			rules = append(rules, path+" pattern")
		}
		for _, rule := range s.XValidations {
			about, _, _ := strings.Cut(rule.Message, " ")
			rules = append(rules, path+" rule "+about)
		}
	})
	slices.Sort(rules)
	return rules
}

// check validates an object as the API server does on creation: schema first, then CEL rules.
func check(t *testing.T, crd *extensionsv1.CustomResourceDefinition, object map[string]any) field.ErrorList {
	t.Helper()
	validator, _, err := validation.NewSchemaValidator(internal(t, crd))
	require.NoError(t, err)
	errs := validation.ValidateCustomResource(nil, object, validator)
	s := structural(t, crd)
	rules := cel.NewValidator(s, true, celconfig.PerCallLimit)
	if rules == nil { // the schema has none
		return errs
	}
	broken, _ := rules.Validate(t.Context(), nil, s, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, broken...)
}

func structural(t *testing.T, crd *extensionsv1.CustomResourceDefinition) *schema.Structural {
	t.Helper()
	s, err := schema.NewStructural(internal(t, crd))
	require.NoError(t, err)
	return s
}

func internal(t *testing.T, crd *extensionsv1.CustomResourceDefinition) *apiextensions.JSONSchemaProps {
	t.Helper()
	var props apiextensions.JSONSchemaProps
	require.NoError(t, extensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stored(crd).Schema.OpenAPIV3Schema, &props, nil))
	return &props
}

func stored(crd *extensionsv1.CustomResourceDefinition) extensionsv1.CustomResourceDefinitionVersion {
	i := slices.IndexFunc(crd.Spec.Versions, func(v extensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	return crd.Spec.Versions[i]
}

func object(t *testing.T, file, patch string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	text, err := yaml.YAMLToJSON(content)
	require.NoError(t, err)
	operations, err := jsonpatch.DecodePatch([]byte(patch))
	require.NoError(t, err, "patch %s", patch)
	text, err = operations.Apply(text)
	require.NoError(t, err, "patch %s", patch)
	var result map[string]any
	require.NoError(t, json.Unmarshal(text, &result))
	return result
}
