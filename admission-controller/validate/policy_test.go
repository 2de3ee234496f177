package validate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func policyWith(spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"loadline.dev/v1alpha1","kind":"SizingPolicy","metadata":{"name":"p"},"spec":{"namespaces":{"names":["shop"]},"workloads":[{"apiVersion":"apps/v1","kind":"Deployment"}],%s}}`, spec)
}

func limits(container string) string {
	return `"resourcePolicy":{"containerPolicies":[` + container + `]}`
}

func checkPolicy(c Config, spec, old string) (errors, warnings []string) {
	var oldRaw []byte
	if old != "" {
		oldRaw = policyWith(old)
	}
	v := c.CheckPolicy(policyWith(spec), oldRaw)
	for _, e := range v.Errors {
		errors = append(errors, e.Error())
	}
	return errors, v.Warnings
}

func TestCheckPolicy_ChecksResourcePolicyLikeVPA(t *testing.T) {
	const at = "spec.resourcePolicy.containerPolicies[0]."
	errors, _ := checkPolicy(Config{}, limits(`{"containerName":"c","minAllowed":{"cpu":"2"},"maxAllowed":{"cpu":"1"}}`), "")
	require.Equal(t, []string{at + `maxAllowed[cpu]: Invalid value: "1": must not be less than minAllowed, which is 2`}, errors)
	errors, _ = checkPolicy(Config{}, limits(`{"containerName":"c","minAllowed":{"cpu":"1"}}`), "")
	require.Empty(t, errors)

	boost := limits(`{"containerName":"c","startupBoost":{"cpu":{"type":"Factor","factor":2}}}`)
	otherBoost := limits(`{"containerName":"d","startupBoost":{"cpu":{"type":"Factor","factor":3}}}`)
	errors, _ = checkPolicy(Config{}, boost, `"priority":1`)
	require.Len(t, errors, 1)
	require.Contains(t, errors[0], "--feature-gates=CPUStartupBoost=true")
	errors, _ = checkPolicy(Config{}, boost, otherBoost)
	require.Empty(t, errors, "the feature is there already")
	errors, _ = checkPolicy(everything, boost, "")
	require.Empty(t, errors)
}

func TestCheckPolicy_ReportsAllProblems(t *testing.T) {
	status := Config{}.CheckPolicy(policyWith(`"recipe":"magic","rollout":{"cooldown":"soon","canary":{"percentage":0}},"safety":{"throttle":0.5},`+limits(`{}`)), nil).Status("p")
	require.EqualValues(t, 422, status.Code)
	require.Len(t, status.Details.Causes, 5)
	for _, part := range []string{
		`SizingPolicy.loadline.dev "p" is invalid`,
		`spec.rollout.cooldown: Invalid value: "soon": must be a duration, for example 5m or 1h30m`,
		`spec.safety.throttle: Invalid value: "0.5": must be a decimal from 0 to 1 in quotes, for example "0.5"`,
		`spec.recipe: Invalid value: "magic"`,
		`spec.rollout.canary.percentage: Invalid value: 0: must be from 1 to 100`,
		`spec.resourcePolicy.containerPolicies[0].containerName: Required value`,
	} {
		require.Contains(t, status.Message, part)
	}
	require.Nil(t, Config{}.CheckPolicy(policyWith(`"priority":1`), nil).Status("p"))
}

func TestCheckPolicy_InvalidDurationsNameField(t *testing.T) {
	for _, tc := range []struct{ name, spec, want string }{
		{name: "cooldown is a number", spec: `"rollout":{"cooldown":3600}`,
			want: `spec.rollout.cooldown: Invalid value: "3600": must be a duration, for example 5m or 1h30m`},
		{name: "observation period of a canary", spec: `"rollout":{"canary":{"observationPeriod":"1 hour"}}`,
			want: `spec.rollout.canary.observationPeriod: Invalid value: "1 hour": must be a duration, for example 5m or 1h30m`},
		{name: "observation period is a list", spec: `"safety":{"observationPeriod":["5m"]}`,
			want: `spec.safety.observationPeriod: Invalid value: "a value of another type": must be a duration, for example 5m or 1h30m`},
		{name: "pressure is a boolean", spec: `"safety":{"pressure":true}`,
			want: `spec.safety.pressure: Invalid value: "a value of another type": must be a decimal from 0 to 1 in quotes, for example ` +
				`"0.5"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errors, _ := checkPolicy(Config{}, tc.spec, "")
			require.Equal(t, []string{tc.want}, errors)
		})
	}
	errors, _ := checkPolicy(Config{}, `"priority":"high"`, "")
	require.Len(t, errors, 1)
	require.Contains(t, errors[0], "spec.priority")
}

