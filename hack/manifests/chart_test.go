package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const fullname = release + "-vertical-pod-autoscaler"

// program returns the pod spec of a program, from the chart or the manifests.
func program(t *testing.T, all objects, name string) corev1.PodSpec {
	t.Helper()
	for _, deployment := range []string{"vpa-" + name, fullname + "-" + name} {
		if o := all.of("Deployment")[deployment]; o != nil {
			return into[appsv1.Deployment](t, o).Spec.Template.Spec
		}
	}
	t.Fatalf("no Deployment of the %s", name)
	return corev1.PodSpec{}
}

func TestChart_PassesHelmLint(t *testing.T) {
	for _, m := range lint.RunAll(filepath.Join(root, chartFolder), nil, "kube-system").Messages {
		require.Less(t, m.Severity, support.WarningSev, m.Error())
	}
}

func TestChart_PodsMatchManifests(t *testing.T) {
	base, ours := kustomized(t, "deploy/base"), chart(t).objects
	for _, name := range []string{"recommender", "updater", "admission-controller"} {
		want, got := program(t, base, name), program(t, ours, name)
		require.Equal(t, softLimit(want.Containers[0]), softLimit(got.Containers[0]))
		require.Subset(t, got.Containers[0].Args, want.Containers[0].Args, name)
		for _, pod := range []*corev1.PodSpec{&want, &got} {
			pod.ServiceAccountName, pod.Containers[0].Image, pod.Containers[0].Args, pod.Containers[0].Env = "", "", nil, nil
			pod.TopologySpreadConstraints[0].LabelSelector = nil // another label scheme
			pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector = nil
		}
		require.Equal(t, want, got, name)
		replicas := func(all objects, deployment string) *int32 {
			return into[appsv1.Deployment](t, all.of("Deployment")[deployment]).Spec.Replicas
		}
		require.Equal(t, replicas(base, "vpa-"+name), replicas(ours, fullname+"-"+name))
	}
}

// The arguments of chart and manifests may differ only in chartOnly. Other additional arguments of
// the chart must equal the defaults of the program.
func TestChart_ArgumentsMatchManifests(t *testing.T) {
	base, ours := kustomized(t, "deploy/base"), chart(t).objects
	for _, name := range []string{"recommender", "updater", "admission-controller"} {
		t.Run(name, func(t *testing.T) {
			defaults := flagDefaults(t, name)
			want, got := arguments(program(t, base, name), defaults), arguments(program(t, ours, name), defaults)
			maps.DeleteFunc(got, func(flag, _ string) bool { return chartOnly[flag] })
			require.Equal(t, want, got)
		})
	}
}

// chartOnly are arguments with object names of the chart, the verbosity, and the handling of the
// certificate in the chart's own Secret.
var chartOnly = map[string]bool{"leader-elect-resource-name": true, "webhook-service": true, "tls-secret": true, "reload-cert": true, "v": true}

func arguments(pod corev1.PodSpec, defaults map[string]string) map[string]string {
	set := map[string]string{}
	for _, argument := range pod.Containers[0].Args {
		flag, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		set[flag] = value
	}
	maps.DeleteFunc(set, func(flag, value string) bool { return value == defaults[flag] })
	return set
}

func flagDefaults(t *testing.T, program string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, program, "testdata/flags.golden"))
	require.NoError(t, err)
	defaults := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 {
			defaults[fields[0]] = strings.Trim(fields[2], `"`)
		}
	}
	return defaults
}

// The plugin's tests use a copy of the rendered chart to find the programs.
func TestChart_MatchesTestdataOfPlugin(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "kubectl-loadline/doctor/testdata/chart.yaml"))
	require.NoError(t, err)
	ours, file := chart(t).objects.of("Deployment"), decode(t, text)
	require.Len(t, file, len(ours))
	for _, o := range file {
		want, got := into[appsv1.Deployment](t, o).Spec, into[appsv1.Deployment](t, ours[o.GetName()]).Spec
		require.Equal(t, want.Selector, got.Selector)
		require.Equal(t, want.Template.Labels, got.Template.Labels)
		require.Equal(t, want.Template.Spec.ServiceAccountName, got.Template.Spec.ServiceAccountName)
		require.Len(t, got.Template.Spec.Containers, 1)
		for i, c := range got.Template.Spec.Containers {
			w := want.Template.Spec.Containers[i]
			image, _, _ := strings.Cut(w.Image, ":") // the tag is that of a release
			require.True(t, strings.HasPrefix(c.Image, image+":"), c.Image)
			require.Equal(t, w.Name, c.Name)
			require.Equal(t, w.Args, c.Args)
			require.Subset(t, c.Env, w.Env)
		}
	}
}

