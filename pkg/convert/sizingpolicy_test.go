package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

// sizing decodes a policy from fields of its spec, with defaults for namespaces and workloads.
func sizing(t *testing.T, fields string) *loadlinev1alpha1.SizingPolicy {
	t.Helper()
	spec := map[string]json.RawMessage{
		"namespaces": json.RawMessage(`{"names":["shop"]}`),
		"workloads":  json.RawMessage(`[{"apiVersion":"apps/v1","kind":"Deployment"}]`),
	}
	require.NoError(t, json.Unmarshal([]byte("{"+fields+"}"), &spec))
	raw, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(t, err)
	var p loadlinev1alpha1.SizingPolicy
	require.NoError(t, loadlinev1alpha1.Decode(raw, &p))
	return &p
}

func TestCheckPolicy_ErrorsNameFieldAndValidValues(t *testing.T) {
	tooLong := strings.Repeat("x", 318) // long enough to be truncated
	const label = "a lowercase RFC 1123 label must consist of"
	for fields, want := range map[string]string{
		`"priority":0`:                    `spec.priority: Invalid value: 0: must be from 1 to 1000`,
		`"priority":1001`:                 `spec.priority: Invalid value: 1001: must be from 1 to 1000`,
		`"recommender":""`:                `spec.recommender: Invalid value: "": must be the --recommender-name of a recommender; leave it out for the one named default`,
		`"namespaces":{}`:                 `spec.namespaces: Required value: must have names or a selector; names: ["*"] selects all namespaces`,
		`"namespaces":{"names":["Shop"]}`: `spec.namespaces.names: Invalid value: "Shop": must be the name of a namespace, or "*" for all: ` + label,
		`"namespaces":{"names":["shop"],"exclude":["*"]}`:                              `spec.namespaces.exclude: Invalid value: "*": must be the name of a namespace: ` + label,
		`"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`: `spec.namespaces.selector.matchExpressions[0].operator: Invalid value: "Is": must be In, NotIn, Exists or DoesNotExist`,
		`"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`: `spec.namespaces.selector.matchExpressions[0].values: Required value: must be specified when`,
		`"namespaces":{"selector":{"matchLabels":{"a":"b c"}}}`:                        `spec.namespaces.selector.matchLabels: Invalid value: "b c": a valid label must be`,
		`"namespaces":{"names":[` + strings.Repeat(`"a",`, 999) + `"a"]}`:              `spec.namespaces.names: Too many: 1000: must have at most 256 items`,
		`"workloads":[]`:                                                                                    `spec.workloads: Required value: must have at least one kind, for example {apiVersion: apps/v1, kind: Deployment}`,
		`"workloads":[{"kind":"Deployment"}]`:                                                               `spec.workloads[0].apiVersion: Required value: must be the group and version of the kind, for example apps/v1`,
		`"workloads":[{"apiVersion":"apps/v1","kind":""}]`:                                                  `spec.workloads[0].kind: Required value: must be the kind of a workload, for example Deployment`,
		`"workloads":[{"apiVersion":"v1","kind":"Deployment"}]`:                                             `spec.workloads[0].apiVersion: Invalid value: "v1": must be apps/v1 for kind Deployment; another kind of that name needs a name`,
		`"workloads":[{"apiVersion":"apps/v1","kind":"CronJob"}]`:                                           `spec.workloads[0].apiVersion: Invalid value: "apps/v1": must be batch/v1 for kind CronJob; another kind of that name needs a name`,
		`"workloads":[{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout"}]`:                              `spec.workloads[0].name: Required value: must name the workload: only Deployment, StatefulSet and DaemonSet of apps/v1 and CronJob of batch/v1 can be selected without a name`,
		`"workloads":[{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","name":"web","selector":{}}]`:   `spec.workloads[0].selector: Forbidden: a Rollout is found by its name: leave out the selector`,
		`"workloads":[{"apiVersion":"apps/v1","kind":"Deployment","name":"Web"}]`:                           `spec.workloads[0].name: Invalid value: "Web": must be the name of a workload: a lowercase RFC 1123 subdomain`,
		`"workloads":[{"apiVersion":"apps/v1","kind":"Deployment","selector":{"matchLabels":{"a b":"c"}}}]`: `spec.workloads[0].selector.matchLabels: Invalid value: "a b": name part must consist of`,
		`"workloads":[` + strings.Repeat(`{},`, 32) + `{}]`:                                                 `spec.workloads: Too many: 33: must have at most 32 items`,
		`"vpas":"Always"`: `spec.vpas: Unsupported value: "Always": supported values: "IfMissing", "Never"`,
		`"namespaces":{"names":["` + tooLong + `"]}`:                                                                `spec.namespaces.names: Too long: may not be more than 317 bytes`,
		`"namespaces":{"selector":{"matchLabels":{"` + tooLong + `":"b"}}}`:                                         `spec.namespaces.selector.matchLabels: Too long: may not be more than 317 bytes`,
		`"namespaces":{"selector":{"matchLabels":{"a":"` + tooLong + `"}}}`:                                         `spec.namespaces.selector.matchLabels[a]: Too long: may not be more than 317 bytes`,
		`"namespaces":{"selector":{"matchExpressions":[{"key":"` + tooLong + `","operator":"Exists"}]}}`:            `spec.namespaces.selector.matchExpressions[0].key: Too long: may not be more than 317 bytes`,
		`"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["` + tooLong + `"]}]}}`: `spec.namespaces.selector.matchExpressions[0].values: Too long: may not be more than 317 bytes`,
		`"workloads":[{"apiVersion":"apps/v1","kind":"Deployment","name":"` + tooLong + `"}]`:                       `spec.workloads[0].name: Too long: may not be more than 317 bytes`,
		`"vpaMetadata":{"annotations":{"` + tooLong + `":"c"}}`:                                                     `spec.vpaMetadata.annotations: Too long: may not be more than 317 bytes`,
		`"vpaMetadata":{"labels":{"a":"` + tooLong + `"}}`:                                                          `spec.vpaMetadata.labels[a]: Too long: may not be more than 317 bytes`,
		`"containers":{"exclude":["` + tooLong + `"]}`:                                                              `spec.containers.exclude: Too long: may not be more than 317 bytes`,
		`"vpaMetadata":{"labels":{"a b":"c"}}`:                                                                      `spec.vpaMetadata.labels: Invalid value: "a b": must be a key such as example.com/owner: name part must consist of`,
		`"vpaMetadata":{"labels":{"a":"b c"}}`:                                                                      `spec.vpaMetadata.labels[a]: Invalid value: "b c": a valid label must be`,
		`"vpaMetadata":{"annotations":{"loadline.dev/recipe":"vpa"}}`:                                               `spec.vpaMetadata.annotations: Invalid value: "loadline.dev/recipe": must not begin with loadline.dev/, which is reserved for Loadline; set a recipe in spec.recipe`,
		`"vpaMetadata":{"annotations":{"a":"` + strings.Repeat("x", 210000) + `"}}`:                                 `spec.vpaMetadata.annotations: Too long: may not be more than 204800 bytes`,
		`"recipe":"loadline:cpu=trakcing"`:                                                                          `spec.recipe: Invalid value: "loadline:cpu=trakcing": `,
		`"recipe":"magic"`:                                                                                          `spec.recipe: Invalid value: "magic": `,
		`"containers":{"exclude":["Proxy"]}`:                                                                        `spec.containers.exclude: Invalid value: "Proxy": must be the name of a container: ` + label,
		`"containers":{"exclude":[` + strings.Repeat(`"a",`, 100) + `"a"]}`:                                         `spec.containers.exclude: Too many: 101: must have at most 100 items`,
		`"rollout":{"mode":"auto"}`:                                                                                 `spec.rollout.mode: Unsupported value: "auto": supported values: "Inherit", "Observe", "Recommend", "OneShot", "Canary", "Auto"`,
		`"rollout":{"mode":"Canary"}`:                                                                               `spec.rollout.canary.percentage: Required value: must be the percentage of pods to change first in mode Canary, for example 10`,
		`"rollout":{"mode":"Canary","canary":{"autoPromote":true}}`:                                                 `spec.rollout.canary.percentage: Required value: must be the percentage of pods to change first in mode Canary, for example 10`,
		`"rollout":{"mode":"Canary","canary":{"percentage":0}}`:                                                     `spec.rollout.canary.percentage: Invalid value: 0: must be from 1 to 100`,
		`"rollout":{"canary":{"percentage":101}}`:                                                                   `spec.rollout.canary.percentage: Invalid value: 101: must be from 1 to 100`,
		`"rollout":{"canary":{"observationPeriod":"59s"}}`:                                                          `spec.rollout.canary.observationPeriod: Invalid value: "59s": must be at least 1m`,
		`"rollout":{"method":"Recreate"}`:                                                                           `spec.rollout.method: Unsupported value: "Recreate": supported values: "InPlaceOnly", "InPlaceOrRecreate"`,
		`"rollout":{"cooldown":"-1s"}`:                                                                              `spec.rollout.cooldown: Invalid value: "-1s": must not be negative; 0s: no pause`,
		`"rollout":{"maxConcurrent":-1}`:                                                                            `spec.rollout.maxConcurrent: Invalid value: -1: must not be negative; 0: no limit`,
		`"rollout":{"schedule":{"windows":[{"start":"22:00","end":"22:00"}]}}`:                                      `spec.rollout.schedule.windows[0].end: Invalid value: "22:00": must differ from start; for the whole day leave out windows`,
		`"rollout":{"schedule":{"windows":[{"start":"9:00","end":"10:00"}]}}`:                                       `spec.rollout.schedule.windows[0].start: Invalid value: "9:00": must be a time of the day as HH:MM, from 00:00 to 23:59`,
		`"rollout":{"schedule":{"windows":[{"start":"20:00","end":"24:00"}]}}`:                                      `spec.rollout.schedule.windows[0].end: Invalid value: "24:00": must be a time of the day as HH:MM, from 00:00 to 23:59`,
		`"rollout":{"schedule":{"windows":[` + strings.Repeat(`{"start":"22:00","end":"23:00"},`, 32) + `{}]}}`:     `spec.rollout.schedule.windows: Too many: 33: must have at most 32 items`,
		`"rollout":{"schedule":{"daysOfWeek":["Mon"]}}`:                                                             `spec.rollout.schedule.daysOfWeek[0]: Unsupported value: "Mon": supported values: "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"`,
		`"rollout":{"schedule":{"timezone":"Europe/Atlantis"}}`:                                                     `spec.rollout.schedule.timezone: Invalid value: "Europe/Atlantis": must be the name of a zone of the IANA time zone database, for example Europe/Berlin or UTC`,
		`"rollout":{"schedule":{"timezone":"Local"}}`:                                                               `spec.rollout.schedule.timezone: Invalid value: "Local": must be the name of a zone`,
		`"rollout":{"schedule":{"timezone":""}}`:                                                                    `spec.rollout.schedule.timezone: Invalid value: "": must be the name of a zone`,
		`"rollout":{"initialSizing":"On"}`:                                                                          `spec.rollout.initialSizing: Unsupported value: "On": supported values: "Off", "Target"`,
		`"rollout":{"hpa":"Ignore"}`:                                                                                `spec.rollout.hpa: Unsupported value: "Ignore": supported values: "LeaveOut", "Proceed"`,
		`"safety":{"observationPeriod":"30s"}`:                                                                      `spec.safety.observationPeriod: Invalid value: "30s": must be at least 1m`,
		`"safety":{"restarts":0}`:                                                                                   `spec.safety.restarts: Invalid value: 0: must be at least 1; set autoRevert: false to disable reverts`,
		`"safety":{"throttle":"50%"}`:                                                                               `spec.safety.throttle: Invalid value: "50%": must be a decimal from 0 to 1 in quotes, for example "0.5"; "0" switches it off`,
		`"safety":{"pressure":"1.1"}`:                                                                               `spec.safety.pressure: Invalid value: "1.1": must be a decimal from 0 to 1 in quotes`,
		`"sharing":{"mode":"Yes"}`:                                                                                  `spec.sharing.mode: Unsupported value: "Yes": supported values: "Off", "DryRun", "On"`,
		`"sharing":{"resources":["gpu"]}`:                                                                           `spec.sharing.resources[0]: Unsupported value: "gpu": supported values: "cpu", "memory"`,
		`"sharing":{"cpuLimit":"Drop"}`:                                                                             `spec.sharing.cpuLimit: Unsupported value: "Drop": supported values: "Keep", "Remove", "NodeAllocatable"`,
		`"sharing":{"nodeAutoscaler":"On"}`:                                                                         `spec.sharing.nodeAutoscaler: Unsupported value: "On": supported values: "DryRun", "Accept"`,
	} {
		problems, _ := CheckPolicy(sizing(t, fields))
		require.Len(t, problems, 1, fields)
		require.True(t, strings.HasPrefix(problems[0].Error(), want), "%s\n got %s\nwant %s", fields, problems[0], want)
	}
}

