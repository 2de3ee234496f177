package validate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func object(spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler","metadata":{"name":"v"},"spec":{"targetRef":{"kind":"Deployment","name":"d"},%s}}`, spec)
}

func policies(policy string) string {
	return `"updatePolicy":{"updateMode":"Recreate"},"resourcePolicy":{"containerPolicies":[` + policy + `]}`
}

func check(c Config, spec, old string) (errors, warnings []string) {
	var oldRaw []byte
	if old != "" {
		oldRaw = object(old)
	}
	v := c.Check(object(spec), oldRaw)
	for _, e := range v.Errors {
		errors = append(errors, e.Error())
	}
	return errors, v.Warnings
}

var everything = Config{InPlace: true, PerVPAConfig: true, Boost: true}

func TestCheck_ErrorsNameFieldAndValidValues(t *testing.T) {
	const at = "spec.resourcePolicy.containerPolicies[0]."
	for _, tc := range []struct{ name, spec, want string }{
		{name: "update policy without a mode", spec: `"updatePolicy":{}`,
			want: `spec.updatePolicy.updateMode: Required value: an updatePolicy must name its mode, for example Recreate; leave out ` +
				`updatePolicy to get the default`},
		{name: "unknown update mode", spec: `"updatePolicy":{"updateMode":"Bogus"}`,
			want: `spec.updatePolicy.updateMode: Unsupported value: "Bogus": supported values: "Off", "Initial", "Recreate", ` +
				`"InPlaceOrRecreate", "InPlace", "Auto"`},
		{name: "minReplicas of zero", spec: `"updatePolicy":{"updateMode":"Off","minReplicas":0}`,
			want: `spec.updatePolicy.minReplicas: Invalid value: 0: must be at least 1`},
		{name: "evictAfterOOMSeconds of zero", spec: `"updatePolicy":{"updateMode":"Off","evictAfterOOMSeconds":0}`,
			want: `spec.updatePolicy.evictAfterOOMSeconds: Invalid value: 0: must be at least 1`},
		{name: "container policy without a name", spec: policies(`{}`),
			want: at + `containerName: Required value: must be the name of a container, or "*" for all others`},
		{name: "unknown container mode", spec: policies(`{"containerName":"c","mode":"Maybe"}`),
			want: at + `mode: Unsupported value: "Maybe": supported values: "Auto", "Off"`},
		{name: "minAllowed is no whole number of bytes", spec: policies(`{"containerName":"c","minAllowed":{"memory":"1500m"}}`),
			want: at + `minAllowed[memory]: Invalid value: "1500m": must be a whole number of bytes, for example 250Mi`},
		{name: "maxAllowed is no whole number of millicores", spec: policies(`{"containerName":"c","maxAllowed":{"cpu":"1500u"}}`),
			want: at + `maxAllowed[cpu]: Invalid value: "1500u": must be a whole number of millicores, for example 250m`},
		{name: "maxAllowed below minAllowed", spec: policies(`{"containerName":"c","minAllowed":{"cpu":"2"},"maxAllowed":{"cpu":"1"}}`),
			want: at + `maxAllowed[cpu]: Invalid value: "1": must not be less than minAllowed, which is 2`},
		{name: "controlledValues with mode Off",
			spec: policies(`{"containerName":"c","mode":"Off","controlledValues":"RequestsAndLimits"}`),
			want: at + `controlledValues: Forbidden: RequestsAndLimits has no meaning with mode Off: leave out one of the two`},
		{name: "unknown controlled resource", spec: policies(`{"containerName":"c","controlledResources":["gpu"]}`),
			want: at + `controlledResources[0]: Unsupported value: "gpu": supported values: "cpu", "memory"`},
		{name: "OOM ratio below one", spec: policies(`{"containerName":"c","oomBumpUpRatio":"0.9"}`),
			want: at + `oomBumpUpRatio: Invalid value: "900m": must be at least 1`},
		{name: "negative OOM minimum", spec: policies(`{"containerName":"c","oomMinBumpUp":"-1"}`),
			want: at + `oomMinBumpUp: Invalid value: "-1": must not be negative`},
		{name: "aggregation interval of zero", spec: policies(`{"containerName":"c","memoryAggregationIntervalSeconds":0}`),
			want: at + `memoryAggregationIntervalSeconds: Invalid value: 0: must be at least 1`},
		{name: "negative interval count", spec: policies(`{"containerName":"c","memoryAggregationIntervalCount":-1}`),
			want: at + `memoryAggregationIntervalCount: Invalid value: -1: must be at least 1`},
		{name: "unknown boost type", spec: policies(`{"containerName":"c","startupBoost":{"cpu":{"type":"Twice"}}}`),
			want: at + `startupBoost.cpu.type: Unsupported value: "Twice": supported values: "Factor", "Quantity"`},
		{name: "boost without a factor", spec: policies(`{"containerName":"c","startupBoost":{"cpu":{"type":"Factor"}}}`),
			want: at + `startupBoost.cpu.factor: Required value: a boost of type Factor needs a factor, for example 2`},
		{name: "boost without a quantity", spec: `"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Quantity"}}`,
			want: `spec.startupBoost.cpu.quantity: Required value: a boost of type Quantity needs a quantity, for example 500m`},
		{name: "boost without a type", spec: policies(`{"containerName":"c","startupBoost":{"cpu":{}}}`),
			want: at + `startupBoost.cpu.type: Required value: must be Factor or Quantity`},
		{name: "boost factor of zero", spec: policies(`{"containerName":"c","startupBoost":{"cpu":{"type":"Factor","factor":0}}}`),
			want: at + `startupBoost.cpu.factor: Invalid value: 0: must be at least 1`},
		{name: "boost quantity is no whole number of millicores",
			spec: `"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Quantity","quantity":"1500u"}}`,
			want: `spec.startupBoost.cpu.quantity: Invalid value: "1500u": must be a whole number of millicores, for example 250m`},
		{name: "two recommenders", spec: `"updatePolicy":{"updateMode":"Off"},"recommenders":[{"name":"a"},{"name":"b"}]`,
			want: `spec.recommenders: Too many: 2: must have at most 1 item`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errors, warnings := check(everything, tc.spec, "")
			require.Equal(t, []string{tc.want}, errors)
			require.Empty(t, warnings)
		})
	}
}