func TestChart_CertificateSources(t *testing.T) {
	mounts := func(t *testing.T, all objects) string {
		pod := program(t, all, "admission-controller")
		if len(pod.Volumes) == 0 {
			require.Empty(t, pod.Containers[0].VolumeMounts)
			return ""
		}
		require.Len(t, pod.Volumes, 1)
		require.Equal(t, "/etc/tls-certs", pod.Containers[0].VolumeMounts[0].MountPath)
		secret := pod.Volumes[0].Secret
		text := secret.SecretName
		for _, item := range secret.Items {
			text += " " + item.Key + "=" + item.Path
		}
		return text
	}
	const selfIssued, waits, manual = "issues and renews the certificate", "start when Secret ", "You register the webhook yourself"
	const files = "vpa-tls-certs ca=caCert.pem cert=serverCert.pem key=serverKey.pem"
	for _, tc := range []struct {
		name       string
		values     string
		mount      string
		registers  bool
		kinds      []string
		noteHas    []string
		noteHasNot []string
	}{
		{name: "defaults", values: "{}", registers: true, noteHas: []string{selfIssued}, noteHasNot: []string{waits, "Without effect"}},
		{
			name: "values of the upstream chart", values: upstreamValues(t), registers: true,
			noteHas: []string{selfIssued, "admissionController.volumes (tls-certs)"},
		},
		{
			name: "cert-manager issuer", values: issuerValues,
			mount: "vpa-tls-certs ca.crt=caCert.pem tls.crt=serverCert.pem tls.key=serverKey.pem", registers: true,
			kinds: []string{"Certificate"}, noteHasNot: []string{selfIssued, waits},
		},
		{
			name: "self-signed issuer of cert-manager", values: selfSigned,
			mount: "vpa-tls-certs ca.crt=caCert.pem tls.crt=serverCert.pem tls.key=serverKey.pem", registers: true,
			kinds: []string{"Certificate", "Issuer"}, noteHasNot: []string{selfIssued, waits},
		},
		{
			name: "certificate in the values", values: ownCertificate, mount: files, registers: true, kinds: []string{"Secret"},
			noteHasNot: []string{selfIssued, waits},
		},
		{
			name: "existing Secret", values: ownSecret, mount: files, registers: true, noteHas: []string{waits + "vpa-tls-certs"},
			noteHasNot: []string{selfIssued, manual},
		},
		{
			name: "no certificate source", values: "admissionController: {certGen: {enabled: false}}", mount: files,
			noteHas: []string{waits + "vpa-tls-certs", manual}, noteHasNot: []string{selfIssued},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := chart(t, tc.values)
			require.Equal(t, tc.mount, mounts(t, r.objects))
			require.Equal(t, tc.registers, r.objects.of("MutatingWebhookConfiguration")["vpa-webhook-config"] != nil)
			arg := "--register-webhook=false"
			if tc.registers {
				arg = "--register-webhook=true"
			}
			require.Contains(t, program(t, r.objects, "admission-controller").Containers[0].Args, arg)
			for _, kind := range []string{"Certificate", "Issuer", "Secret"} {
				require.Equal(t, strings.Contains(strings.Join(tc.kinds, " "), kind), len(r.objects.of(kind)) > 0, kind)
			}
			for _, part := range tc.noteHas {
				require.Contains(t, r.notes, part)
			}
			for _, part := range tc.noteHasNot {
				require.NotContains(t, r.notes, part)
			}
			require.Empty(t, r.objects.of("Job"))
		})
	}
}

