package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	// Modules with files that tests read, imported to pin their versions in go.mod.
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "k8s.io/autoscaler/vertical-pod-autoscaler/common"
)

const (
	root          = "../.."
	release       = "prod"
	overlayPrefix = "deploy/overlays/"
)

type objects []*unstructured.Unstructured

func decode(t *testing.T, text []byte) (all objects) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

func (all objects) of(kind string) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		if o.GetKind() == kind {
			found[o.GetName()] = o
		}
	}
	return found
}

func into[T any](t *testing.T, o *unstructured.Unstructured) (typed T) {
	t.Helper()
	require.NotNil(t, o)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true))
	return typed
}

func overlays(t *testing.T) (names []string) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(root, overlayPrefix+"*"))
	require.NoError(t, err)
	for _, folder := range folders {
		names = append(names, overlayPrefix+filepath.Base(folder))
	}
	require.Contains(t, names, "deploy/overlays/full")
	return names
}

func kustomized(t *testing.T, folder string) objects {
	t.Helper()
	text, err := kustomize(filepath.Join(root, folder))
	require.NoError(t, err)
	return decode(t, text)
}

func withComponent(t *testing.T, folder, component string) objects {
	t.Helper()
	at, err := filepath.Abs(root)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "k")
	require.NoError(t, os.Mkdir(dir, 0o755))
	resolved, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	relative, err := filepath.Rel(resolved, at)
	require.NoError(t, err)
	kustomization := fmt.Sprintf("resources: [%s/%s]\ncomponents: [%s/%s]\n", relative, folder, relative, component)
	require.NoError(t, os.WriteFile(filepath.Join(resolved, "kustomization.yaml"), []byte(kustomization), 0o644))
	text, err := kustomize(resolved)
	require.NoError(t, err)
	return decode(t, text)
}

// values merges YAML texts with chart values. Later ones take precedence.
func values(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		var one map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &one))
		all = loader.MergeMaps(all, one)
	}
	return all
}

// rendered is a rendered chart, as in `helm template`.
type rendered struct {
	objects objects
	notes   string
}

func template(folder, namespace string, given map[string]any) (map[string]string, error) {
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	ready, err := util.ToRenderValues(chart, given, options, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, ready)
}

func renderedFrom(t *testing.T, folder, namespace string, given map[string]any) (r rendered) {
	t.Helper()
	files, err := template(folder, namespace, given)
	require.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) == "NOTES.txt" {
			r.notes = files[name]
			continue
		}
		r.objects = append(r.objects, decode(t, []byte(files[name]))...)
	}
	return r
}

func chart(t *testing.T, texts ...string) rendered {
	t.Helper()
	return renderedFrom(t, filepath.Join(root, chartFolder), "kube-system", values(t, texts...))
}

func chartRefuses(t *testing.T, texts ...string) string {
	t.Helper()
	_, err := template(filepath.Join(root, chartFolder), "kube-system", values(t, texts...))
	require.Error(t, err)
	return err.Error()
}

// Values for all certificate sources other than the program itself, and for all optional parts.
const (
	issuerValues   = "admissionController: {certGen: {enabled: false}, certManager: {enabled: true, issuerRef: {name: house}}}"
	selfSigned     = "admissionController: {certGen: {enabled: false}, certManager: {enabled: true, createSelfSignedIssuer: {enabled: true}}}"
	ownCertificate = "admissionController: {certGen: {enabled: false}, tls: {create: true, caCert: a, cert: b, key: c}}"
	ownSecret      = "admissionController: {certGen: {enabled: false}, registerWebhook: true}"
	onlyRecommend  = "{admissionController: {enabled: false}, updater: {enabled: false}}"
	selectors      = "admissionController: {mutatingWebhookConfiguration: {objectSelector: {matchLabels: {size: auto}}, namespaceSelector: {matchLabels: {size: auto}}}}"
	everything     = `
imagePullSecrets: [{name: pull}]
commonLabels: {team: platform}
networkPolicy: {enabled: true, apiServers: [10.0.0.7/32], egress: {enabled: true, rules: [{ports: [{port: 9090}]}]}}
rbac: {explainReader: true, extraRules: [{apiGroups: [external.metrics.k8s.io], resources: ["*"], verbs: [get, list]}]}
recommender: {extraEnv: [{name: PROMETHEUS_USERNAME, value: reader}], nodeSelector: {pool: system}, annotations: {a: b}, podAnnotations: {a: b}, priorityClassName: high}
updater: {tolerations: [{operator: Exists}], updateStrategy: {type: Recreate}, leaderElection: {resourceNamespace: other}, podDisruptionBudget: {minAvailable: null, maxUnavailable: 50%}}
admissionController: {hostNetwork: false, volumes: [{name: extra, emptyDir: {}}], volumeMounts: [{name: extra, mountPath: /extra}]}
`
)

// upstreamName is the key in applied of the chart with all values of the upstream chart.
const upstreamName = "chart: the reference's"

// applied returns all sets of objects that users can apply, by name.
func applied(t *testing.T) map[string]objects {
	t.Helper()
	all := map[string]objects{}
	for _, name := range overlays(t) {
		all[name] = kustomized(t, name)
		all[name+" with deploy/large"] = withComponent(t, name, "deploy/large")
	}
	static, err := os.ReadFile(filepath.Join(root, "deploy/loadline.yaml"))
	require.NoError(t, err)
	all["deploy/loadline.yaml"] = decode(t, static)
	for name, given := range map[string]string{
		"defaults": "{}", "cert-manager": issuerValues, "cert-manager with a CA": selfSigned, "own certificate": ownCertificate,
		"own Secret": ownSecret, "only the recommender": onlyRecommend, "selectors": selectors, "everything": everything,
		strings.TrimPrefix(upstreamName, "chart: "): upstreamValues(t),
	} {
		all["chart: "+name] = chart(t, given).objects
	}
	return all
}

func additions() []string {
	return []string{"deploy/external-metrics", "deploy/node-load", "deploy/admission-policy", "deploy/network-policy", "deploy/network-policy-egress", "deploy/migrate", "deploy/explain-reader"}
}

var moduleFolders = map[string]string{}

// moduleFolder returns the directory of a module required by the go.mod in a folder.
func moduleFolder(t *testing.T, folder, path string) string {
	t.Helper()
	if known := moduleFolders[path]; known != "" {
		return known
	}
	cmd := exec.Command("go", "mod", "download", "-json", path)
	cmd.Dir = folder
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go mod download %s: %s", path, out)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	moduleFolders[path] = module.Dir
	return module.Dir
}

// upstreamChart returns the folder of the upstream chart, version 0.13.0.
func upstreamChart(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(moduleFolder(t, ".", "k8s.io/autoscaler/vertical-pod-autoscaler"), "charts/vertical-pod-autoscaler")
	text, err := os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	require.NoError(t, err)
	require.True(t, strings.Contains(string(text), "\nversion: 0.13.0\n"), "another version of the reference's chart")
	return folder
}

// upstreamValues returns the values.yaml of the upstream chart, as users may have copied it.
func upstreamValues(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(upstreamChart(t), "values.yaml"))
	require.NoError(t, err)
	return string(text)
}
