package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// flaws returns violations in the pods of a Deployment: of the restricted pod security level, and
// of the requirements for every program.
func flaws(t *testing.T, d appsv1.Deployment) (all []string) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	pod := d.Spec.Template
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
		all = append(all, result.ForbiddenDetail())
	}
	if len(pod.Spec.TopologySpreadConstraints) != 1 {
		// With several constraints the scheduler does not score nodes that lack the topology of
		// one.
		all = append(all, "not one topology spread")
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		selects := spread.LabelSelector.MatchLabels
		for key, value := range selects {
			if pod.Labels[key] != value {
				all = append(all, "the spread over "+spread.TopologyKey+" counts other pods")
			}
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		all = append(all, "no anti-affinity")
	} else {
		for _, term := range pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			selector, err := metav1.LabelSelectorAsSelector(term.PodAffinityTerm.LabelSelector)
			require.NoError(t, err)
			if !selector.Matches(labels.Set(pod.Labels)) {
				all = append(all, "the anti-affinity avoids other pods")
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		known := flagsOf(t, c.Name)
		for _, arg := range c.Args {
			if name, _, _ := strings.Cut(arg, "="); !slices.Contains(known, name) {
				all = append(all, "the program has no flag "+name)
			}
		}
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			all = append(all, "the root file system can be written")
		}
		if c.LivenessProbe == nil || c.ReadinessProbe == nil {
			all = append(all, "a probe is missing")
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			all = append(all, "no requests")
		}
		if limit := c.Resources.Limits.Cpu(); !limit.IsZero() && limit.Cmp(resource.MustParse("1")) < 0 {
			all = append(all, "a flood of requests throttles the program: the CPU limit is "+limit.String())
		}
		if limit, soft := c.Resources.Limits.Memory().Value(), softLimit(c); soft != limit*9/10 {
			all = append(all, fmt.Sprintf("GOMEMLIMIT is %d, with a memory limit of %d", soft, limit))
		}
	}
	return all
}

func flagsOf(t *testing.T, program string) (names []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/flags.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## "+program+"\n")
	require.True(t, found, program)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, match := range regexp.MustCompile("(?m)^  (?:-v, )?(--[a-z0-9-]+)").FindAllStringSubmatch(section, -1) {
		names = append(names, match[1])
	}
	require.NotEmpty(t, names)
	return names
}

func softLimit(c corev1.Container) int64 {
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		text := e.Value
		if text[len(text)-1] == 'B' { // Go writes MiB, Kubernetes writes Mi
			text = text[:len(text)-1]
		}
		amount, err := resource.ParseQuantity(text)
		if err != nil {
			return -1
		}
		return amount.Value()
	}
	return 0
}

func TestFlaws_DetectsEachFlaw(t *testing.T) {
	no := false
	for _, tc := range []struct {
		name   string
		change func(*corev1.PodSpec)
	}{
		{name: "host network", change: func(p *corev1.PodSpec) { p.HostNetwork = true }},
		{name: "runs as root", change: func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil }},
		{name: "no seccomp profile", change: func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil }},
		{name: "capabilities kept", change: func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities = nil }},
		{name: "may gain privileges", change: func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil }},
		{name: "host path", change: func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
		}},
		{name: "unknown flag", change: func(p *corev1.PodSpec) { p.Containers[0].Args = []string{"--webhook=true"} }},
		{name: "writable root", change: func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.ReadOnlyRootFilesystem = &no }},
		{name: "no liveness", change: func(p *corev1.PodSpec) { p.Containers[0].LivenessProbe = nil }},
		{name: "no readiness", change: func(p *corev1.PodSpec) { p.Containers[0].ReadinessProbe = nil }},
		{name: "no requests", change: func(p *corev1.PodSpec) { p.Containers[0].Resources.Requests = nil }},
		{name: "limit that differs",
			change: func(p *corev1.PodSpec) { p.Containers[0].Resources.Limits["memory"] = resource.MustParse("2Gi") }},
		{name: "low CPU limit", change: func(p *corev1.PodSpec) { p.Containers[0].Resources.Limits["cpu"] = resource.MustParse("200m") }},
		{name: "no GOMEMLIMIT", change: func(p *corev1.PodSpec) { p.Containers[0].Env = nil }},
		{name: "no spread", change: func(p *corev1.PodSpec) { p.TopologySpreadConstraints = nil }},
		{name: "second spread constraint", change: func(p *corev1.PodSpec) {
			p.TopologySpreadConstraints = append(p.TopologySpreadConstraints, p.TopologySpreadConstraints[0])
		}},
		{name: "no anti-affinity", change: func(p *corev1.PodSpec) { p.Affinity = nil }},
		{name: "anti-affinity to other pods", change: func(p *corev1.PodSpec) {
			p.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels["app"] = "other"
		}},
		{name: "spread of other pods",
			change: func(p *corev1.PodSpec) { p.TopologySpreadConstraints[0].LabelSelector.MatchLabels["app"] = "other" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := into[appsv1.Deployment](t, kustomized(t, "deploy/overlays/full").of("Deployment")["vpa-admission-controller"])
			require.Empty(t, flaws(t, d))
			tc.change(&d.Spec.Template.Spec)
			require.NotEmpty(t, flaws(t, d))
		})
	}
}