func TestCheck_AcceptsMinimumValues(t *testing.T) {
	for _, spec := range []string{
		`"updatePolicy":{"updateMode":"Off","minReplicas":1,"evictAfterOOMSeconds":1}`,
		`"updatePolicy":{"updateMode":"Off"},"recommenders":[{"name":"a"}]`,
		`"updatePolicy":{"updateMode":"Off"},"startupBoost":{}`,
		`"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Factor","factor":1}}`,
		`"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Quantity","quantity":"1m"}}`,
		policies(`{"containerName":"c","mode":"Off"}`),
		policies(`{"containerName":"c","mode":"Off","controlledValues":"RequestsOnly"}`),
		policies(`{"containerName":"c","mode":"Auto","controlledValues":"RequestsAndLimits"}`),
		policies(`{"containerName":"c","controlledResources":["cpu"]},{"containerName":"d","controlledResources":["memory"]}`),
		policies(`{"containerName":"c","minAllowed":{"cpu":"1","memory":"1"},"maxAllowed":{"cpu":"1000m","memory":"1"}}`),
		policies(`{"containerName":"c","minAllowed":{"example.com/gpu":"1500u"}}`),
		policies(`{"containerName":"c","oomBumpUpRatio":"1","oomMinBumpUp":"0"}`),
		policies(`{"containerName":"c","memoryAggregationIntervalSeconds":1,"memoryAggregationIntervalCount":1}`),
	} {
		errors, warnings := check(everything, spec, "")
		require.Empty(t, errors, spec)
		require.Empty(t, warnings, spec)
	}
}

