package updater

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/updater/nodeload"
)

// busyPrometheus answers for one node, at its address, with a load of 9.
func busyPrometheus(w http.ResponseWriter, r *http.Request) {
	end, _ := strconv.ParseFloat(r.FormValue("end"), 64)
	var values []string
	for i := range 9 {
		values = append(values, fmt.Sprintf(`[%f,"9"]`, end-float64(15*i)))
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"instance":"10.0.0.1:9100"},"values":[%s]}]}}`, strings.Join(values, ","))
}

func TestNodeLoadTaint_FlagsControlTaints(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(busyPrometheus))
	defer server.Close()
	for name, c := range map[string]struct {
		mode      string
		dryRun    bool
		namespace string
		tainted   []string // of n1 (overloaded) and n2 (tainted before)
		counted   float64
	}{
		"off":                      {mode: nodeload.Off},
		"off, of one namespace":    {mode: nodeload.Off, namespace: "shop"},
		"on":                       {mode: nodeload.On, tainted: []string{"n1"}, counted: 1},
		"on, of one namespace":     {mode: nodeload.On, namespace: "shop", tainted: []string{"n1"}, counted: 1},
		"dry run":                  {mode: nodeload.DryRun, tainted: []string{"n2"}, counted: 1},
		"on, in a dry run of all":  {mode: nodeload.On, dryRun: true, tainted: []string{"n2"}, counted: 1},
		"off, in a dry run of all": {mode: nodeload.Off, dryRun: true, tainted: []string{"n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			config.NodeLoad.Mode, config.NodeLoad.MaxShare, config.DryRun, config.Kube.Namespace = c.mode, 0.5, c.dryRun, c.namespace
			config.Evidence.Address = server.URL
			require.NoError(t, config.Validate())
			ready := func(name string, taints ...corev1.Taint) *corev1.Node {
				n := node(name, "4")
				n.Spec.Taints = taints
				n.Status.Capacity = n.Status.Allocatable
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				return n
			}
			first := ready("n1")
			first.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
			kube := fake.NewClientset(first, ready("n2", corev1.Taint{Key: nodeload.TaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}))
			registry := prometheus.NewPedanticRegistry()
			d := dependencies{env: process.OS{}, metrics: newMetrics(registry), clients: sameClients(kube, vpafake.NewSimpleClientset())}
			p := startProgram(t, config, d, overrides{})
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			ended := make(chan struct{})
			go func() { defer close(ended); p.nodeLoad(ctx) }()
			if c.mode == nodeload.Off {
				<-ended // nothing more to do
			}
			world := &world{t: t, registry: registry}
			require.Eventually(t, func() bool { return world.value("loadline_node_tainted_nodes") == c.counted }, time.Minute, time.Millisecond)
			tainted := func() (names []string) {
				nodes, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				for i := range nodes.Items {
					if nodeload.Tainted(&nodes.Items[i]) {
						names = append(names, nodes.Items[i].Name)
					}
				}
				return names
			}
			require.Eventually(t, func() bool { return slices.Equal(tainted(), c.tainted) }, time.Minute, time.Millisecond)
			cancel()
			<-ended
			require.Equal(t, c.tainted, tainted())
		})
	}
}
