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
	for _, tc := range []struct{ name, fields, want string }{
		{name: "priority of zero", fields: `"priority":0`, want: `spec.priority: Invalid value: 0: must be from 1 to 1000`},
		{name: "priority above the maximum", fields: `"priority":1001`, want: `spec.priority: Invalid value: 1001: must be from 1 to 1000`},
		{name: "empty recommender", fields: `"recommender":""`,
			want: `spec.recommender: Invalid value: "": must be the --recommender-name of a recommender; leave it out for the one named ` +
				`default`},
		{name: "namespaces without names", fields: `"namespaces":{}`,
			want: `spec.namespaces: Required value: must have names or a selector; names: ["*"] selects all namespaces`},
		{name: "invalid namespace", fields: `"namespaces":{"names":["Shop"]}`,
			want: `spec.namespaces.names: Invalid value: "Shop": must be the name of a namespace, or "*" for all: ` + label},
		{name: "wildcard in exclude", fields: `"namespaces":{"names":["shop"],"exclude":["*"]}`,
			want: `spec.namespaces.exclude: Invalid value: "*": must be the name of a namespace: ` + label},
		{name: "unknown operator of a namespace selector",
			fields: `"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}`,
			want: `spec.namespaces.selector.matchExpressions[0].operator: Invalid value: "Is": must be In, NotIn, Exists or ` +
				`DoesNotExist`},
		{name: "namespace selector without values", fields: `"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`,
			want: `spec.namespaces.selector.matchExpressions[0].values: Required value: must be specified when`},
		{name: "invalid label value in a namespace selector", fields: `"namespaces":{"selector":{"matchLabels":{"a":"b c"}}}`,
			want: `spec.namespaces.selector.matchLabels: Invalid value: "b c": a valid label must be`},
		{name: "too many namespaces", fields: `"namespaces":{"names":[` + strings.Repeat(`"a",`, 999) + `"a"]}`,
			want: `spec.namespaces.names: Too many: 1000: must have at most 256 items`},
		{name: "no workload kinds", fields: `"workloads":[]`,
			want: `spec.workloads: Required value: must have at least one kind, for example {apiVersion: apps/v1, kind: Deployment}`},
		{name: "kind without an API version", fields: `"workloads":[{"kind":"Deployment"}]`,
			want: `spec.workloads[0].apiVersion: Required value: must be the group and version of the kind, for example apps/v1`},
		{name: "empty kind", fields: `"workloads":[{"apiVersion":"apps/v1","kind":""}]`,
			want: `spec.workloads[0].kind: Required value: must be the kind of a workload, for example Deployment`},
		{name: "Deployment of another API version", fields: `"workloads":[{"apiVersion":"v1","kind":"Deployment"}]`,
			want: `spec.workloads[0].apiVersion: Invalid value: "v1": must be apps/v1 for kind Deployment; another kind of that name ` +
				`needs a name`},
		{name: "CronJob of another API version", fields: `"workloads":[{"apiVersion":"apps/v1","kind":"CronJob"}]`,
			want: `spec.workloads[0].apiVersion: Invalid value: "apps/v1": must be batch/v1 for kind CronJob; another kind of that name ` +
				`needs a name`},
		{name: "custom kind without a name", fields: `"workloads":[{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout"}]`,
			want: `spec.workloads[0].name: Required value: must name the workload: only Deployment, StatefulSet and DaemonSet of apps/v1 ` +
				`and CronJob of batch/v1 can be selected without a name`},
		{name: "custom kind with a selector",
			fields: `"workloads":[{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","name":"web","selector":{}}]`,
			want:   `spec.workloads[0].selector: Forbidden: a Rollout is found by its name: leave out the selector`},
		{name: "invalid workload name", fields: `"workloads":[{"apiVersion":"apps/v1","kind":"Deployment","name":"Web"}]`,
			want: `spec.workloads[0].name: Invalid value: "Web": must be the name of a workload: a lowercase RFC 1123 subdomain`},
		{name: "invalid label key in a workload selector",
			fields: `"workloads":[{"apiVersion":"apps/v1","kind":"Deployment","selector":{"matchLabels":{"a b":"c"}}}]`,
			want:   `spec.workloads[0].selector.matchLabels: Invalid value: "a b": name part must consist of`},
		{name: "too many workload kinds", fields: `"workloads":[` + strings.Repeat(`{},`, 32) + `{}]`,
			want: `spec.workloads: Too many: 33: must have at most 32 items`},
		{name: "unknown value of vpas", fields: `"vpas":"Always"`,
			want: `spec.vpas: Unsupported value: "Always": supported values: "IfMissing", "Never"`},
		{name: "namespace too long", fields: `"namespaces":{"names":["` + tooLong + `"]}`,
			want: `spec.namespaces.names: Too long: may not be more than 317 bytes`},
		{name: "label key too long", fields: `"namespaces":{"selector":{"matchLabels":{"` + tooLong + `":"b"}}}`,
			want: `spec.namespaces.selector.matchLabels: Too long: may not be more than 317 bytes`},
		{name: "label value too long", fields: `"namespaces":{"selector":{"matchLabels":{"a":"` + tooLong + `"}}}`,
			want: `spec.namespaces.selector.matchLabels[a]: Too long: may not be more than 317 bytes`},
		{name: "key of an expression too long",
			fields: `"namespaces":{"selector":{"matchExpressions":[{"key":"` + tooLong + `","operator":"Exists"}]}}`,
			want:   `spec.namespaces.selector.matchExpressions[0].key: Too long: may not be more than 317 bytes`},
		{name: "value of an expression too long",
			fields: `"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["` + tooLong + `"]}]}}`,
			want:   `spec.namespaces.selector.matchExpressions[0].values: Too long: may not be more than 317 bytes`},
		{name: "workload name too long", fields: `"workloads":[{"apiVersion":"apps/v1","kind":"Deployment","name":"` + tooLong + `"}]`,
			want: `spec.workloads[0].name: Too long: may not be more than 317 bytes`},
		{name: "annotation key too long", fields: `"vpaMetadata":{"annotations":{"` + tooLong + `":"c"}}`,
			want: `spec.vpaMetadata.annotations: Too long: may not be more than 317 bytes`},
		{name: "label of a VPA too long", fields: `"vpaMetadata":{"labels":{"a":"` + tooLong + `"}}`,
			want: `spec.vpaMetadata.labels[a]: Too long: may not be more than 317 bytes`},
		{name: "container name too long", fields: `"containers":{"exclude":["` + tooLong + `"]}`,
			want: `spec.containers.exclude: Too long: may not be more than 317 bytes`},
		{name: "invalid label key of VPAs", fields: `"vpaMetadata":{"labels":{"a b":"c"}}`,
			want: `spec.vpaMetadata.labels: Invalid value: "a b": must be a key such as example.com/owner: name part must consist of`},
		{name: "invalid label value of VPAs", fields: `"vpaMetadata":{"labels":{"a":"b c"}}`,
			want: `spec.vpaMetadata.labels[a]: Invalid value: "b c": a valid label must be`},
		{name: "reserved annotation", fields: `"vpaMetadata":{"annotations":{"loadline.dev/recipe":"vpa"}}`,
			want: `spec.vpaMetadata.annotations: Invalid value: "loadline.dev/recipe": must not begin with loadline.dev/, which is ` +
				`reserved for Loadline; set a recipe in spec.recipe`},
		{name: "annotations too large", fields: `"vpaMetadata":{"annotations":{"a":"` + strings.Repeat("x", 210000) + `"}}`,
			want: `spec.vpaMetadata.annotations: Too long: may not be more than 204800 bytes`},
		{name: "unknown recipe setting", fields: `"recipe":"loadline:cpu=trakcing"`,
			want: `spec.recipe: Invalid value: "loadline:cpu=trakcing": `},
		{name: "unknown recipe", fields: `"recipe":"magic"`, want: `spec.recipe: Invalid value: "magic": `},
		{name: "invalid container name", fields: `"containers":{"exclude":["Proxy"]}`,
			want: `spec.containers.exclude: Invalid value: "Proxy": must be the name of a container: ` + label},
		{name: "too many containers", fields: `"containers":{"exclude":[` + strings.Repeat(`"a",`, 100) + `"a"]}`,
			want: `spec.containers.exclude: Too many: 101: must have at most 100 items`},
		{name: "unknown rollout mode", fields: `"rollout":{"mode":"auto"}`,
			want: `spec.rollout.mode: Unsupported value: "auto": supported values: "Inherit", "Observe", "Recommend", "OneShot", ` +
				`"Canary", "Auto"`},
		{name: "Canary without settings", fields: `"rollout":{"mode":"Canary"}`,
			want: `spec.rollout.canary.percentage: Required value: must be the percentage of pods to change first in mode Canary, for ` +
				`example 10`},
		{name: "Canary without a percentage", fields: `"rollout":{"mode":"Canary","canary":{"autoPromote":true}}`,
			want: `spec.rollout.canary.percentage: Required value: must be the percentage of pods to change first in mode Canary, for ` +
				`example 10`},
		{name: "canary of zero percent", fields: `"rollout":{"mode":"Canary","canary":{"percentage":0}}`,
			want: `spec.rollout.canary.percentage: Invalid value: 0: must be from 1 to 100`},
		{name: "canary above 100 percent", fields: `"rollout":{"canary":{"percentage":101}}`,
			want: `spec.rollout.canary.percentage: Invalid value: 101: must be from 1 to 100`},
		{name: "canary observation too short", fields: `"rollout":{"canary":{"observationPeriod":"59s"}}`,
			want: `spec.rollout.canary.observationPeriod: Invalid value: "59s": must be at least 1m`},
		{name: "unknown rollout method", fields: `"rollout":{"method":"Recreate"}`,
			want: `spec.rollout.method: Unsupported value: "Recreate": supported values: "InPlaceOnly", "InPlaceOrRecreate"`},
		{name: "negative cooldown", fields: `"rollout":{"cooldown":"-1s"}`,
			want: `spec.rollout.cooldown: Invalid value: "-1s": must not be negative; 0s: no pause`},
		{name: "negative concurrency", fields: `"rollout":{"maxConcurrent":-1}`,
			want: `spec.rollout.maxConcurrent: Invalid value: -1: must not be negative; 0: no limit`},
		{name: "empty window", fields: `"rollout":{"schedule":{"windows":[{"start":"22:00","end":"22:00"}]}}`,
			want: `spec.rollout.schedule.windows[0].end: Invalid value: "22:00": must differ from start; for the whole day leave out ` +
				`windows`},
		{name: "window start without leading zero", fields: `"rollout":{"schedule":{"windows":[{"start":"9:00","end":"10:00"}]}}`,
			want: `spec.rollout.schedule.windows[0].start: Invalid value: "9:00": must be a time of the day as HH:MM, from 00:00 to 23:59`},
		{name: "window end past midnight", fields: `"rollout":{"schedule":{"windows":[{"start":"20:00","end":"24:00"}]}}`,
			want: `spec.rollout.schedule.windows[0].end: Invalid value: "24:00": must be a time of the day as HH:MM, from 00:00 to 23:59`},
		{name: "too many windows",
			fields: `"rollout":{"schedule":{"windows":[` + strings.Repeat(`{"start":"22:00","end":"23:00"},`, 32) + `{}]}}`,
			want:   `spec.rollout.schedule.windows: Too many: 33: must have at most 32 items`},
		{name: "unknown day", fields: `"rollout":{"schedule":{"daysOfWeek":["Mon"]}}`,
			want: `spec.rollout.schedule.daysOfWeek[0]: Unsupported value: "Mon": supported values: "Monday", "Tuesday", "Wednesday", ` +
				`"Thursday", "Friday", "Saturday", "Sunday"`},
		{name: "unknown timezone", fields: `"rollout":{"schedule":{"timezone":"Europe/Atlantis"}}`,
			want: `spec.rollout.schedule.timezone: Invalid value: "Europe/Atlantis": must be the name of a zone of the IANA time zone ` +
				`database, for example Europe/Berlin or UTC`},
		{name: "local timezone", fields: `"rollout":{"schedule":{"timezone":"Local"}}`,
			want: `spec.rollout.schedule.timezone: Invalid value: "Local": must be the name of a zone`},
		{name: "empty timezone", fields: `"rollout":{"schedule":{"timezone":""}}`,
			want: `spec.rollout.schedule.timezone: Invalid value: "": must be the name of a zone`},
		{name: "unknown initial sizing", fields: `"rollout":{"initialSizing":"On"}`,
			want: `spec.rollout.initialSizing: Unsupported value: "On": supported values: "Off", "Target"`},
		{name: "unknown HPA handling", fields: `"rollout":{"hpa":"Ignore"}`,
			want: `spec.rollout.hpa: Unsupported value: "Ignore": supported values: "LeaveOut", "Proceed"`},
		{name: "safety observation too short", fields: `"safety":{"observationPeriod":"30s"}`,
			want: `spec.safety.observationPeriod: Invalid value: "30s": must be at least 1m`},
		{name: "restarts of zero", fields: `"safety":{"restarts":0}`,
			want: `spec.safety.restarts: Invalid value: 0: must be at least 1; set autoRevert: false to disable reverts`},
		{name: "throttle is a percentage", fields: `"safety":{"throttle":"50%"}`,
			want: `spec.safety.throttle: Invalid value: "50%": must be a decimal from 0 to 1 in quotes, for example "0.5"; "0" switches ` +
				`it off`},
		{name: "pressure above one", fields: `"safety":{"pressure":"1.1"}`,
			want: `spec.safety.pressure: Invalid value: "1.1": must be a decimal from 0 to 1 in quotes`},
		{name: "unknown sharing mode", fields: `"sharing":{"mode":"Yes"}`,
			want: `spec.sharing.mode: Unsupported value: "Yes": supported values: "Off", "DryRun", "On"`},
		{name: "unknown shared resource", fields: `"sharing":{"resources":["gpu"]}`,
			want: `spec.sharing.resources[0]: Unsupported value: "gpu": supported values: "cpu", "memory"`},
		{name: "unknown CPU limit", fields: `"sharing":{"cpuLimit":"Drop"}`,
			want: `spec.sharing.cpuLimit: Unsupported value: "Drop": supported values: "Keep", "Remove", "NodeAllocatable"`},
		{name: "unknown node autoscaler handling", fields: `"sharing":{"nodeAutoscaler":"On"}`,
			want: `spec.sharing.nodeAutoscaler: Unsupported value: "On": supported values: "DryRun", "Accept"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			problems, _ := CheckPolicy(sizing(t, tc.fields))
			require.Len(t, problems, 1)
			require.True(t, strings.HasPrefix(problems[0].Error(), tc.want), "got %s\nwant %s", problems[0], tc.want)
		})
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
	for _, tc := range []struct{ name, fields, want string }{
		{name: "all namespaces", fields: `"namespaces":{"names":["*"]}`,
			want: `spec.namespaces.names: "*" selects every namespace except kube-system, kube-public, kube-node-lease and the namespace ` +
				`of Loadline: add namespaces that must not change to exclude`},
		{name: "all names excluded", fields: `"namespaces":{"names":["a","b"],"exclude":["b","a"]}`,
			want: `spec.namespaces: no namespace is selected: exclude contains all of names`},
		{name: "sharing without a recipe", fields: `"sharing":{"mode":"DryRun"}`,
			want: `spec.sharing.mode: sharing requires a recipe with sharing support, and spec.recipe names none: only VPAs with the ` +
				`annotation loadline.dev/recipe share`},
		{name: "sharing with a recipe that does not share", fields: `"sharing":{"mode":"DryRun"},"recipe":"loadline:cpu=tracking"`,
			want: `spec.sharing.mode: pods with the recipe "loadline:cpu=tracking" do not share: use a recipe with sharing support, such ` +
				`as cruisekube`},
		{name: "all namespaces in mode Inherit", fields: `"namespaces":{"names":["*","a"]},"rollout":{"mode":"Inherit"}`,
			want: `spec.namespaces.names: "*" selects every namespace except`},
		{name: "all names excluded with a recommender", fields: `"namespaces":{"names":["a"],"exclude":["a"]},"recommender":"night"`,
			want: `spec.namespaces: no namespace is selected`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			problems, warnings := CheckPolicy(sizing(t, tc.fields))
			require.Empty(t, problems)
			require.Len(t, warnings, 1)
			require.True(t, strings.HasPrefix(warnings[0], tc.want), warnings[0])
			require.LessOrEqual(t, len(warnings[0]), 256, "clients show no more")
		})
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
	for _, tc := range []struct {
		name   string
		fields string
		want   fleet.Sharing
	}{
		{name: "no sharing", want: fleet.Sharing{}},
		{name: "defaults", fields: `"sharing":{}`, want: fleet.Sharing{Kinds: cpu}},
		{name: "mode Off", fields: `"sharing":{"mode":"Off"}`, want: fleet.Sharing{Kinds: cpu}},
		{name: "mode DryRun", fields: `"sharing":{"mode":"DryRun"}`, want: fleet.Sharing{Mode: fleet.SharingDryRun, Kinds: cpu}},
		{name: "evictions with rollouts in place", fields: `"sharing":{"mode":"On","evict":true},"rollout":{"mode":"Auto"}`,
			want: fleet.Sharing{Mode: fleet.SharingOn, Kinds: cpu}}, // in place only
		{name: "evictions in dry run", fields: `"sharing":{"mode":"DryRun","evict":true},"rollout":{"mode":"Auto"}`,
			want: fleet.Sharing{Mode: fleet.SharingDryRun, Kinds: cpu, Evict: true}},
		{name: "all fields for memory",
			fields: `"rollout":{"mode":"Auto","method":"InPlaceOrRecreate"},"sharing":{"mode":"On","resources":["memory"],` +
				`"evict":true,"cpuLimit":"NodeAllocatable","nodeAutoscaler":"Accept"}`,
			want: fleet.Sharing{
				Mode: fleet.SharingOn, Kinds: memory, Evict: true, CPULimit: sharing.NodeLimit, AcceptsNodeAutoscaler: true}},
		{name: "CPU and memory",
			fields: `"sharing":{"mode":"On","resources":["memory","cpu"],"evict":false,"cpuLimit":"Remove","nodeAutoscaler":"DryRun"}`,
			want: fleet.Sharing{
				Mode: fleet.SharingOn, Kinds: [resources.Kinds]bool{true, true}, CPULimit: sharing.RemoveLimit}},
		{name: "kept CPU limit", fields: `"sharing":{"cpuLimit":"Keep"}`, want: fleet.Sharing{Kinds: cpu, CPULimit: sharing.KeepLimit}},
		{name: "maximum eviction ranking", fields: `"sharing":{"maxEvictionRanking":"high","userVPAs":"Override"}`,
			want: fleet.Sharing{Kinds: cpu, MaxRank: new(sharing.High)}},
		{name: "restricted user VPAs", fields: `"sharing":{"mode":"On","userVPAs":"Restrict"}`,
			want: fleet.Sharing{Mode: fleet.SharingOn, Kinds: cpu, RestrictsUserVPAs: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Policy(sizing(t, tc.fields)).Sharing)
		})
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
