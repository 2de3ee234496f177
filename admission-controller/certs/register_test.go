package certs

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

func config() Config {
	return Config{Service: "vpa-webhook", Namespace: "kube-system", TimeoutSeconds: 30}
}

type namespaces []string

func (n namespaces) Namespaces() []string { return n }

var served = namespaces{"a", "kube-system", "shop"}

func registered(t *testing.T, client *fake.Clientset) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	got, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), ConfigurationName, metav1.GetOptions{})
	require.NoError(t, err)
	return got
}

func written(t *testing.T, client *fake.Clientset, c Config, cas string) *admissionv1.MutatingWebhookConfiguration {
	t.Helper()
	r := Registrar{Client: client.AdmissionregistrationV1(), Config: c, Served: served}
	_, err := r.Apply(context.Background(), []byte(cas), jan1)
	require.NoError(t, err)
	return registered(t, client)
}

func TestRegistrar_RegistersPodsVPAsAndPolicies(t *testing.T) {
	got := written(t, fake.NewClientset(), config(), "the CA")
	require.Len(t, got.Webhooks, 1)
	hook := got.Webhooks[0]
	require.Equal(t, "vpa.k8s.io", hook.Name)
	require.Equal(t, []string{"v1"}, hook.AdmissionReviewVersions)
	require.Equal(t, admissionv1.Ignore, *hook.FailurePolicy)
	require.Equal(t, admissionv1.SideEffectClassNone, *hook.SideEffects)
	require.Equal(t, int32(30), *hook.TimeoutSeconds)
	require.Equal(t, "the CA", string(hook.ClientConfig.CABundle))
	require.Equal(t, &admissionv1.ServiceReference{Namespace: "kube-system", Name: "vpa-webhook"}, hook.ClientConfig.Service)
	require.Nil(t, hook.ClientConfig.URL)
	require.Nil(t, hook.NamespaceSelector, "the API server makes an empty one of it, which selects all")
	require.Equal(t, []admissionv1.RuleWithOperations{
		{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}},
		{Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{"autoscaling.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"verticalpodautoscalers"}}},
		{Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{"loadline.dev"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"sizingpolicies"}}},
	}, hook.Rules)
}

// A policy is cluster-scoped, so no namespace selector excludes it. Users must be able to pause a
// policy while the webhook is down.
func TestRegistrar_IgnoresFailuresForPolicies(t *testing.T) {
	for _, fail := range []bool{false, true} {
		c := config()
		c.Fail = fail
		asked := 0
		for _, hook := range written(t, fake.NewClientset(), c, "CA").Webhooks {
			for _, rule := range hook.Rules {
				if slices.Contains(rule.Resources, "sizingpolicies") {
					asked++
					require.Equal(t, admissionv1.Ignore, *hook.FailurePolicy)
				}
			}
		}
		require.Equal(t, 1, asked)
	}
}

func TestRegistrar_IsIdempotentAndDeletesNothing(t *testing.T) {
	client := fake.NewClientset(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName, Labels: map[string]string{"mine": "kept"}},
		Webhooks:   []admissionv1.MutatingWebhook{{Name: "other.example.com"}},
	})
	first := written(t, client, config(), "CA 1")
	second := written(t, client, config(), "CA 1")
	require.Equal(t, first.Webhooks, second.Webhooks)
	third := written(t, client, config(), "CA 2")
	require.Equal(t, "kept", third.Labels["mine"])
	require.Len(t, third.Webhooks, 2)
	for _, hook := range third.Webhooks {
		if hook.Name == WebhookName {
			require.Equal(t, "CA 2", string(hook.ClientConfig.CABundle))
		}
	}
	for _, action := range client.Actions() {
		require.NotEqual(t, "delete", action.GetVerb())
		require.NotEqual(t, "create", action.GetVerb())
	}
}