func TestCheckPolicy_AcceptsValidPolicies(t *testing.T) {
	for _, fields := range []string{
		`"namespaces":{"names":[` + strings.Repeat(`"shop",`, 255) + `"shop"]},"workloads":[` + strings.Repeat(`{"apiVersion":"apps/v1","kind":"Deployment"},`, 31) + `{"apiVersion":"apps/v1","kind":"Deployment"}]`,
		``,
		`"priority":1,"paused":false,"recommender":"night","vpas":"Never","recipe":"loadline:cpu=tracking"`,
		`"priority":1000,"recipe":""`,
		`"namespaces":{"selector":{}}`,
		`"namespaces":{"names":["*"],"exclude":["kube-system"]}`,
		`"workloads":[{"apiVersion":"batch/v1","kind":"CronJob"},{"apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","selector":{"matchLabels":{"a":"b"}}}]`,
		`"workloads":[{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","name":"web"},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs"}]`,
		`"vpaMetadata":{"labels":{"example.com/owner":"platform"},"annotations":{"note":"any text: 7 %"}}`,
		`"containers":{"exclude":["istio-proxy"]}`,
		`"rollout":{"mode":"Recommend","cooldown":"0s","maxConcurrent":0,"canary":{"percentage":1,"observationPeriod":"1m"}}`,
		`"rollout":{"schedule":{"windows":[{"start":"22:00","end":"06:00"},{"start":"00:00","end":"23:59"}],"daysOfWeek":["Saturday"],"timezone":"Europe/Berlin"}}`,
		`"rollout":{"schedule":{"timezone":"UTC"},"initialSizing":"Off","hpa":"Proceed","method":"InPlaceOrRecreate"}`,
		`"safety":{"observationPeriod":"1m","restarts":1,"throttle":"0","pressure":"1.0"}`,
		`"sharing":{"mode":"Off","resources":["cpu","memory"],"cpuLimit":"Remove","nodeAutoscaler":"Accept"}`,
		`"sharing":{"mode":"DryRun"},"recipe":"loadline:cpu=shared,memory=following"`,
	} {
		problems, warnings := CheckPolicy(sizing(t, fields))
		require.Empty(t, problems, fields)
		require.Empty(t, warnings, fields)
	}
}

