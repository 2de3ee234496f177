package register

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Names that users of the reference VPA know.
const (
	ConfigurationName = "vpa-webhook-config"
	WebhookName       = "vpa.k8s.io"
	// OwnWebhookName is the one for the namespace of the program where others
	// fail.
	OwnWebhookName = "own.vpa.k8s.io"

	fieldManager = "vpa-admission-controller"
)

// Config describes the webhook.
type Config struct {
	Labels         map[string]string // of the configuration object
	URL            string            // where the webhook answers; empty: through the Service
	Service        string            // used without URL, on port 443
	Namespace      string            // of the Service
	TimeoutSeconds int32
	// Fail refuses pods while the webhook does not answer, but not those of the
	// program's own namespace: it could never start again.
	Fail bool

	// Only pods and VPAs of OnlyNamespace, or not those of IgnoredNamespaces,
	// are sent. At most one of the two is set.
	OnlyNamespace     string
	IgnoredNamespaces []string
}

// Registrar writes the configuration.
type Registrar struct {
	Client client.MutatingWebhookConfigurationsGetter
	Config Config
}

// Apply makes the configuration what Config says, with the given CAs (PEM), and
// creates it if it is missing.
func (r *Registrar) Apply(ctx context.Context, cas []byte) error {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := r.Client.MutatingWebhookConfigurations().Apply(ctx, r.Config.build(cas), options); err != nil {
		return fmt.Errorf("register the webhook in MutatingWebhookConfiguration %s: %w", ConfigurationName, err)
	}
	return nil
}

func (c Config) build(cas []byte) *apply.MutatingWebhookConfigurationApplyConfiguration {
	configuration := apply.MutatingWebhookConfiguration(ConfigurationName).WithLabels(c.Labels)
	if !c.Fail {
		return configuration.WithWebhooks(c.webhook(WebhookName, admissionv1.Ignore, c.namespaces(), cas))
	}
	others := c.namespaces().WithMatchExpressions(namespace(metav1.LabelSelectorOpNotIn, c.Namespace))
	own := c.namespaces().WithMatchExpressions(namespace(metav1.LabelSelectorOpIn, c.Namespace))
	return configuration.WithWebhooks(
		c.webhook(WebhookName, admissionv1.Fail, others, cas),
		c.webhook(OwnWebhookName, admissionv1.Ignore, own, cas),
	)
}

func (c Config) webhook(name string, policy admissionv1.FailurePolicyType, namespaces *metaapply.LabelSelectorApplyConfiguration, cas []byte) *apply.MutatingWebhookApplyConfiguration {
	return apply.MutatingWebhook().
		WithName(name).
		WithAdmissionReviewVersions("v1").
		WithRules(
			rule("", "v1", "pods", admissionv1.Create),
			rule(vpav1.SchemeGroupVersion.Group, "*", "verticalpodautoscalers", admissionv1.Create, admissionv1.Update),
		).
		WithFailurePolicy(policy).
		WithSideEffects(admissionv1.SideEffectClassNone).
		WithTimeoutSeconds(c.TimeoutSeconds).
		WithClientConfig(c.clientConfig(cas)).
		WithNamespaceSelector(namespaces)
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

// namespaces selects by the label that every namespace carries. Without a
// restriction it is empty, which selects all.
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

// ParseLabels reads "key:value,key2:value2".
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