func TestCheck_GatedFieldsNeedGateOrOldObject(t *testing.T) {
	perVPA := policies(`{"containerName":"c","oomMinBumpUp":"1"}`)
	otherPerVPA := policies(`{"containerName":"d","memoryAggregationIntervalCount":2}`)
	boost := policies(`{"containerName":"c","startupBoost":{"cpu":{"type":"Factor","factor":2}}}`)
	inPlace := `"updatePolicy":{"updateMode":"InPlace"}`
	for _, tc := range []struct{ name, spec, old, gate string }{
		{name: "configuration per VPA", spec: perVPA, old: otherPerVPA, gate: "PerVPAConfig"},
		{name: "startup boost", spec: boost, old: boost, gate: "CPUStartupBoost"},
		{name: "mode InPlace", spec: inPlace, old: inPlace, gate: "InPlace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errors, _ := check(Config{}, tc.spec, "")
			require.Len(t, errors, 1)
			require.Contains(t, errors[0], "--feature-gates="+tc.gate+"=true")
			errors, _ = check(Config{}, tc.spec, policies(`{"containerName":"c"}`))
			require.Len(t, errors, 1, "an old object without the feature does not help")
			errors, _ = check(Config{}, tc.spec, tc.old)
			require.Empty(t, errors)
			errors, _ = check(everything, tc.spec, "")
			require.Empty(t, errors)
		})
	}
}

func TestCheck_AnyFieldOfGateInOldObjectAllowsOthers(t *testing.T) {
	for gate, specs := range map[string][]string{
		"PerVPAConfig": {
			`"updatePolicy":{"updateMode":"Off","evictAfterOOMSeconds":5}`,
			policies(`{"containerName":"c","oomBumpUpRatio":"1.5"}`),
			policies(`{"containerName":"c","oomMinBumpUp":"1"}`),
			policies(`{"containerName":"c","memoryAggregationIntervalSeconds":5}`),
			policies(`{"containerName":"c","memoryAggregationIntervalCount":5}`),
		},
		"CPUStartupBoost": {
			`"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Factor","factor":2}}`,
			policies(`{"containerName":"c","startupBoost":{"cpu":{"type":"Factor","factor":2}}},{"containerName":"d"}`),
		},
	} {
		for _, spec := range specs {
			errors, _ := check(Config{}, spec, "")
			require.Len(t, errors, 1, spec)
			require.Contains(t, errors[0], "Forbidden: needs the alpha feature "+gate)
			for _, old := range specs {
				errors, _ = check(Config{}, spec, old)
				require.Empty(t, errors, "%s after %s", spec, old)
			}
		}
	}
}

func TestCheck_StoredUnsupportedResourceIsWarning(t *testing.T) {
	gpu := policies(`{"containerName":"c","controlledResources":["cpu","gpu"]}`)
	errors, warnings := check(Config{}, gpu, gpu)
	require.Empty(t, errors)
	require.Equal(t, []string{`spec.resourcePolicy.containerPolicies[0].controlledResources[1]: "gpu" is ignored: only cpu and memory can be controlled`}, warnings)
}

func TestCheck_WarnsOfModeAuto(t *testing.T) {
	errors, warnings := check(Config{}, `"updatePolicy":{"updateMode":"Auto"}`, "")
	require.Empty(t, errors)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "InPlaceOrRecreate")
}

// An invalid recipe would fall back to the default of the recommender, with other targets.
func TestCheck_RefusesInvalidRecipeUnlessStored(t *testing.T) {
	vpa := func(text string) []byte {
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"loadline.dev/recipe": text}}})
		require.NoError(t, err)
		return raw
	}
	fine, wrong := vpa("loadline:cpu=tracking"), vpa("loadline:cpu=trakcing,salt=1")
	require.Empty(t, Config{}.Check(fine, nil).Errors)
	require.Empty(t, Config{}.Check(fine, wrong).Errors)
	const problem = `cpu is "trakcing": must be one of calm, calm-lean, calm-safe, tracking, tracking-lean, tracking-safe, mixed, shared`
	for _, stored := range [][]byte{nil, fine, []byte("{")} {
		verdict := Config{}.Check(wrong, stored)
		require.Len(t, verdict.Errors, 1)
		message := verdict.Errors[0].Error()
		require.Contains(t, message, `metadata.annotations[loadline.dev/recipe]: Invalid value: "loadline:cpu=trakcing,salt=1": `)
		require.Contains(t, message, problem)
		require.Contains(t, message, `"salt" does not exist`)
	}
	verdict := Config{}.Check(wrong, wrong)
	require.Empty(t, verdict.Errors, "what is stored already does not stop other changes")
	require.Len(t, verdict.Warnings, 1)
	require.Contains(t, verdict.Warnings[0], problem)
	require.Contains(t, verdict.Warnings[0], "the recommender's default recipe applies until you correct it")
	long := Config{}.Check(vpa(strings.Repeat("ä", 100000)), nil).Errors[0].Error()
	require.Less(t, len(long), 400)
	require.Contains(t, long, "must have at most 1000")
}