func TestRegistrar_SkipsUnchangedRegistration(t *testing.T) {
	client, configurations, writes := fake.NewClientset(), admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), 0
	client.PrependReactor("patch", configurations.Resource, func(action ktesting.Action) (bool, runtime.Object, error) {
		_, object, err := ktesting.ObjectReaction(client.Tracker())(action)
		require.NoError(t, err)
		writes++
		object.(*admissionv1.MutatingWebhookConfiguration).ResourceVersion = strconv.Itoa(writes)
		return true, object, client.Tracker().Update(configurations, object, "")
	})
	ca := must(t, jan1).ca
	r := Registrar{Client: client.AdmissionregistrationV1(), Config: config(), Served: namespaces{"shop"}}
	r.Config.Fail = true
	apply := func(after time.Duration, cas []byte) []byte {
		trusted, err := r.Apply(t.Context(), cas, jan1.Add(after))
		require.NoError(t, err)
		return trusted
	}
	first := apply(0, ca)
	require.Equal(t, first, apply(time.Minute, ca))
	require.Equal(t, 1, writes)

	r.Served = namespaces{"shop", "team"}
	apply(2*time.Minute, ca)
	require.Equal(t, 2, writes, "another namespace")
	apply(3*time.Minute, must(t, jan1.Add(time.Minute)).ca)
	require.Equal(t, 3, writes, "another CA")
	apply(4*time.Minute, ca)
	require.Equal(t, 4, writes, "the former CA first again")
	apply(trustGrace, ca)
	require.Equal(t, 5, writes, "noted again before its time is over")

	damaged := registered(t, client)
	damaged.ResourceVersion, damaged.Webhooks = "9", damaged.Webhooks[:1]
	require.NoError(t, client.Tracker().Update(configurations, damaged, ""))
	apply(trustGrace+time.Minute, ca)
	require.Equal(t, 6, writes)
	require.Len(t, registered(t, client).Webhooks, 2)
	require.NoError(t, client.Tracker().Delete(configurations, "", ConfigurationName))
	apply(trustGrace+2*time.Minute, ca)
	require.Len(t, registered(t, client).Webhooks, 2)
}

// Operators may restrict the webhook with selectors in the registered object.
func TestRegistrar_KeepsForeignSelectors(t *testing.T) {
	theirs := metav1.LabelSelector{MatchLabels: map[string]string{"size": "auto"}}
	client := fake.NewClientset(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
		Webhooks:   []admissionv1.MutatingWebhook{{Name: WebhookName, NamespaceSelector: &theirs, ObjectSelector: &theirs}},
	})
	for range 2 {
		hook := written(t, client, config(), "CA").Webhooks[0]
		require.Equal(t, &theirs, hook.NamespaceSelector)
		require.Equal(t, &theirs, hook.ObjectSelector)
		require.NotEmpty(t, hook.Rules)
	}
	ignoring := config()
	ignoring.IgnoredNamespaces = []string{"a"}
	hook := written(t, client, ignoring, "CA").Webhooks[0]
	require.Empty(t, hook.NamespaceSelector.MatchLabels)
	require.Len(t, hook.NamespaceSelector.MatchExpressions, 1)
	require.Equal(t, &theirs, hook.ObjectSelector)
}

func TestRegistrar_UsesURLInsteadOfService(t *testing.T) {
	c := config()
	c.URL, c.Fail = "https://127.0.0.1:9443", true
	hook := written(t, fake.NewClientset(), c, "CA").Webhooks[0]
	require.Equal(t, "https://127.0.0.1:9443", *hook.ClientConfig.URL)
	require.Nil(t, hook.ClientConfig.Service)
	require.Equal(t, admissionv1.Fail, *hook.FailurePolicy)
}

