package programs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

func TestInstallation_QuotesSelectors(t *testing.T) {
	d := plugintest.ManifestDeployments(t)[1]
	d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}}
	require.Equal(t, "kubectl -n kube-system get pods -l 'app in (a,b)'", FindInstallation("updater", "kube-system", []appsv1.Deployment{*d}).PodsCommand())
}

func TestFindInstallation_ByLabelOrImage(t *testing.T) {
	of := func(name, image string, labels map[string]string) appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
		d.Spec.Template.Labels = labels
		return *d
	}
	app, component := map[string]string{"app": "vpa-updater"}, map[string]string{"app.kubernetes.io/component": "updater"}
	for _, tc := range []struct {
		name  string
		there []appsv1.Deployment
		want  string
	}{
		{name: "label of the manifests", there: []appsv1.Deployment{of("a", "mirror/a:1", nil), of("b", "mirror/b:1", app)}, want: "b"},
		{name: "label of the chart", there: []appsv1.Deployment{of("a", "mirror/a:1", nil), of("b", "mirror/b:1", component)}, want: "b"},
		{name: "image before label",
			there: []appsv1.Deployment{of("a", "images/updater:1", component), of("b", "mirror/vpa-updater:1", nil)}, want: "b"},
		{name: "image of another program", there: []appsv1.Deployment{of("a", "loadline-recommender:1", nil)}},
		{name: "image and label", there: []appsv1.Deployment{of("a", "loadline-updater:1", nil), of("b", "loadline-updater:1", app)},
			want: "b"},
		{name: "first by name", there: []appsv1.Deployment{of("b", "loadline-updater:1", app), of("a", "loadline-updater:1", app),
			of("c", "loadline-updater:1", app)}, want: "a"},
		{name: "none", there: []appsv1.Deployment{of("a", "mirror/a:1", nil)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := FindInstallation("updater", "kube-system", tc.there)
			if tc.want == "" {
				require.Nil(t, p.Deployment)
				return
			}
			require.Equal(t, tc.want, p.Deployment.Name)
		})
	}
	d := of("a", "mesh/proxy:1", app)
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "vpa-updater", Image: "mirror/u:1", Args: []string{"--leader-elect", "--leader-elect-resource-name=x"}})
	p := FindInstallation("updater", "kube-system", []appsv1.Deployment{d})
	require.Equal(t, "kube-system/x", p.Lease.String(), "not the sidecar's")
}

// Without flags, Leases are in kube-system, but the heartbeat is in the namespace of NAMESPACE.
func TestInstallation_LeasesInOtherNamespaces(t *testing.T) {
	all := plugintest.ManifestDeployments(t)
	all[1].Spec.Template.Spec.Containers[0].Args = nil
	for i, want := range []string{"kube-system/vpa-recommender-lease true", "kube-system/vpa-updater false", "sizing/vpa-admission-controller false"} {
		d := all[i]
		d.Namespace = "sizing"
		p := FindInstallation(Names[i], d.Namespace, []appsv1.Deployment{*d})
		require.Equal(t, want, fmt.Sprint(p.Lease, " ", p.LeaderElection))
		d.Spec.Template.Spec.Containers[0].Env = nil
		require.Equal(t, "kube-system", FindInstallation(Names[i], d.Namespace, []appsv1.Deployment{*d}).Lease.Namespace)
		require.Equal(t, "sizing", FindInstallation(Names[i], "sizing", nil).Lease.Namespace)
	}
}

func TestLeaders_Port(t *testing.T) {
	for _, tc := range []struct{ name, flag, want string }{
		{name: "default port", flag: "--v=4", want: "8943"},
		{name: "port of all addresses", flag: "--address=:9943", want: "9943"},
		{name: "port of an IPv6 address", flag: "--address=[::1]:80", want: "80"},
		{name: "invalid address", flag: "--address=wrong", want: "8943"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := plugintest.ManifestDeployments(t)[1]
			d.Spec.Template.Spec.Containers[0].Args = []string{tc.flag}
			_, port, err := leaders(t.Context(), kubefake.NewClientset(d), "updater", "kube-system", plugintest.Now())
			require.NoError(t, err)
			require.Equal(t, tc.want, port)
		})
	}
}
