package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// injector adds a container to labeled pods, like a service mesh.
const injector = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: inject-exported}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: labeled, expression: "object.metadata.?labels['inject'].orValue('') == 'exported'"}]
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: "[JSONPatch{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{name: 'helper', image: 'none'}}]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: inject-exported}
spec: {policyName: inject-exported}
`

const exportedWorkloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: orders}
spec:
  selector: {matchLabels: {app: orders}}
  template:
    metadata: {labels: {app: orders, inject: exported}}
    spec: {containers: [{name: app, image: none, resources: {requests: {cpu: 50m, memory: 50Mi}, limits: {memory: 60Mi}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: etl}
spec:
  template:
    metadata: {labels: {app: etl}}
    spec: {restartPolicy: Never, containers: [{name: run, image: none, resources: {requests: {cpu: 50m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec: {containers: [{name: app, image: none}]}
`

// Injected containers and Jobs are listed as omitted instead.
func TestPluginExport_PatchesPassAPIServerValidation(t *testing.T) {
	parallelTest(t)
	at := namespace(t, "exported")
	file := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "objects.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	kubectl(t, ".", "apply", "-f", file(injector))
	eventually(t, "a container is injected", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try", Labels: map[string]string{"inject": "exported"}}}
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "none"}}
		made, err := cluster.Kube.CoreV1().Pods(at).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(made.Spec.Containers) != 2 {
			err = errors.New("it is not")
		}
		return err
	})
	kubectl(t, ".", "apply", "-n", at, "-f", file(exportedWorkloads))
	var printed string
	eventually(t, "the Deployment is exported", func() error {
		if printed = runPlugin(t, "export", "-n", at); !strings.Contains(printed, "kind: Deployment") {
			return errors.New(printed)
		}
		return nil
	})
	for _, left := range []string{"container helper of Deployment orders in namespace exported", "Job etl in namespace exported", "pod exported/bare"} {
		require.Contains(t, printed, "! "+left+" is left out: ")
	}
	kubectl(t, ".", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", file(withoutWarnings(printed)))
}