func TestCheckPolicy_WarnsOfLikelyMistakes(t *testing.T) {
	for fields, want := range map[string]string{
		`"namespaces":{"names":["*"]}`:                                       `spec.namespaces.names: "*" selects every namespace except kube-system, kube-public, kube-node-lease and the namespace of Loadline: add namespaces that must not change to exclude`,
		`"namespaces":{"names":["a","b"],"exclude":["b","a"]}`:               `spec.namespaces: no namespace is selected: exclude contains all of names`,
		`"sharing":{"mode":"DryRun"}`:                                        `spec.sharing.mode: sharing requires a recipe with sharing support, and spec.recipe names none: only VPAs with the annotation loadline.dev/recipe share`,
		`"sharing":{"mode":"DryRun"},"recipe":"loadline:cpu=tracking"`:       `spec.sharing.mode: pods with the recipe "loadline:cpu=tracking" do not share: use a recipe with sharing support, such as cruisekube`,
		`"namespaces":{"names":["*","a"]},"rollout":{"mode":"Inherit"}`:      `spec.namespaces.names: "*" selects every namespace except`,
		`"namespaces":{"names":["a"],"exclude":["a"]},"recommender":"night"`: `spec.namespaces: no namespace is selected`,
	} {
		problems, warnings := CheckPolicy(sizing(t, fields))
		require.Empty(t, problems, fields)
		require.Len(t, warnings, 1, fields)
		require.True(t, strings.HasPrefix(warnings[0], want), "%s: %s", fields, warnings[0])
		require.LessOrEqual(t, len(warnings[0]), 256, "clients show no more")
	}
	_, warnings := CheckPolicy(sizing(t, `"namespaces":{"names":["a"],"exclude":["a"],"selector":{}}`))
	require.Empty(t, warnings, "the selector selects some")
}