func TestCheck_ReportsAllProblems(t *testing.T) {
	errors, _ := check(Config{}, policies(`{"mode":"Maybe"},{"containerName":"c","minAllowed":{"cpu":"1u","memory":"1m"}}`), "")
	require.Len(t, errors, 4)
}

// Each error is repeated in the message, a cause and the log.
func TestCheck_BoundsNumberAndLengthOfErrors(t *testing.T) {
	long := strings.Repeat("é", 10000)
	for _, tc := range []struct{ name, policy string }{
		{name: "many policies", policy: strings.Repeat(`{},`, maxPolicies-1) + `{}`},
		{name: "many resources", policy: `{"controlledResources":["` + strings.Repeat(`x","`, 5000) + `x"]}`},
		{name: "long modes", policy: strings.Repeat(`{"containerName":"c","mode":"`+long+`"},`, 50) + `{}`},
		{name: "long resources", policy: strings.Repeat(`{"containerName":"c","controlledResources":["`+long+`"]},`, 50) + `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := Config{}.Check(object(policies(tc.policy)), nil).Status("v")
			require.Len(t, status.Details.Causes, maxFindings)
			require.Less(t, len(status.Message), 10000)
		})
	}
	verdict := Config{}.Check(object(policies(strings.Repeat(`{},`, maxPolicies)+`{}`)), nil)
	require.Len(t, verdict.Errors, 1)
	require.Equal(t, "spec.resourcePolicy.containerPolicies: Too many: 301: must have at most 300 items", verdict.Errors[0].Error())

	gpus := object(policies(`{"containerName":"c","controlledResources":["` + strings.Repeat(long+`","`, 50) + `x"]}`))
	verdict = Config{}.Check(gpus, gpus)
	require.Empty(t, verdict.Errors)
	require.Len(t, verdict.Warnings, maxFindings)
	require.Less(t, len(verdict.Warnings[0]), 300)
}

// The informer caches drop a spec with such names.
func TestCheck_RefusesLongNames(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for name, spec := range map[string]string{
		"recommender": `"recommenders":[{"name":"` + long + `"}]`,
		"container":   policies(`{"containerName":"` + long + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			verdict := Config{}.Check(object(spec), nil)
			require.Len(t, verdict.Errors, 1)
			require.Contains(t, verdict.Errors[0].Error(), "must have at most 64 KiB")
			require.Less(t, len(verdict.Status("v").Message), 2000)
			verdict = Config{}.Check(object(spec), object(spec))
			require.Empty(t, verdict.Errors, "one that is stored does not stop other changes")
			require.Contains(t, verdict.Warnings[0], "must have at most 64 KiB")
		})
	}
}

func TestCheck_RefusesOversizedObjectsUnlessDeleted(t *testing.T) {
	for name, spec := range map[string]string{
		"parts":    `"resourcePolicy":{"containerPolicies":[` + strings.Repeat(`{},`, 30000) + `{}]}`,
		"exponent": policies(`{"containerName":"c","minAllowed":{"cpu":"1e-2147483647"}}`),
		"error":    `"updatePolicy":{"updateMode":"Off","minReplicas":"` + strings.Repeat("x", 100000) + `"}`,
	} {
		verdict := Config{}.Check(object(spec), nil)
		require.Len(t, verdict.Errors, 1, name)
		require.Less(t, len(verdict.Status("v").Message), 2000, name)
		if name == "error" {
			continue
		}
		require.Contains(t, verdict.Errors[0].Error(), "more than is looked at", name)
		deleted := strings.Replace(string(object(spec)), `"name":"v"`, `"name":"v","deletionTimestamp":"2026-01-02T12:00:00Z"`, 1)
		require.Nil(t, Config{}.Check([]byte(deleted), object(spec)).Status("v"), name)
		require.NotNil(t, Config{}.Check([]byte(deleted), object(policies(`{"containerName":"c"}`))).Status("v"), "%s: nobody needs another spec on the way out", name)
		require.Empty(t, Config{}.Check(object(policies(`{"containerName":"c"}`)), object(spec)).Errors, "%s: an old object does not stop a repair", name)
	}
}

