package certs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/util/retry"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// Names of the reference VPA.
const (
	ConfigurationName = "vpa-webhook-config"
	WebhookName       = "vpa.k8s.io"
	// OwnWebhookName is the webhook with failure policy Ignore, registered next to one with Fail.
	// It covers the namespace of the program, kube-system, and namespaces without VPAs.
	OwnWebhookName = "own.vpa.k8s.io"

	fieldManager = "vpa-admission-controller"
)

// Config describes the webhook registration.
type Config struct {
	Labels         map[string]string // of the configuration object
	URL            string            // of the webhook, empty: through the Service
	Service        string            // used without URL, on port 443
	Namespace      string            // of the Service
	TimeoutSeconds int32
	// Fail rejects pods while the webhook does not answer. It covers only pods that the webhook may
	// change, and excludes the program's own namespace and kube-system: otherwise neither the
	// program nor the cluster could start again.
	Fail bool

	// OnlyNamespace and IgnoredNamespaces restrict pods and VPAs, not policies. Only one is set.
	OnlyNamespace     string
	IgnoredNamespaces []string
}

// Registrar writes the MutatingWebhookConfiguration. It is used by one goroutine.
type Registrar struct {
	Client client.MutatingWebhookConfigurationsGetter
	Config Config
	Served interface{ Namespaces() []string } // with pods that the webhook may change, sorted

	registered []string // Served namespaces at the last write
	bundle     []byte   // CAs at the last write
	version    string   // resource version at the last write, empty: unknown
}

// Stale reports whether the registration with Fail covers other namespaces than the served ones.
func (r *Registrar) Stale() bool {
	return r.Config.Fail && !slices.Equal(r.Served.Namespaces(), r.registered)
}

// Apply writes the configuration. It returns all trusted CAs (PEM), also those of other replicas.
func (r *Registrar) Apply(ctx context.Context, cas []byte, now time.Time) (trusted []byte, err error) {
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		trusted, err = r.apply(ctx, cas, now)
		return err
	}); err != nil {
		return nil, fmt.Errorf("register the webhook in MutatingWebhookConfiguration %s, which must exist where there is no permission to create it: %w", ConfigurationName, err)
	}
	return trusted, nil
}