func TestChart_CertificateMatchesService(t *testing.T) {
	all := chart(t, issuerValues, "admissionController: {service: {name: hook}, tls: {secretName: hook-tls}}").objects
	spec := all.of("Certificate")[fullname+"-webhook-cert"].Object["spec"].(map[string]any)
	require.Equal(t, "hook-tls", spec["secretName"])
	require.Contains(t, spec["dnsNames"], "hook.kube-system.svc")
	require.NotNil(t, all.of("Service")["hook"])
	require.Contains(t, program(t, all, "admission-controller").Containers[0].Args, "--webhook-service=hook")
}

func TestChart_RejectsContradictoryValues(t *testing.T) {
	for _, tc := range []struct{ name, values, want string }{
		{name: "cert-manager with certGen", values: "admissionController: {certManager: {enabled: true, issuerRef: {name: x}}}",
			want: "certGen.enabled=false"},
		{name: "own Secret with certGen", values: "admissionController: {registerWebhook: true}", want: "certGen.enabled=false"},
		{name: "cert-manager without an issuer", values: "admissionController: {certGen: {enabled: false}, certManager: {enabled: true}}",
			want: "issuerRef.name"},
		{name: "cert-manager with own certificate",
			values: "admissionController: {certGen: {enabled: false}, tls: {create: true}, certManager: {enabled: true, issuerRef: " +
				"{name: x}}}",
			want: "tls.create=false"},
		{name: "incomplete certificate", values: "admissionController: {tls: {create: true, caCert: a, cert: b}}",
			want: "caCert, cert and key"},
		{name: "failure policy Fail with an object selector",
			values: "admissionController: {mutatingWebhookConfiguration: {failurePolicy: Fail, objectSelector: {matchLabels: {a: b}}}}",
			want:   "failurePolicy Fail"},
		{name: "maxUnavailable next to the default minAvailable", values: "recommender: {podDisruptionBudget: {maxUnavailable: 1}}",
			want: "recommender.podDisruptionBudget"},
		{name: "disruption budget without a bound", values: "updater: {podDisruptionBudget: {minAvailable: null}}",
			want: "updater.podDisruptionBudget has neither"},
		{name: "Service without port 443", values: "admissionController: {service: {ports: [{port: 8443, targetPort: 8000}]}}",
			want: "admissionController.service.ports has no port 443"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Contains(t, chartRefuses(t, tc.values), tc.want)
		})
	}
	require.Contains(t, chart(t, "admissionController: {enabled: false, registerWebhook: true}").notes, "use-admission-controller-status", "nothing of it is installed")
}

