package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Pods of a custom controller are sized like any others: its selector and its
// replicas come from the scale subresource.
func TestCustomControllerWithScale(t *testing.T) {
	t.Parallel()
	w := harness.Workload{Namespace: namespace(t, "custom"), Name: "fleet", Replicas: 2, Containers: []harness.Container{{Name: "app"}}}
	apply(t, fleetDefinition)
	require.NoError(t, cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/fleets.example.com"))
	apply(t, fleet)
	uid, err := cluster.KubectlOutput(t.Context(), "-n", "custom", "get", "fleet", "fleet", "-o=jsonpath={.metadata.uid}")
	require.NoError(t, err)
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", "custom", "patch", "fleet", "fleet", "--subresource=status", "--type=merge",
		`-p={"status":{"replicas":2,"selector":"app=fleet"}}`))
	for i := range w.Replicas {
		apply(t, fmt.Sprintf(fleetPod, i, uid))
	}
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, func(vpa *vpav1.VerticalPodAutoscaler) {
		vpa.Spec.TargetRef = &autoscaling.CrossVersionObjectReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: "fleet"}
	}))
	eventually(t, "both pods of the fleet resized", func() error {
		for _, pod := range pods(t, w) {
			if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu(); cpu.MilliValue() < 400 {
				return fmt.Errorf("%s requests %s", pod.Name, cpu)
			}
		}
		return nil
	})
	for i, pod := range pods(t, w) {
		require.Equal(t, before[i].UID, pod.UID)
	}
	apply(t, fmt.Sprintf(fleetPod, 2, uid))
	added, err := cluster.Kube.CoreV1().Pods("custom").Get(t.Context(), "fleet-2", metav1.GetOptions{})
	require.NoError(t, err)
	atLeast(t, "400m", added.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU], "CPU request of a new pod of the fleet")
}

const fleetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet, listKind: FleetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
`

const fleet = `
apiVersion: example.com/v1
kind: Fleet
metadata: {namespace: custom, name: fleet}
spec: {replicas: 2}
`

const fleetPod = `
apiVersion: v1
kind: Pod
metadata:
  namespace: custom
  name: fleet-%d
  labels: {app: fleet}
  annotations: {sim.loadline.dev/cpu.app: 400m, sim.loadline.dev/memory.app: 320Mi}
  ownerReferences: [{apiVersion: example.com/v1, kind: Fleet, name: fleet, uid: %s, controller: true}]
spec:
  containers:
  - name: app
    image: simulated
    resources: {requests: {cpu: 50m, memory: 300Mi}}
`
