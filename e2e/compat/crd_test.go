package compat

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	strictyaml "sigs.k8s.io/yaml"
)

const (
	upstreamModule = "k8s.io/autoscaler/vertical-pod-autoscaler"
	upstreamCRDs   = "deploy/vpa-v1-crd-gen.yaml"
	ourCRDs        = "../../deploy/crds/autoscaling.k8s.io_*.yaml"

	vpaCRD        = "verticalpodautoscalers.autoscaling.k8s.io"
	checkpointCRD = "verticalpodautoscalercheckpoints.autoscaling.k8s.io"

	// generatorAnnotation holds the version of controller-gen, which differs between releases and
	// has no meaning to clients.
	generatorAnnotation = "controller-gen.kubebuilder.io/version"
)

// addedShortNames and addedColumns are the only intended differences: short names appended to
// upstream's, and the printer columns of checkpoints.
var addedShortNames = map[string][]string{
	vpaCRD:        nil,
	checkpointCRD: {"checkpoint", "checkpoints"},
}

var addedColumns = map[string][]string{
	checkpointCRD: {"VPA", "Container", "Samples", "Newest", "Age"},
}

func TestCRDs_MatchUpstream(t *testing.T) {
	upstream, ours := upstreamDefinitions(t), ourDefinitions(t)
	require.ElementsMatch(t, []string{vpaCRD, checkpointCRD}, slices.Collect(maps.Keys(upstream)), "upstream's definitions")
	require.ElementsMatch(t, []string{vpaCRD, checkpointCRD}, slices.Collect(maps.Keys(ours)), "our definitions")

	for name, want := range upstream {
		t.Run(name, func(t *testing.T) {
			got := ours[name]
			require.Equal(t, append(slices.Clone(want.Spec.Names.ShortNames), addedShortNames[name]...), got.Spec.Names.ShortNames)
			want.Spec.Names.ShortNames, got.Spec.Names.ShortNames = nil, nil
			if added := addedColumns[name]; added != nil {
				shown := &got.Spec.Versions[0].AdditionalPrinterColumns
				var columns []string
				for _, column := range *shown {
					columns = append(columns, column.Name)
				}
				require.Equal(t, added, columns)
				require.Empty(t, want.Spec.Versions[0].AdditionalPrinterColumns)
				*shown = nil
			}

			normalise(want)
			normalise(got)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s differs from upstream (- upstream, + ours):\n%s", name, diff)
			}
		})
	}
}

// Guards the comparison itself, with each kind of difference that a client would notice.
func TestCRDs_ComparisonDetectsDifferences(t *testing.T) {
	type change struct {
		name  string
		apply func(crd *extensionsv1.CustomResourceDefinition)
	}
	spec := func(crd *extensionsv1.CustomResourceDefinition) map[string]extensionsv1.JSONSchemaProps {
		return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	}
	for _, c := range []change{
		{"printer column order", func(crd *extensionsv1.CustomResourceDefinition) {
			columns := crd.Spec.Versions[0].AdditionalPrinterColumns
			columns[0], columns[1] = columns[1], columns[0]
		}},
		{"missing enum value", func(crd *extensionsv1.CustomResourceDefinition) {
			mode := spec(crd)["updatePolicy"].Properties["updateMode"]
			mode.Enum = mode.Enum[1:]
			spec(crd)["updatePolicy"].Properties["updateMode"] = mode
		}},
		{"map type", func(crd *extensionsv1.CustomResourceDefinition) {
			target := spec(crd)["targetRef"]
			target.XMapType = nil
			spec(crd)["targetRef"] = target
		}},
		{"rule", func(crd *extensionsv1.CustomResourceDefinition) {
			cpu := spec(crd)["startupBoost"].Properties["cpu"]
			cpu.XValidations = cpu.XValidations[1:]
			spec(crd)["startupBoost"].Properties["cpu"] = cpu
		}},
		{"additional field", func(crd *extensionsv1.CustomResourceDefinition) {
			spec(crd)["surprise"] = extensionsv1.JSONSchemaProps{Type: "string"}
		}},
		{"subresource", func(crd *extensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Subresources = nil
		}},
		{"deprecation", func(crd *extensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[1].Deprecated = false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, got := ourDefinitions(t)[vpaCRD], ourDefinitions(t)[vpaCRD]
			c.apply(got)
			normalise(want)
			normalise(got)
			require.NotEmpty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
		})
	}
}

