package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

const fullPolicy = `{
"apiVersion":"loadline.dev/v1alpha1","kind":"SizingPolicy","metadata":{"name":"shop"},
"spec":{
 "priority":100,"paused":true,"recommender":"night",
 "namespaces":{"names":["shop"],"selector":{"matchLabels":{"team":"shop"}},"exclude":["shop-batch"]},
 "workloads":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","selector":{"matchLabels":{"tier":"web"}}}],
 "vpas":"IfMissing","vpaMetadata":{"labels":{"owner":"platform"},"annotations":{"note":"made"}},
 "recipe":"loadline:cpu=tracking",
 "resourcePolicy":{"containerPolicies":[{"containerName":"*","minAllowed":{"cpu":"10m"}}]},
 "containers":{"exclude":["istio-proxy"]},
 "rollout":{
  "mode":"Canary","canary":{"percentage":10,"observationPeriod":"5m0s","autoPromote":true},
  "method":"InPlaceOnly","cooldown":"1h0m0s","minHistory":"24h0m0s","maxConcurrent":1,"startRate":10,
  "schedule":{"windows":[{"start":"22:00","end":"06:00"}],"daysOfWeek":["Monday"],"timezone":"UTC"},
  "initialSizing":"Target","hpa":"LeaveOut"},
 "safety":{"autoRevert":true,"observationPeriod":"5m0s","restarts":2,"throttle":"0.5","pressure":"0.3"},
 "sharing":{"mode":"Off","resources":["cpu"],"evict":true,"cpuLimit":"Keep","nodeAutoscaler":"DryRun","maxEvictionRanking":"medium","userVPAs":"Restrict"}},
"status":{
 "conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T12:00:00Z","reason":"Served","message":"m"}],
 "counts":{"selected":1,"withRecommendation":2,"applied":3,"pending":4,"deferred":5,"infeasible":6,"reverted":7,"yielded":8,"refused":9},
 "savings":{"cpu":"12","memory":"30Gi"},"increases":{"cpu":"1"},
 "workloads":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","namespace":"shop","name":"web"},"mode":"Canary","phase":"Canary",
  "lastChange":"2026-01-02T12:00:00Z","next":"2026-01-02T13:00:00Z","degraded":true,
  "savings":{"cpu":"12"},"increases":{"memory":"1Gi"}}],
 "errors":["one"]}}`

const fullRecord = `{
"apiVersion":"loadline.dev/v1alpha1","kind":"SizingRecord","metadata":{"name":"deployment-web","namespace":"shop"},
"status":{
 "mode":"Canary","phase":"FullRollout","policyHash":"5f3a","startedAt":"2026-01-02T10:00:00Z","canaryMembers":[{"uid":"7d1f","outcome":"Success"}],"canarySince":"2026-01-02T11:00:00Z",
 "haltedTarget":[{"name":"app","requests":{"cpu":"100m"},"limits":{"memory":"1Gi"}}],"cooldownUntil":"2026-01-02T13:00:00Z","consecutiveReverts":1,
 "kept":[{"name":"app","requests":{"cpu":"250m"},"limits":{"memory":"1Gi"}}],
 "reverted":[{"name":"app","requests":{"cpu":"100m"},"limits":{"memory":"1Gi"},"time":"2026-01-02T12:00:00Z"}],
 "rounds":[{"time":"2026-01-02T12:00:00Z","lastChange":"2026-01-02T12:30:00Z","soFar":"Success","pods":3,"from":[{"name":"app","requests":{"cpu":"250m"}}],"to":[{"name":"app","requests":{"cpu":"100m"}}],
  "outcome":"Reverted","endedAt":"2026-01-02T12:40:00Z","reason":"OOMKilled"}],
 "conditions":[{"type":"Degraded","status":"False","lastTransitionTime":"2026-01-02T12:00:00Z","reason":"r","message":"m"}]}}`