func (r *Registrar) apply(ctx context.Context, cas []byte, now time.Time) ([]byte, error) {
	current, err := r.Client.MutatingWebhookConfigurations().Get(ctx, ConfigurationName, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	merged := readTrust(current).with(cas, now)
	annotation, err := merged.encode()
	if err != nil {
		return nil, err
	}
	serving := r.Served.Namespaces()
	if !missing && r.version != "" && r.version == current.ResourceVersion && annotation == current.Annotations[TrustAnnotation] &&
		bytes.Equal(merged.bundle, r.bundle) && slices.Equal(serving, r.registered) {
		return merged.bundle, nil // already up to date
	}
	configuration := r.Config.build(merged.bundle, serving).WithAnnotations(map[string]string{TrustAnnotation: annotation})
	if !missing {
		// Detect concurrent changes of other replicas.
		configuration.WithResourceVersion(current.ResourceVersion)
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	written, err := r.Client.MutatingWebhookConfigurations().Apply(ctx, configuration, options)
	if err != nil {
		return nil, err
	}
	r.registered, r.bundle, r.version = serving, merged.bundle, written.ResourceVersion
	return merged.bundle, nil
}

func readTrust(configuration *admissionv1.MutatingWebhookConfiguration) trust {
	if configuration == nil {
		return trust{}
	}
	t := trust{until: parseTrust(configuration.Annotations[TrustAnnotation])}
	for i := range configuration.Webhooks {
		if hook := &configuration.Webhooks[i]; hook.Name == WebhookName {
			t.bundle = hook.ClientConfig.CABundle
		}
	}
	return t
}

func (c Config) build(cas []byte, serving []string) *apply.MutatingWebhookConfigurationApplyConfiguration {
	configuration := apply.MutatingWebhookConfiguration(ConfigurationName).WithLabels(c.Labels)
	if !c.Fail {
		return configuration.WithWebhooks(c.lenientWebhook(WebhookName, c.namespaces(), cas))
	}
	// Network and storage plugins have their own namespaces, and the webhook cannot start before
	// their pods.
	refused := slices.DeleteFunc(slices.Clone(serving), func(name string) bool { return slices.Contains(c.requiredNamespaces(), name) })
	if len(refused) == 0 {
		return configuration.WithWebhooks(c.lenientWebhook(WebhookName, c.namespaces(), cas))
	}
	return configuration.WithWebhooks(
		c.webhook(WebhookName, admissionv1.Fail, c.namespaces().WithMatchExpressions(namespace(metav1.LabelSelectorOpIn, refused...)), cas),
		c.lenientWebhook(OwnWebhookName, c.namespaces().WithMatchExpressions(namespace(metav1.LabelSelectorOpNotIn, refused...)), cas),
	)
}

// requiredNamespaces returns the namespaces whose pods must always start.
func (c Config) requiredNamespaces() []string {
	if c.Namespace == metav1.NamespaceSystem {
		return []string{c.Namespace}
	}
	return []string{c.Namespace, metav1.NamespaceSystem}
}

// lenientWebhook returns a webhook with failure policy Ignore. Only this one handles policies: they
// have no namespace, so both webhooks would be called, and users must be able to pause a policy
// while the program is down. A cluster without the policy resource ignores the rule.
func (c Config) lenientWebhook(name string, namespaces *metaapply.LabelSelectorApplyConfiguration, cas []byte) *apply.MutatingWebhookApplyConfiguration {
	policies := rule(loadlinev1alpha1.GroupName, loadlinev1alpha1.SchemeGroupVersion.Version, "sizingpolicies", admissionv1.Create, admissionv1.Update)
	return c.webhook(name, admissionv1.Ignore, namespaces, cas).WithRules(policies)
}

func (c Config) webhook(name string, policy admissionv1.FailurePolicyType, namespaces *metaapply.LabelSelectorApplyConfiguration, cas []byte) *apply.MutatingWebhookApplyConfiguration {
	hook := apply.MutatingWebhook().
		WithName(name).
		WithAdmissionReviewVersions("v1").
		WithRules(
			rule("", "v1", "pods", admissionv1.Create),
			rule(vpav1.SchemeGroupVersion.Group, "*", "verticalpodautoscalers", admissionv1.Create, admissionv1.Update),
		).
		WithFailurePolicy(policy).
		WithSideEffects(admissionv1.SideEffectClassNone).
		WithTimeoutSeconds(c.TimeoutSeconds).
		WithClientConfig(c.clientConfig(cas))
	if !c.Fail && len(namespaces.MatchExpressions) == 0 {
		return hook // keeps a namespaceSelector or objectSelector set by others
	}
	return hook.WithNamespaceSelector(namespaces)
}

func rule(group, version, resource string, operations ...admissionv1.OperationType) *apply.RuleWithOperationsApplyConfiguration {
	return apply.RuleWithOperations().
		WithOperations(operations...).
		WithAPIGroups(group).
		WithAPIVersions(version).
		WithResources(resource)
}

func (c Config) clientConfig(cas []byte) *apply.WebhookClientConfigApplyConfiguration {
	config := apply.WebhookClientConfig().WithCABundle(cas...)
	if c.URL != "" {
		return config.WithURL(c.URL)
	}
	return config.WithService(apply.ServiceReference().WithNamespace(c.Namespace).WithName(c.Service))
}

func (c Config) namespaces() *metaapply.LabelSelectorApplyConfiguration {
	selector := metaapply.LabelSelector()
	switch {
	case len(c.IgnoredNamespaces) > 0:
		return selector.WithMatchExpressions(namespace(metav1.LabelSelectorOpNotIn, c.IgnoredNamespaces...))
	case c.OnlyNamespace != "":
		return selector.WithMatchExpressions(namespace(metav1.LabelSelectorOpIn, c.OnlyNamespace))
	}
	return selector
}

func namespace(operator metav1.LabelSelectorOperator, names ...string) *metaapply.LabelSelectorRequirementApplyConfiguration {
	return metaapply.LabelSelectorRequirement().WithKey(corev1.LabelMetadataName).WithOperator(operator).WithValues(names...)
}

// ParseLabels parses "key:value,key2:value2".
func ParseLabels(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	labels := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(item, ":")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, fmt.Errorf("%q is no label: write key:value, separated by commas", item)
		}
		labels[key] = strings.TrimSpace(value)
	}
	return labels, nil
}
