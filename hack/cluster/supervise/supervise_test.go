package supervise

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/itchyny/gojq"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/stage"
)

func TestWatchLease_StopsWhenCommandExits(t *testing.T) {
	var cause error
	watchLease(strings.NewReader(string(rune(ReleaseByte))), func(err error) { cause = err })
	require.NoError(t, cause, "let go")
	watchLease(strings.NewReader(""), func(err error) { cause = err })
	require.ErrorContains(t, cause, "has ended")
}

func TestSpawnerFailure_DetectsPortInUse(t *testing.T) {
	s := &spawner{folder: instance.Folder(t.TempDir())}
	require.NoError(t, os.Mkdir(s.folder.Path(instance.LogsDir), 0o755))
	fail := func(log string) error {
		require.NoError(t, os.WriteFile(s.folder.Log("etcd"), []byte(log), 0o644))
		return s.failure(&child{name: "etcd", err: errors.New("exit status 1")})
	}
	require.ErrorIs(t, fail("listen tcp 127.0.0.1:1: bind: address already in use\n"), errPortTaken)
	err := fail(strings.Repeat("old\n", 100) + "the reason\n")
	require.NotErrorIs(t, err, errPortTaken)
	require.ErrorContains(t, err, "etcd died: exit status 1")
	require.ErrorContains(t, err, "the reason")
	require.Less(t, strings.Count(err.Error(), "old"), 20)
}

func TestAwaitNodes_RecoversFromStagesMissedByKwok(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": map[string]any{"name": "node-ready"}}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		client := fake.NewClientset(node)
		all := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{stageResource(): "StageList"}, stage)
		all.PrependReactor("patch", "stages", func(clienttesting.Action) (bool, runtime.Object, error) {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			_, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			return false, nil, err
		})
		b := &bootstrap{client: client, dynamic: all}
		require.NoError(t, b.awaitNodes(t.Context(), 1))
	})
}

func TestSimulation_UserStagesReplaceDefaults(t *testing.T) {
	ours, err := simulation(instance.Options{})
	require.NoError(t, err)
	for _, s := range ours {
		require.Equal(t, strings.TrimSuffix(s.File, ".yaml"), s.Name)
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(folder+"/mine.yaml", []byte(`
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec: {resourceRef: {kind: Pod}, next: {statusTemplate: "phase: Failed"}, weightFrom: {expressionFrom: 'ROOM_CPU * ROOM_MEMORY'}}
`), 0o644))
	all, err := simulation(instance.Options{Stages: folder, ResizeCPU: "1500m", ResizeMemory: "2Ki"})
	require.NoError(t, err)
	require.Len(t, all, len(ours))
	last := all[len(all)-1]
	require.Equal(t, "pod-ready", last.Name)
	require.Contains(t, string(last.YAML), "phase: Failed")
	require.Contains(t, string(last.YAML), "1.5 * 2048")

	require.NoError(t, os.WriteFile(folder+"/bad.yaml", []byte("{kind: Pod}"), 0o644))
	_, err = simulation(instance.Options{Stages: folder})
	require.ErrorContains(t, err, folder)
}

// matches reports whether the match expressions of a stage select a pod, with kwok's semantics.
func matches(t *testing.T, all []stage.Stage, name, pod string) bool {
	t.Helper()
	at := slices.IndexFunc(all, func(s stage.Stage) bool { return s.Name == name })
	require.GreaterOrEqual(t, at, 0, name)
	var s v1alpha1.Stage
	require.NoError(t, yaml.Unmarshal(all[at].YAML, &s))
	var object any
	require.NoError(t, yaml.Unmarshal([]byte(pod), &object))
	for _, expression := range s.Spec.Selector.MatchExpressions {
		m := expression.JQ
		query, err := gojq.Parse(m.Key)
		require.NoError(t, err)
		var found []string
		results := query.Run(object)
		for value, more := results.Next(); more; value, more = results.Next() {
			failed, _ := value.(error)
			require.NoError(t, failed, m.Key)
			if value != nil {
				found = append(found, fmt.Sprint(value))
			}
		}
		in := slices.ContainsFunc(found, func(v string) bool { return slices.Contains(m.Values, v) })
		if !map[v1alpha1.SelectorOperator]bool{"In": in, "NotIn": !in, "Exists": len(found) > 0, "DoesNotExist": len(found) == 0}[m.Operator] {
			return false
		}
	}
	return true
}