func TestCheck_InvalidOldObjectAllowsRepair(t *testing.T) {
	verdict := Config{}.Check(object(policies(`{"containerName":"c"}`)), []byte("{"))
	require.Empty(t, verdict.Errors)
}

func TestCheck_RefusesInvalidJSON(t *testing.T) {
	for _, raw := range []string{"", "{", "null7"} {
		status := Config{}.Check([]byte(raw), nil).Status("v")
		require.NotNil(t, status, raw)
		require.Equal(t, int32(422), status.Code)
		require.Contains(t, status.Message, `VerticalPodAutoscaler.autoscaling.k8s.io "v" is invalid: .: Internal error: `, raw)
	}
}

func TestCheck_DefaultsUpdateMode(t *testing.T) {
	verdict := Config{}.Check([]byte(`{"spec":{}}`), nil)
	require.Len(t, verdict.Patch, 1)
	require.Empty(t, Config{}.Check(object(policies(`{"containerName":"c"}`)), nil).Patch)
	require.Empty(t, Config{}.Check(object(`"recommenders":[{},{}]`), nil).Patch, "nothing is filled in where something is wrong")
}

func FuzzCheck(f *testing.F) {
	f.Add(string(object(policies(`{"containerName":"c","minAllowed":{"cpu":"1"}}`))), "")
	f.Fuzz(func(t *testing.T, raw, old string) {
		for _, c := range []Config{{}, everything} {
			v := c.Check([]byte(raw), []byte(old))
			if len(v.Errors) > 0 && (len(v.Patch) > 0 || !strings.Contains(v.Status("v").Message, "invalid")) {
				t.Fatalf("verdict %+v", v)
			}
		}
	})
}

// Users must be able to delete any object. The removal of the last finalizer is an update.
func TestCheck_SkipsObjectsBeingDeleted(t *testing.T) {
	bad := []byte(`{"metadata":{"name":"v","deletionTimestamp":"2026-01-02T12:00:00Z"},"spec":{"updatePolicy":{"updateMode":"Bogus"}}}`)
	v := Config{}.Check(bad, bad)
	require.Nil(t, v.Status("v"))
	unreadable := []byte(`{"metadata":{"name":"v","deletionTimestamp":"2026-01-02T12:00:00Z"},"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":{"cpu":"1e.5"}}]}}}`)
	require.Nil(t, Config{}.Check(unreadable, unreadable).Status("v"))
	require.NotNil(t, Config{}.Check(unreadable, bad).Status("v"), "another spec is checked")
	require.NotNil(t, Config{}.Check(bad, nil).Status("v"))
	require.Empty(t, v.Patch)
}

func TestCheck_WarnsOfMaxAllowedZero(t *testing.T) {
	for _, amount := range []string{`"0"`, `0`, `"0m"`, `"-1"`} {
		errors, warnings := check(everything, policies(`{"containerName":"c","maxAllowed":{"cpu":`+amount+`,"example.com/gpu":"0"}}`), "")
		require.Empty(t, errors, amount)
		require.Len(t, warnings, 1, amount)
		require.Contains(t, warnings[0], "spec.resourcePolicy.containerPolicies[0].maxAllowed[cpu]: ")
		require.Contains(t, warnings[0], "has no effect: leave it out for no maximum")
	}
}