func TestCheckPolicy_BoundsNumberAndLengthOfErrors(t *testing.T) {
	problems, _ := CheckPolicy(sizing(t, `"priority":0,"recipe":"magic","rollout":{"mode":"Canary","schedule":{"windows":[{"start":"1","end":"2"}],"timezone":"x"}},"safety":{"throttle":"2"}`))
	require.Len(t, problems, 7)
	long := strings.Repeat("é", 10000)
	for _, fields := range []string{
		`"containers":{"exclude":[` + strings.Repeat(`"`+long+`",`, 99) + `"a"]}`,
		`"rollout":{"schedule":{"daysOfWeek":[` + strings.Repeat(`"`+long+`",`, 99) + `"a"]}}`,
		`"workloads":[` + strings.Repeat(`{"apiVersion":"`+long+`","kind":"`+long+`","name":"`+long+`","selector":{"matchExpressions":[{"key":"`+long+`","operator":"`+long+`"}]}},`, 31) + `{}]`,
	} {
		problems, _ := CheckPolicy(sizing(t, fields))
		require.Len(t, problems, maxProblems)
		for _, e := range problems {
			require.Less(t, len(e.Error()), 700)
		}
	}
}

// Labels come from a map, but the replicas of the webhook must report the same errors.
func TestCheckPolicy_OrderIsDeterministic(t *testing.T) {
	var labels []string
	for i := range 10 {
		labels = append(labels, fmt.Sprintf(`"a %d":"b %d"`, i, i))
	}
	p := sizing(t, `"namespaces":{"selector":{"matchLabels":{`+strings.Join(labels, ",")+`}}},"vpaMetadata":{"labels":{`+strings.Join(labels, ",")+`}}`)
	first, _ := CheckPolicy(p)
	for range 10 {
		again, _ := CheckPolicy(p)
		require.Equal(t, first.ToAggregate().Error(), again.ToAggregate().Error())
	}
}