// Exactly one stage must match each resize.
func TestSimulation_DefersResizesBySize(t *testing.T) {
	pod := func(annotations, want, have string) string {
		return fmt.Sprintf(`{metadata: {generation: 2, annotations: {%s}}, status: {phase: Running, containerStatuses: [{name: a, resources: {requests: {%s}}}, {name: b}]},
  spec: {containers: [{name: a, resources: {requests: {%s}}}, {name: b}]}}`, annotations, have, want)
	}
	const plain, deferred = "pod-resize", "pod-resize-deferred"
	for _, tc := range []struct {
		name, cpu, memory       string
		annotations, want, have string
		stage                   string
	}{
		{name: "no bound", want: "cpu: 64, memory: 1Ti", have: "cpu: 1", stage: plain},
		{name: "below the bounds", cpu: "2", memory: "1Gi", want: "cpu: 1999m, memory: 1023Mi", have: "cpu: 1, memory: 1Gi", stage: plain},
		{name: "exactly the CPU bound", cpu: "2", memory: "1Gi", want: "cpu: 2, memory: 1Gi", have: "cpu: 1, memory: 100Mi", stage: plain},
		{
			name: "CPU above its bound", cpu: "2", memory: "1Gi", want: "cpu: 2001m, memory: 100Mi", have: "cpu: 1, memory: 100Mi",
			stage: deferred,
		},
		{
			name: "memory above its bound", cpu: "2", memory: "1Gi", want: "cpu: 100m, memory: 1073741825", have: "cpu: 1, memory: 100Mi",
			stage: deferred,
		},
		{name: "decimal memory above its bound", cpu: "2", memory: "1Gi", want: "memory: 1074M", have: "memory: 100Mi", stage: deferred},
		{
			name: "memory with an exponent above its bound", cpu: "2", memory: "1Gi", want: "memory: 2e9", have: "memory: 100Mi",
			stage: deferred,
		},
		{name: "no CPU bound", memory: "1Gi", want: "cpu: 100", have: "cpu: 1", stage: plain},
		{name: "reduction that stays above the bound", cpu: "2", memory: "1Gi", want: "cpu: 3", have: "cpu: 4", stage: plain},
		{name: "no previous request", cpu: "2", memory: "1Gi", want: "cpu: 3", stage: deferred},
		{
			name: "defer annotation below the bounds", cpu: "2", memory: "1Gi", annotations: "sim.loadline.dev/resize: defer",
			want: "cpu: 1", have: "cpu: 500m", stage: deferred,
		},
		{
			name: "accept annotation above the bounds", cpu: "2", memory: "1Gi", annotations: "sim.loadline.dev/resize: accept",
			want: "cpu: 3", have: "cpu: 500m", stage: plain,
		},
		{
			name: "infeasible annotation above the bounds", cpu: "2", memory: "1Gi", annotations: "sim.loadline.dev/resize: infeasible",
			want: "cpu: 3", have: "cpu: 500m", stage: "pod-resize-infeasible",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all, err := simulation(instance.Options{ResizeCPU: tc.cpu, ResizeMemory: tc.memory})
			require.NoError(t, err)
			for _, name := range []string{plain, deferred, "pod-resize-infeasible", "pod-resize-error"} {
				require.Equal(t, name == tc.stage, matches(t, all, name, pod(tc.annotations, tc.want, tc.have)), name)
			}
		})
	}
}

func TestAPIServer_BindsAllAddressesForPodNetworkOnly(t *testing.T) {
	alone := plan{}.apiServer().flags
	require.Contains(t, alone, "--bind-address=127.0.0.1")
	require.Contains(t, alone, "--endpoint-reconciler-type=none", "its Service leads nowhere")
	connected := plan{options: instance.Options{PodNetwork: true}}.apiServer().flags
	require.Contains(t, connected, "--bind-address=0.0.0.0")
	require.NotContains(t, connected, "--endpoint-reconciler-type=none")
}