func TestCheck_WrongTypesNameTheField(t *testing.T) {
	const off = `must be a string. Write "Off" in quotation marks: YAML reads Off as false.`
	for _, tc := range []struct{ name, spec, want string }{
		{name: "an unquoted Off", spec: `"updatePolicy":{"updateMode":false}`,
			want: "spec.updatePolicy.updateMode: Invalid value: false: " + off},
		{name: "an unquoted On", spec: `"updatePolicy":{"updateMode":true}`,
			want: "spec.updatePolicy.updateMode: Invalid value: true: must be a string. " +
				"Write it in quotation marks: YAML reads On, Yes and True as true."},
		{name: "the second container", spec: policies(`{"containerName":"a","mode":"Off"},{"containerName":"b","mode":false}`),
			want: "spec.resourcePolicy.containerPolicies[1].mode: Invalid value: false: " + off},
		{name: "a number as a name", spec: policies(`{"containerName":7}`),
			want: "spec.resourcePolicy.containerPolicies[0].containerName: Invalid value: 7: must be a string in quotation marks"},
		{name: "a name that is No", spec: policies(`{"containerName":false}`),
			want: "spec.resourcePolicy.containerPolicies[0].containerName: Invalid value: false: must be a string. " +
				"Write it in quotation marks: YAML reads Off, No and False as false."},
		{name: "text as a number", spec: `"updatePolicy":{"updateMode":"Off","minReplicas":"2"}`,
			want: `spec.updatePolicy.minReplicas: Invalid value: "2": must be a whole number, without quotation marks`},
		{name: "an object as a list", spec: `"resourcePolicy":{"containerPolicies":{"containerName":"a"}}`,
			want: `spec.resourcePolicy.containerPolicies: Invalid value: "a value of another type": must be a list`},
		{name: "text as an object", spec: `"updatePolicy":"Off"`,
			want: `spec.updatePolicy: Invalid value: "Off": must be an object with fields`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errors, _ := check(everything, tc.spec, "")
			require.Equal(t, []string{tc.want}, errors)
		})
	}
}

func TestCheck_RefusesTargetsThatCannotExist(t *testing.T) {
	vpa := func(kind, name string) []byte {
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"targetRef": map[string]string{"apiVersion": "apps/v1", "kind": kind, "name": name}}})
		require.NoError(t, err)
		return raw
	}
	for _, tc := range []struct {
		name, kind, target string
		problem            string // empty if accepted
	}{
		{name: "workload", kind: "Deployment", target: "web"},
		{name: "subdomain", kind: "Rollout", target: "web.v2-canary"},
		{name: "name of an aggregated API", kind: "Thing", target: "System:Web_1"},
		{name: "other path", kind: "Thing", target: "../../kube-system/things/x", problem: "may not contain '/'"},
		{name: "escaped path", kind: "Thing", target: "%2e%2e", problem: "may not contain '%'"},
		{name: "parent", kind: "Thing", target: "..", problem: "may not be '..'"},
		{name: "escape sequence", kind: "Thing", target: "\x1b[2J", problem: "may not contain spaces, control characters or invalid UTF-8"},
		{name: "line break in the kind", kind: "Thing\nx", target: "web", problem: "may not contain spaces, control characters or invalid UTF-8"},
		{name: "bidirectional override", kind: "Thing", target: "a\u202eb", problem: "may not contain spaces, control characters or invalid UTF-8"},
		{name: "long", kind: "Thing", target: strings.Repeat("a", 300), problem: "must have at most 253 characters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, fine := vpa(tc.kind, tc.target), vpa("Deployment", "web")
			if tc.problem == "" {
				require.Empty(t, Config{}.Check(raw, nil).Errors)
				return
			}
			for _, old := range [][]byte{nil, fine} {
				verdict := Config{}.Check(raw, old)
				require.Len(t, verdict.Errors, 1)
				require.Equal(t, "spec.targetRef", verdict.Errors[0].Field)
				require.Contains(t, verdict.Errors[0].Error(), tc.problem)
				require.NotContains(t, verdict.Errors[0].Error(), "\x1b")
			}
			verdict := Config{}.Check(raw, raw)
			require.Empty(t, verdict.Errors, "what is stored already does not stop other changes")
			require.Len(t, verdict.Warnings, 1)
			require.Contains(t, verdict.Warnings[0], tc.problem)
			require.Empty(t, Config{}.Check(fine, raw).Errors)
		})
	}
}