func TestCheckPolicy_ReportsUnreadablePolicy(t *testing.T) {
	var p loadlinev1alpha1.SizingPolicy
	require.NoError(t, json.Unmarshal([]byte(`{"spec":{"namespaces":{"names":["shop"]},"workloads":[{"apiVersion":"apps/v1","kind":"Deployment"}],
		"resourcePolicy":{"containerPolicies":[{"containerName":"c","minAllowed":{"cpu":"1e.5"}}]}}}`), &p))
	problems, _ := CheckPolicy(&p)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].Error(), "spec.resourcePolicy")
}

// The name of the policy becomes a label of its VPAs. They must not have annotations of kubectl.
func TestCheckPolicy_RefusesInvalidMetadataOfGeneratedVPAs(t *testing.T) {
	p := sizing(t, `"vpaMetadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}`)
	p.Name = strings.Repeat("a", 64)
	problems, _ := CheckPolicy(p)
	require.Len(t, problems, 2)
	require.Equal(t, "metadata.name: Too long: may not be more than 63 bytes", problems[0].Error())
	require.ErrorContains(t, problems[1], "must not be set: kubectl writes it")
}

func TestPolicy_ReadsSharing(t *testing.T) {
	cpu, memory := [resources.Kinds]bool{resources.CPU: true}, [resources.Kinds]bool{resources.Memory: true}
	for fields, want := range map[string]fleet.Sharing{
		``:                            {},
		`"sharing":{}`:                {Kinds: cpu},
		`"sharing":{"mode":"Off"}`:    {Kinds: cpu},
		`"sharing":{"mode":"DryRun"}`: {Mode: fleet.SharingDryRun, Kinds: cpu},
		`"sharing":{"mode":"On","evict":true},"rollout":{"mode":"Auto"}`:     {Mode: fleet.SharingOn, Kinds: cpu}, // in place only
		`"sharing":{"mode":"DryRun","evict":true},"rollout":{"mode":"Auto"}`: {Mode: fleet.SharingDryRun, Kinds: cpu, Evict: true},
		`"rollout":{"mode":"Auto","method":"InPlaceOrRecreate"},"sharing":{"mode":"On","resources":["memory"],"evict":true,"cpuLimit":"NodeAllocatable","nodeAutoscaler":"Accept"}`: {
			Mode: fleet.SharingOn, Kinds: memory, Evict: true, CPULimit: sharing.NodeLimit, AcceptsNodeAutoscaler: true},
		`"sharing":{"mode":"On","resources":["memory","cpu"],"evict":false,"cpuLimit":"Remove","nodeAutoscaler":"DryRun"}`: {
			Mode: fleet.SharingOn, Kinds: [resources.Kinds]bool{true, true}, CPULimit: sharing.RemoveLimit},
		`"sharing":{"cpuLimit":"Keep"}`:                                 {Kinds: cpu, CPULimit: sharing.KeepLimit},
		`"sharing":{"maxEvictionRanking":"high","userVPAs":"Override"}`: {Kinds: cpu, MaxRank: new(sharing.High)},
		`"sharing":{"mode":"On","userVPAs":"Restrict"}`:                 {Mode: fleet.SharingOn, Kinds: cpu, RestrictsUserVPAs: true},
	} {
		require.Equal(t, want, Policy(sizing(t, fields)).Sharing, fields)
	}
}

func TestPolicy_MaxAllowedBoundsRestrictedUserVPAs(t *testing.T) {
	const policies = `"resourcePolicy":{"containerPolicies":[{"containerName":"*","maxAllowed":{"cpu":"2"}}]}`
	p := Policy(sizing(t, `"sharing":{"mode":"On","userVPAs":"Restrict"},`+policies))
	require.NotNil(t, p.Sharing.Max)
	require.Equal(t, resources.Amount(2000), p.Sharing.Max.For("any").Max.Value(resources.CPU))
	require.Nil(t, Policy(sizing(t, `"sharing":{"mode":"On"},`+policies)).Sharing.Max)
	problems, _ := CheckPolicy(sizing(t, `"sharing":{"userVPAs":"Both","maxEvictionRanking":"highest"}`))
	require.Len(t, problems, 2)
	require.Equal(t, "spec.sharing.userVPAs", problems[0].Field)
	require.Equal(t, "spec.sharing.maxEvictionRanking", problems[1].Field)
}
