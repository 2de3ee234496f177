package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// Selector and replicas of a custom controller come from the scale subresource.
func TestCustomController_ResizesPodsThroughScale(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{Namespace: namespace(t, "custom"), Name: "fleet", Replicas: 2, Containers: []harness.Container{{Name: "app"}}}
	uid := createFleet(t, w)
	before := awaitRunning(t, w)
	require.NoError(t, cluster.CreateVPA(t.Context(), w, vpav1.UpdateModeInPlaceOrRecreate, withTargetRef("example.com/v1", "Fleet")))
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
	apply(t, fmt.Sprintf(fleetPod, w.Namespace, 2, uid))
	added, err := cluster.Kube.CoreV1().Pods("custom").Get(t.Context(), "fleet-2", metav1.GetOptions{})
	require.NoError(t, err)
	atLeast(t, "400m", added.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU], "CPU request of a new pod of the fleet")
}

// At most half of the pods are evicted until replacements exist. Here the test itself creates the
// replacements.
func TestEviction_CustomControllerLosesAtMostHalf(t *testing.T) {
	parallelTest(t)
	w := harness.Workload{Namespace: namespace(t, "custom-evicted"), Name: "fleet", Replicas: 4, Containers: []harness.Container{{Name: "app"}}}
	uid := createFleet(t, w)
	awaitRunning(t, w)
	createVPAWithTarget(t, w, vpav1.UpdateModeRecreate, larger, withTargetRef("example.com/v1", "Fleet"))
	eventually(t, "two of four pods are evicted", func() error {
		if n := len(pods(t, w)); n > 2 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	during(t, 10*time.Second, func() { require.Len(t, pods(t, w), 2, "more than half are away") })
	for i := range w.Replicas {
		apply(t, fmt.Sprintf(fleetPod, w.Namespace, 4+i, uid))
		if i == 1 {
			eventually(t, "the other two are evicted as well", func() error {
				for _, pod := range pods(t, w) {
					if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu(); cpu.Cmp(*quantity("300m")) != 0 {
						return fmt.Errorf("%s requests %s", pod.Name, cpu)
					}
				}
				return nil
			})
		}
	}
	awaitSized(t, w, "300m")
}

func createFleet(t *testing.T, w harness.Workload) string {
	t.Helper()
	apply(t, fleetDefinition)
	require.NoError(t, cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/fleets.example.com"))
	apply(t, fmt.Sprintf(fleet, w.Namespace, w.Replicas))
	uid, err := cluster.KubectlOutput(t.Context(), "-n", w.Namespace, "get", "fleet", "fleet", "-o=jsonpath={.metadata.uid}")
	require.NoError(t, err)
	require.NoError(t, cluster.Kubectl(t.Context(), "-n", w.Namespace, "patch", "fleet", "fleet", "--subresource=status", "--type=merge",
		fmt.Sprintf(`-p={"status":{"replicas":%d,"selector":"app=fleet"}}`, w.Replicas)))
	for i := range w.Replicas {
		apply(t, fmt.Sprintf(fleetPod, w.Namespace, i, uid))
	}
	return uid
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
metadata: {namespace: %s, name: fleet}
spec: {replicas: %d}
`

const fleetPod = `
apiVersion: v1
kind: Pod
metadata:
  namespace: %s
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