func TestRegistrar_FailurePolicyFailExemptsOwnNamespace(t *testing.T) {
	c := config()
	c.Fail, c.IgnoredNamespaces = true, []string{"a"}
	selected := func(hook admissionv1.MutatingWebhook, name string) bool {
		selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
		require.NoError(t, err)
		return selector.Matches(labels.Set{"kubernetes.io/metadata.name": name})
	}
	client := fake.NewClientset()
	policies := func() map[string][]admissionv1.FailurePolicyType {
		got := map[string][]admissionv1.FailurePolicyType{}
		for _, hook := range registered(t, client).Webhooks {
			for _, name := range []string{"a", "kube-system", "shop"} {
				if selected(hook, name) {
					got[name] = append(got[name], *hook.FailurePolicy)
				}
			}
		}
		return got
	}
	written(t, client, c, "CA")
	require.Equal(t, map[string][]admissionv1.FailurePolicyType{"kube-system": {admissionv1.Ignore}, "shop": {admissionv1.Fail}}, policies())
	c.Fail = false
	written(t, client, c, "CA")
	require.Equal(t, map[string][]admissionv1.FailurePolicyType{"kube-system": {admissionv1.Ignore}, "shop": {admissionv1.Ignore}}, policies(), "once each")
}

// Network and storage drivers run in namespaces of their own. If their pods were refused while the
// webhook is down, it could never start again.
func TestRegistrar_FailurePolicyFailOnlyForServedNamespaces(t *testing.T) {
	c, client := config(), fake.NewClientset()
	c.Fail = true
	r := Registrar{Client: client.AdmissionregistrationV1(), Config: c, Served: namespaces{}}
	policies := func() map[string]admissionv1.FailurePolicyType {
		require.True(t, r.Stale() || len(r.Served.Namespaces()) == 0, "it must be registered again")
		_, err := r.Apply(t.Context(), []byte("CA"), jan1)
		require.NoError(t, err)
		require.False(t, r.Stale())
		got := map[string]admissionv1.FailurePolicyType{}
		for _, hook := range registered(t, client).Webhooks {
			selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
			require.NoError(t, err)
			for _, name := range []string{"calico-system", "kube-system", "shop"} {
				if selector.Matches(labels.Set{"kubernetes.io/metadata.name": name}) {
					require.Empty(t, got[name], "asked once")
					got[name] = *hook.FailurePolicy
				}
			}
		}
		return got
	}
	const ignore, fail = admissionv1.Ignore, admissionv1.Fail
	require.Equal(t, map[string]admissionv1.FailurePolicyType{"calico-system": ignore, "kube-system": ignore, "shop": ignore}, policies())
	r.Served = namespaces{"kube-system", "shop"}
	require.Equal(t, map[string]admissionv1.FailurePolicyType{"calico-system": ignore, "kube-system": ignore, "shop": fail}, policies())
	r.Served = namespaces{"kube-system"}
	require.Equal(t, map[string]admissionv1.FailurePolicyType{"calico-system": ignore, "kube-system": ignore, "shop": ignore}, policies())
	r.Config.Fail, r.Served = false, namespaces(nil)
	require.False(t, r.Stale(), "nothing is refused")
}

func TestRegistrar_SelectsChosenNamespaces(t *testing.T) {
	ignoring := config()
	ignoring.IgnoredNamespaces = []string{"a", "b"}
	got := written(t, fake.NewClientset(), ignoring, "CA").Webhooks[0].NamespaceSelector.MatchExpressions
	require.Equal(t, []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a", "b"}}}, got)

	single := config()
	single.OnlyNamespace = "team"
	got = written(t, fake.NewClientset(), single, "CA").Webhooks[0].NamespaceSelector.MatchExpressions
	require.Equal(t, []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"team"}}}, got)
}

func TestParseLabels(t *testing.T) {
	got, err := ParseLabels("a:1, b:2")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, got)
	got, err = ParseLabels("")
	require.NoError(t, err)
	require.Empty(t, got)
	for _, bad := range []string{"a", "a:1,", ":1"} {
		_, err := ParseLabels(bad)
		require.ErrorContains(t, err, "write key:value", bad)
	}
}
