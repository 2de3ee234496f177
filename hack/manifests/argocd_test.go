package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Argo CD runs a health script on each object. The test uses the same interpreter.
func TestArgoCD_ReportsHealth(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/monitoring/argocd/argocd-cm.yaml"))
	require.NoError(t, err)
	var config corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict(text, &config))
	const vpas, policies = "resource.customizations.health.autoscaling.k8s.io_VerticalPodAutoscaler", "resource.customizations.health.loadline.dev_SizingPolicy"
	require.Len(t, config.Data, 2)
	for name, c := range map[string]struct {
		script     string
		status     string // status of the object, as YAML
		is, saying string
	}{
		"a new VPA":                {vpas, `{}`, "Progressing", "There is no recommendation yet"},
		"a VPA without status":     {vpas, `null`, "Progressing", "There is no recommendation yet"},
		"a VPA that waits":         {vpas, `{conditions: [{type: RecommendationProvided, status: "False"}]}`, "Progressing", "There is no recommendation yet"},
		"a VPA that recommends":    {vpas, `{conditions: [{type: NoPodsMatched, status: "False"}, {type: RecommendationProvided, status: "True"}]}`, "Healthy", "There is a recommendation"},
		"a target that is missing": {vpas, `{conditions: [{type: ConfigUnsupported, status: "True", message: "no Deployment web"}, {type: RecommendationProvided, status: "True"}]}`, "Degraded", "ConfigUnsupported: no Deployment web"},
		"two VPAs of one workload": {vpas, `{conditions: [{type: RecommendationProvided, status: "True"}, {type: TargetConflict, status: "True", message: "with web"}]}`, "Degraded", "TargetConflict: with web"},
		"a VPA without pods":       {vpas, `{conditions: [{type: NoPodsMatched, status: "True"}]}`, "Degraded", "NoPodsMatched: "},
		"a new policy":             {policies, `null`, "Progressing", "The recommender has not read this policy yet"},
		"a policy before its turn": {policies, `{conditions: [{type: Sharing, status: "True"}]}`, "Progressing", "The recommender has not read this policy yet"},
		"a policy that is served":  {policies, `{conditions: [{type: Sharing, status: "False"}, {type: Ready, status: "True", message: "3 workloads"}]}`, "Healthy", "3 workloads"},
		"a policy that has hurt":   {policies, `{conditions: [{type: Ready, status: "True"}, {type: FuseTripped, status: "True", message: "2 of 5"}]}`, "Degraded", "FuseTripped: 2 of 5"},
		"a policy that was healed": {policies, `{conditions: [{type: FuseTripped, status: "False"}, {type: Ready, status: "True", message: "3 workloads"}]}`, "Healthy", "3 workloads"},
		"a policy with a mistake":  {policies, `{conditions: [{type: Ready, status: "False", reason: Invalid, message: "no such recipe"}]}`, "Degraded", "Invalid: no such recipe"},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte("status: "+c.status), &object))
			is, saying := health(t, config.Data[c.script], object)
			require.Equal(t, c.is, is)
			require.Equal(t, c.saying, saying)
		})
	}
}

func health(t *testing.T, script string, object map[string]any) (status, message string) {
	t.Helper()
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, object))
	require.NoError(t, state.DoString(script))
	returned, ok := state.Get(-1).(*lua.LTable)
	require.True(t, ok, "it returns a table")
	return returned.RawGetString("status").String(), returned.RawGetString("message").String()
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, of := range v {
			table.RawSetString(key, luaValue(state, of))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, of := range v {
			table.Append(luaValue(state, of))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