// A stored invalid spec must not block a change of a label or the deletion of a policy.
func TestCheckPolicy_StoredInvalidSpecIsWarning(t *testing.T) {
	wrong := policyWith(`"rollout":{"mode":"Auto","schedule":{"timezone":"Europe/Atlantis"}}`)
	labelled := []byte(strings.Replace(string(wrong), `"name":"p"`, `"name":"p","labels":{"a":"b"}`, 1))
	verdict := Config{}.CheckPolicy(labelled, wrong)
	require.Empty(t, verdict.Errors)
	require.Len(t, verdict.Warnings, 1)
	require.Contains(t, verdict.Warnings[0], "spec.rollout.schedule.timezone: ")
	require.Contains(t, verdict.Warnings[0], "it is stored already")
	require.Len(t, Config{}.CheckPolicy(labelled, policyWith(`"priority":1`)).Errors, 1)
	require.Len(t, Config{}.CheckPolicy(wrong, nil).Errors, 1)
}

func TestCheckPolicy_RefusesOversizedPolicies(t *testing.T) {
	for _, spec := range []string{
		`"containers":{"exclude":[` + strings.Repeat(`"a",`, 30000) + `"a"]}`,
		limits(`{"containerName":"c","minAllowed":{"cpu":"1e-2147483647"}}`),
	} {
		verdict := Config{}.CheckPolicy(policyWith(spec), nil)
		require.Len(t, verdict.Errors, 1)
		require.Contains(t, verdict.Errors[0].Error(), "more than is looked at")
		require.Empty(t, Config{}.CheckPolicy(policyWith(`"priority":1`), policyWith(spec)).Errors, "an old object does not stop a repair")
	}
	errors, _ := checkPolicy(Config{}, limits(strings.Repeat(`{},`, maxPolicies-1)+`{}`)+`,"containers":{"exclude":["A"]}`, "")
	require.Len(t, errors, maxFindings)
}

func TestCheckPolicy_RefusesInvalidJSON(t *testing.T) {
	for _, raw := range []string{"", "{", "null7"} {
		status := Config{}.CheckPolicy([]byte(raw), nil).Status("p")
		require.NotNil(t, status, raw)
		require.Contains(t, status.Message, `SizingPolicy.loadline.dev "p" is invalid: .: Internal error: `, raw)
	}
}

func FuzzCheckPolicy(f *testing.F) {
	f.Add(string(policyWith(limits(`{"containerName":"c","minAllowed":{"cpu":"1"}}`)+`,"rollout":{"mode":"Canary","cooldown":"1h","schedule":{"windows":[{"start":"22:00","end":"06:00"}],"timezone":"UTC"}}`)), "")
	f.Add(`{"spec":{"namespaces":{"selector":{"matchLabels":{"a":"b"}}},"safety":{"throttle":0.5,"observationPeriod":5}}}`, `{"spec":{}}`)
	f.Fuzz(func(t *testing.T, raw, old string) {
		for _, c := range []Config{{}, everything} {
			v := c.CheckPolicy([]byte(raw), []byte(old))
			if len(v.Errors) > maxFindings || len(v.Warnings) > maxFindings {
				t.Fatalf("%d errors, %d warnings", len(v.Errors), len(v.Warnings))
			}
			if len(v.Errors) > 0 && !strings.Contains(v.Status("p").Message, "invalid") {
				t.Fatalf("verdict %+v", v)
			}
		}
	})
}