// A PodDisruptionBudget must not block node drains, except where values request it.
func TestChart_BudgetsAllowNodeDrain(t *testing.T) {
	for _, tc := range []struct{ name, values, want string }{
		{name: "defaults", values: "{}", want: "1 <nil>"},
		{name: "one replica", values: "recommender: {replicas: 1}", want: "none"},
		{name: "default replicas", values: "recommender: {replicas: null}", want: "none"},
		{name: "minAvailable of zero", values: "recommender: {podDisruptionBudget: {minAvailable: 0}}", want: "0 <nil>"},
		{name: "maxUnavailable of one", values: "recommender: {podDisruptionBudget: {minAvailable: 0, maxUnavailable: 1}}",
			want: "<nil> 1"},
		{name: "maxUnavailable of zero", values: "recommender: {podDisruptionBudget: {minAvailable: null, maxUnavailable: 0}}",
			want: "<nil> 0"},
		{name: "disabled", values: "recommender: {podDisruptionBudget: {enabled: false}}", want: "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			budget, got := chart(t, tc.values).objects.of("PodDisruptionBudget")[fullname+"-recommender"], "none"
			if budget != nil {
				spec := into[policyv1.PodDisruptionBudget](t, budget).Spec
				got = fmt.Sprint(spec.MinAvailable, " ", spec.MaxUnavailable)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// The status of the cluster-autoscaler is in kube-system, independent of the release namespace.
func TestChart_UpdaterReadsNodeAutoscalerStatusInKubeSystem(t *testing.T) {
	elsewhere := renderedFrom(t, filepath.Join(root, chartFolder), "loadline", nil).objects
	for _, kind := range []string{"Role", "RoleBinding"} {
		require.Equal(t, "kube-system", elsewhere.of(kind)[fullname+"-updater"].GetNamespace(), kind)
	}
	binding := into[rbacv1.RoleBinding](t, elsewhere.of("RoleBinding")[fullname+"-updater"])
	require.Equal(t, "loadline", binding.Subjects[0].Namespace)
}

// Selectors are set before the program adds its rules. Without rules the API server does not call
// the webhook.
func TestChart_WebhookKeepsSelectors(t *testing.T) {
	plain := into[admissionv1.MutatingWebhookConfiguration](t, chart(t).objects.of("MutatingWebhookConfiguration")["vpa-webhook-config"])
	require.Empty(t, plain.Webhooks, "to apply it again must take none away")
	selecting := into[admissionv1.MutatingWebhookConfiguration](t, chart(t, selectors).objects.of("MutatingWebhookConfiguration")["vpa-webhook-config"])
	require.Len(t, selecting.Webhooks, 1)
	hook := selecting.Webhooks[0]
	require.Equal(t, "vpa.k8s.io", hook.Name)
	require.Equal(t, map[string]string{"size": "auto"}, hook.ObjectSelector.MatchLabels)
	require.Equal(t, map[string]string{"size": "auto"}, hook.NamespaceSelector.MatchLabels)
	require.Equal(t, admissionv1.Ignore, *hook.FailurePolicy)
	require.Empty(t, hook.Rules)
	require.Empty(t, hook.ClientConfig.CABundle)
	fails := program(t, chart(t, "admissionController: {mutatingWebhookConfiguration: {failurePolicy: Fail, timeoutSeconds: 9}}").objects, "admission-controller").Containers[0].Args
	require.Subset(t, fails, []string{"--webhook-failure-policy-fail=true", "--webhook-timeout-seconds=9"})
}

func TestChart_GOMEMLIMITFollowsMemoryLimit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit string
		want  int64
	}{
		{name: "mebibytes", limit: "1000Mi", want: 943718400},
		{name: "gibibytes", limit: "2Gi", want: 1932735283},
		{name: "fraction", limit: "1.5Gi", want: 1449551462},
		{name: "megabytes", limit: "500M", want: 450000000},
		{name: "number", limit: "1048576000", want: 943718400},
		{name: "number as text", limit: `"1048576000"`, want: 943718400},
		{name: "number with an exponent", limit: "1e9", want: 900000000},
		{name: "text with an exponent", limit: `"1e9"`},
		{name: "no limit", limit: "null"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := program(t, chart(t, "recommender: {resources: {limits: {memory: "+tc.limit+"}}}").objects, "recommender")
			require.Equal(t, tc.want, softLimit(pod.Containers[0]))
		})
	}
	own := program(t, chart(t, "recommender: {extraEnv: [{name: GOMEMLIMIT, value: 700MiB}]}").objects, "recommender").Containers[0]
	require.Equal(t, int64(700<<20), softLimit(own))
	require.Len(t, own.Env, 2, "the variable is there once")
	require.Empty(t, program(t, chart(t, "recommender: {resources: {}}").objects, "recommender").Containers[0].Resources.Limits)
}

// Some providers allow system priority classes only in kube-system.
func TestChart_PriorityClassDependsOnNamespace(t *testing.T) {
	elsewhere := renderedFrom(t, filepath.Join(root, chartFolder), "loadline", nil).objects
	require.Empty(t, program(t, elsewhere, "updater").PriorityClassName)
	require.Equal(t, "system-cluster-critical", program(t, chart(t).objects, "updater").PriorityClassName)
	require.Equal(t, "high", program(t, chart(t, "updater: {priorityClassName: high}").objects, "updater").PriorityClassName)
}

func TestChart_CRDsAreTemplates(t *testing.T) {
	ours := chart(t).objects.of("CustomResourceDefinition")
	for name, want := range kustomized(t, "deploy/crds").of("CustomResourceDefinition") {
		require.Equal(t, "keep", ours[name].GetAnnotations()["helm.sh/resource-policy"], name)
		unstructured.RemoveNestedField(ours[name].Object, "metadata", "annotations", "helm.sh/resource-policy")
		require.Equal(t, want.Object, ours[name].Object, name)
	}
	require.Len(t, ours, 4)
	gone := chart(t, "crds: {keep: false}").objects.of("CustomResourceDefinition")
	require.NotContains(t, gone["verticalpodautoscalers.autoscaling.k8s.io"].GetAnnotations(), "helm.sh/resource-policy")
	require.Empty(t, chart(t, "crds: {enabled: false}").objects.of("CustomResourceDefinition"))
}

func TestChart_NotesWarnAboutForeignImages(t *testing.T) {
	require.Contains(t, chart(t, upstreamValues(t)).notes, "WARNING: updater.image.repository is registry.k8s.io/autoscaling/vpa-updater")
	require.NotContains(t, chart(t).notes, "WARNING")
	require.Contains(t, chart(t).notes, "Deployment "+fullname+"-updater")
	require.Contains(t, chart(t, onlyRecommend).notes, "updater: not installed")
}

// Compares overlays with their descriptions in deploy/overlays.
func TestOverlays_MatchDescriptions(t *testing.T) {
	full, available := kustomized(t, "deploy/overlays/full"), kustomized(t, "deploy/overlays/high-availability")
	require.Len(t, full.of("Deployment"), 3)
	require.Equal(t, len(full), len(available))
	require.Equal(t, int32(3), *into[appsv1.Deployment](t, available.of("Deployment")["vpa-admission-controller"]).Spec.Replicas)
	for _, name := range []string{"recommender", "updater", "admission-controller"} {
		for _, spread := range program(t, available, name).TopologySpreadConstraints {
			require.Equal(t, corev1.DoNotSchedule, spread.WhenUnsatisfiable, spread.TopologyKey)
			require.Equal(t, corev1.NodeInclusionPolicyHonor, *spread.NodeTaintsPolicy, "a node that a taint closes would keep pods waiting")
		}
	}
	only := kustomized(t, "deploy/overlays/recommend-only")
	require.Len(t, only.of("Deployment"), 1)
	require.Len(t, only.of("ServiceAccount"), 1)
	require.Empty(t, only.of("MutatingWebhookConfiguration"))
	require.Len(t, only.of("CustomResourceDefinition"), 4)
	history := program(t, kustomized(t, "deploy/overlays/prometheus-history"), "recommender").Containers[0].Args
	require.Subset(t, history, []string{"--leader-elect=true", "--storage=prometheus"})
	large := program(t, withComponent(t, "deploy/overlays/prometheus-history", "deploy/large"), "recommender").Containers[0].Args
	require.Subset(t, large, history, "the component for large clusters takes none away")
	require.Contains(t, large, "--kube-api-qps=150")
}

func TestOverlays_CruiseKube(t *testing.T) {
	all := kustomized(t, "deploy/overlays/cruisekube")
	args := func(name string) []string { return program(t, all, name).Containers[0].Args }
	require.Subset(t, args("recommender"), []string{"--storage=prometheus", "--usage-source=prometheus", "--prometheus-rate-window=1m", "--foreign-annotations"})
	require.Subset(t, args("updater"), []string{"--node-load-taint=dry-run", "--in-place-skip-disruption-budget", "--foreign-annotations"})
	require.Contains(t, args("admission-controller"), "--foreign-annotations")

	text, err := os.ReadFile(filepath.Join(root, "deploy/overlays/cruisekube/policy.yaml"))
	require.NoError(t, err)
	policy := decode(t, text).of("SizingPolicy")["cruisekube"]
	require.NotNil(t, policy)
	recipe, _, _ := unstructured.NestedString(policy.Object, "spec", "recipe")
	require.Equal(t, "cruisekube", recipe)
	mode, _, _ := unstructured.NestedString(policy.Object, "spec", "sharing", "mode")
	require.Equal(t, "On", mode)
}

func TestChart_NetworkPolicies(t *testing.T) {
	require.Empty(t, chart(t).objects.of("NetworkPolicy"))
	open := chart(t, "networkPolicy: {enabled: true}").objects.of("NetworkPolicy")
	require.Len(t, open, 3)
	require.Empty(t, into[networkingv1.NetworkPolicy](t, open[fullname+"-admission-controller"]).Spec.Ingress[1].From, "nobody said who calls")
	all := chart(t, "networkPolicy: {enabled: true, apiServers: [10.0.0.7/32]}").objects
	for name, o := range all.of("NetworkPolicy") {
		policy := into[networkingv1.NetworkPolicy](t, o)
		d := into[appsv1.Deployment](t, all.of("Deployment")[name])
		require.Equal(t, d.Spec.Template.Labels, policy.Spec.PodSelector.MatchLabels)
		var opened []int32
		for _, rule := range policy.Spec.Ingress {
			opened = append(opened, rule.Ports[0].Port.IntVal)
		}
		require.ElementsMatch(t, ports(d), opened, name)
		require.Empty(t, policy.Spec.Ingress[0].From, "probes come from everywhere")
	}
	from := into[networkingv1.NetworkPolicy](t, all.of("NetworkPolicy")[fullname+"-admission-controller"]).Spec.Ingress[1].From
	require.Equal(t, "10.0.0.7/32", from[0].IPBlock.CIDR)
	require.Contains(t, from[1].PodSelector.MatchLabels, "app.kubernetes.io/component", "each replica probes the Service before its heartbeat")
	require.Len(t, from, 2)
}

// Each policy selects its program and allows the ports to which it connects.
func TestNetworkPolicies_EgressManifestsSelectPrograms(t *testing.T) {
	policies, deployments := kustomized(t, "deploy/network-policy-egress").of("NetworkPolicy"), kustomized(t, "deploy").of("Deployment")
	require.Len(t, policies, 3)
	for program, rules := range map[string][][]int32{
		"admission-controller": {{53, 53, 5353, 5353}, {443, 6443}, {8000}},
		"recommender":          {{53, 53, 5353, 5353}, {443, 6443}},
		"updater":              {{53, 53, 5353, 5353}, {443, 6443}},
	} {
		t.Run(program, func(t *testing.T) {
			policy := into[networkingv1.NetworkPolicy](t, policies["vpa-"+program+"-egress"])
			require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
			pods := into[appsv1.Deployment](t, deployments["vpa-"+program]).Spec.Template.Labels
			require.Equal(t, policy.Spec.PodSelector.MatchLabels["app"], pods["app"])
			var open [][]int32
			for i, rule := range policy.Spec.Egress {
				var ports []int32
				for _, p := range rule.Ports {
					ports = append(ports, p.Port.IntVal)
				}
				open = append(open, ports)
				require.Equal(t, i > 0, len(rule.To) > 0, "only DNS is open everywhere")
			}
			require.Equal(t, rules, open)
		})
	}
}

func TestChart_EgressAllowsOnlyDNSAPIServersAndRules(t *testing.T) {
	for _, o := range chart(t, "networkPolicy: {enabled: true}").objects.of("NetworkPolicy") {
		policy := into[networkingv1.NetworkPolicy](t, o)
		require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
	}
	const servers, egress = "apiServers: [10.0.0.7/32]", "enabled: true, apiServerPorts: [16443], rules: [{ports: [{port: 9090, protocol: TCP}]}]"
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for name, test := range map[string]struct {
		values string
		types  []networkingv1.PolicyType
	}{
		"beside ingress":  {values: "{enabled: true, " + servers + ", egress: {" + egress + "}}", types: both},
		"other addresses": {values: "{enabled: true, apiServers: [10.9.9.9/32], egress: {" + servers + ", " + egress + "}}", types: both},
		"alone":           {values: "{egress: {" + servers + ", " + egress + "}}", types: both[1:]},
	} {
		for program, last := range map[string]int32{"admission-controller": 8000, "recommender": 9090, "updater": 9090} {
			t.Run(name+"/"+program, func(t *testing.T) {
				policy := into[networkingv1.NetworkPolicy](t, chart(t, "networkPolicy: "+test.values).objects.of("NetworkPolicy")[fullname+"-"+program])
				require.Equal(t, test.types, policy.Spec.PolicyTypes)
				require.Equal(t, len(test.types) == 2, len(policy.Spec.Ingress) > 0)
				rules := policy.Spec.Egress
				require.Len(t, rules, 3)
				require.Equal(t, int32(53), rules[0].Ports[0].Port.IntVal)
				require.Equal(t, int32(16443), rules[1].Ports[0].Port.IntVal)
				require.Equal(t, "10.0.0.7/32", rules[1].To[0].IPBlock.CIDR)
				require.Len(t, rules[1].To, 1)
				require.Equal(t, last, rules[2].Ports[0].Port.IntVal)
			})
		}
	}
}