// full fails if a field of the API types of this package has no value.
func full(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	require.False(t, v.IsZero(), "%s is missing in the example", path)
	switch v.Kind() {
	case reflect.Pointer:
		full(t, path, v.Elem())
	case reflect.Slice:
		full(t, path+"[0]", v.Index(0))
	case reflect.Struct:
		if v.Type().PkgPath() != reflect.TypeFor[SizingPolicy]().PkgPath() {
			return
		}
		for i := range v.NumField() {
			full(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

func TestPolicyAndRecord_RoundTrip(t *testing.T) {
	var policy SizingPolicy
	require.NoError(t, json.Unmarshal([]byte(fullPolicy), &policy))
	require.Empty(t, policy.Annotations)
	full(t, "spec", reflect.ValueOf(policy.Spec))
	full(t, "status", reflect.ValueOf(policy.Status))
	written, err := json.Marshal(&policy)
	require.NoError(t, err)
	require.JSONEq(t, fullPolicy, string(written))
	var decoded SizingPolicy
	require.NoError(t, Decode([]byte(fullPolicy), &decoded))
	require.Equal(t, policy, decoded, "both ways to read it agree")
	require.Equal(t, policy, *policy.DeepCopy())

	var record SizingRecord
	require.NoError(t, json.Unmarshal([]byte(fullRecord), &record))
	require.Empty(t, record.Annotations)
	status := record.Status
	require.Len(t, status.Rounds, 1)
	status.Rounds[0].From, status.Rounds[0].To = status.Kept, status.Kept
	full(t, "status", reflect.ValueOf(status))
	require.NoError(t, json.Unmarshal([]byte(fullRecord), &record))
	written, err = json.Marshal(&record)
	require.NoError(t, err)
	require.JSONEq(t, fullRecord, string(written))
}

// Otherwise one policy with such a quantity would break every program that lists policies.
func TestPolicyDecode_InvalidPolicyKeepsOtherPolicies(t *testing.T) {
	for _, tc := range []struct{ name, fields, want string }{
		{name: "invalid quantity", fields: `"resourcePolicy":{"containerPolicies":[{"containerName":"c","minAllowed":{"cpu":"1e.5"}}]}`,
			want: "spec.resourcePolicy"},
		{name: "quantity with a huge exponent",
			fields: `"resourcePolicy":{"containerPolicies":[{"containerName":"c","minAllowed":{"cpu":"1e-2147483647"}}]}`,
			want:   "exponent"},
		{name: "invalid duration", fields: `"rollout":{"cooldown":"soon"}`, want: "spec: "},
		{name: "field of another type", fields: `"rollout":` + "7", want: "spec: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := `{"items":[{"metadata":{"name":"bad","uid":"u"},"spec":{"priority":7,` + tc.fields + `}},` + fullPolicy + `]}`
			var list SizingPolicyList
			require.NoError(t, json.Unmarshal([]byte(text), &list))
			require.Len(t, list.Items, 2)
			require.Equal(t, "bad", list.Items[0].Name)
			require.Contains(t, list.Items[0].Annotations[vpav1.UnreadableAnnotation], tc.want)
			require.Nil(t, list.Items[0].Spec.ResourcePolicy)
			require.Empty(t, list.Items[1].Annotations)
			if strings.HasPrefix(tc.fields, `"resourcePolicy"`) {
				require.EqualValues(t, 7, *list.Items[0].Spec.Priority, "what can be read is kept")
				return
			}
			require.Error(t, Decode([]byte(`{"spec":{`+tc.fields+`}}`), &SizingPolicy{}))
		})
	}
}

func TestPolicyDecode_InvalidStatusIsEmpty(t *testing.T) {
	var policy SizingPolicy
	require.NoError(t, json.Unmarshal([]byte(`{"spec":{"priority":7},"status":{"errors":["e"],"savings":{"cpu":"1e-2147483647"}}}`), &policy))
	require.EqualValues(t, 7, *policy.Spec.Priority)
	require.Empty(t, policy.Status)
	require.Empty(t, policy.Annotations)
}

func TestRecordDecode_InvalidStatusIsEmpty(t *testing.T) {
	for _, bad := range []string{
		`{"consecutiveReverts":1,"kept":[{"name":"c","requests":{"cpu":"1e-2147483647"}}]}`,
		`{"consecutiveReverts":1,"cooldownUntil":"2026-01-02t12:00:00z"}`,
	} {
		var list SizingRecordList
		require.NoError(t, json.Unmarshal([]byte(`{"items":[{"metadata":{"name":"r"},"status":`+bad+`}]}`), &list))
		require.Equal(t, "r", list.Items[0].Name)
		require.Empty(t, list.Items[0].Status)
		require.Contains(t, list.Items[0].Annotations[vpav1.UnreadableAnnotation], "status: ")
	}
}

// Only the decoder sets the annotation.
func TestDecode_OwnsUnreadableAnnotation(t *testing.T) {
	const text = `{"metadata":{"annotations":{"loadline.dev/unreadable":"mine"}}}`
	var policy, decoded SizingPolicy
	var record SizingRecord
	require.NoError(t, json.Unmarshal([]byte(text), &policy))
	require.NoError(t, json.Unmarshal([]byte(text), &record))
	require.NoError(t, Decode([]byte(text), &decoded))
	require.Empty(t, policy.Annotations)
	require.Empty(t, record.Annotations)
	require.Empty(t, decoded.Annotations)
}