func TestCRDs_PassAPIServerValidation(t *testing.T) {
	for name, crd := range ourDefinitions(t) {
		t.Run(name, func(t *testing.T) {
			extensionsv1.SetDefaults_CustomResourceDefinition(crd)
			extensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			internal := &apiextensions.CustomResourceDefinition{}
			require.NoError(t, extensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil))
			// The API server sets this on creation.
			internal.Status.StoredVersions = []string{"v1"}
			require.Empty(t, extensionsvalidation.ValidateCustomResourceDefinition(t.Context(), internal))
		})
	}
}

// kubectl explain shows the descriptions.
func TestCRDs_DescribeEveryField(t *testing.T) {
	for name, crd := range ourDefinitions(t) {
		for _, version := range crd.Spec.Versions {
			visit(version.Schema.OpenAPIV3Schema, "", func(path string, schema *extensionsv1.JSONSchemaProps) {
				// The API server documents metadata itself.
				if path != "metadata" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, ".*") {
					require.NotEmpty(t, schema.Description, "%s %s: field %s has no description", name, version.Name, path)
				}
			})
		}
	}
}

func upstreamDefinitions(t *testing.T) map[string]*extensionsv1.CustomResourceDefinition {
	t.Helper()
	return definitions(t, filepath.Join(upstreamFolder(t), upstreamCRDs))
}

func upstreamFolder(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", upstreamModule)
	command.Stderr = os.Stderr
	dir, err := command.Output()
	require.NoError(t, err, "find module %s", upstreamModule)
	return strings.TrimSpace(string(dir))
}

func ourDefinitions(t *testing.T) map[string]*extensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(ourCRDs)
	require.NoError(t, err)
	require.NotEmpty(t, files, "no file matches %s", ourCRDs)
	return definitions(t, files...)
}

// definitions reads files of custom resource definitions, by name. An unknown field fails the test,
// because the API server would drop it.
func definitions(t *testing.T, files ...string) map[string]*extensionsv1.CustomResourceDefinition {
	t.Helper()
	found := map[string]*extensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
		buffer := make([]byte, len(content))
		for {
			n, err := documents.Read(buffer)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, "read %s", file)
			crd := &extensionsv1.CustomResourceDefinition{}
			require.NoError(t, strictyaml.UnmarshalStrict(buffer[:n], crd), "parse %s", file)
			if crd.Name != "" {
				found[crd.Name] = crd
			}
		}
	}
	return found
}

// normalise removes parts that no client acts on (descriptions, the generator's version, the order
// within sets) and sets the API server's defaults.
func normalise(crd *extensionsv1.CustomResourceDefinition) {
	extensionsv1.SetDefaults_CustomResourceDefinition(crd)
	extensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	delete(crd.Annotations, generatorAnnotation)
	for i := range crd.Spec.Versions {
		if has := crd.Spec.Versions[i].Subresources; has != nil && *has == (extensionsv1.CustomResourceSubresources{}) {
			crd.Spec.Versions[i].Subresources = nil // none either way
		}
		visit(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, "", func(_ string, schema *extensionsv1.JSONSchemaProps) {
			schema.Description = ""
			slices.Sort(schema.Required)
			slices.SortFunc(schema.Enum, func(a, b extensionsv1.JSON) int { return bytes.Compare(a.Raw, b.Raw) })
		})
	}
}

// visit calls do for schema and every schema below it. Paths are dotted names, with [] for list
// items and * for map values. do may change its argument.
func visit(schema *extensionsv1.JSONSchemaProps, path string, do func(path string, schema *extensionsv1.JSONSchemaProps)) {
	do(path, schema)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		visit(&property, strings.TrimPrefix(path+"."+name, "."), do)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		visit(schema.Items.Schema, path+"[]", do)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		visit(schema.AdditionalProperties.Schema, path+".*", do)
	}
}
