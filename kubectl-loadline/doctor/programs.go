package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/convert"
)

func (e *examination) missingResources(groupVersion string, wanted ...string) ([]string, error) {
	served, err := e.kube.Discovery().ServerResourcesForGroupVersion(groupVersion)
	if apierrors.IsNotFound(err) {
		return wanted, nil
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(wanted, func(name string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	}), nil
}

func checkDefinitions(_ context.Context, e *examination) error {
	fix, optional := e.installCommand("deploy/crds"), severityWarning
	if e.migrating {
		optional = severityNote
	}
	missing, err := e.missingResources(vpav1.SchemeGroupVersion.String(), "verticalpodautoscalers", "verticalpodautoscalercheckpoints")
	if err != nil {
		return err
	}
	for _, name := range missing {
		e.add(severityError, name+"."+vpav1.SchemeGroupVersion.Group, "the definition is not installed, so nothing works", fix)
	}
	missing, err = e.missingResources(loadlinev1alpha1.SchemeGroupVersion.String(), "sizingpolicies", "sizingrecords")
	for _, name := range missing {
		e.add(optional, name+"."+loadlinev1alpha1.GroupName, "the definition is not installed, so there are no SizingPolicies", fix)
	}
	return err
}

func checkMetricsAPI(_ context.Context, e *examination) error {
	if e.installed["recommender"].NoMetricsAPI {
		return nil
	}
	const group = "metrics.k8s.io/v1beta1"
	missing, err := e.missingResources(group, "pods")
	switch {
	case err != nil:
		e.add(severityError, group, fmt.Sprintf("the metrics API fails, so no usage is known: %v", err), "see why it does: kubectl get apiservice v1beta1.metrics.k8s.io, and the log of metrics-server; or run the recommender with --usage-source=prometheus")
	case len(missing) > 0:
		e.add(severityError, group, "there is no metrics API, so no usage is known", "install metrics-server, or run the recommender with --usage-source=prometheus")
	}
	return nil
}

func checkPrograms(_ context.Context, e *examination) error {
	const assumed = "the service accounts, labels and Leases of deploy/base are taken for theirs"
	if err := e.unread["Deployments"]; err != nil {
		return fmt.Errorf("%w; %s", err, assumed)
	}
	for _, p := range programs.Names {
		if e.notInstalled(p) {
			e.addNotInstalled(p)
		}
	}
	if !slices.ContainsFunc(programs.Names, func(p string) bool { return e.installed[p].Deployment != nil }) {
		e.add(severityNote, "Namespace "+e.programs, fmt.Sprintf("no Deployment of %s was found: %s", strings.Join(programs.Names, ", "), assumed),
			"nothing, if they run outside of the cluster; else set --programs-namespace to their namespace")
	}
	return nil
}

func (e *examination) addNotInstalled(program string) {
	severity, effect := severityNote, "no running pod is changed"
	switch program {
	case "recommender":
		severity, effect = severityWarning, "nothing is recommended"
	case "admission-controller":
		effect = "new pods are not sized"
		if !e.notInstalled("updater") {
			effect += ", and the updater evicts none"
		}
	}
	e.add(severity, "Namespace "+e.programs, fmt.Sprintf("no Deployment runs the %s: %s", program, effect),
		fmt.Sprintf("nothing, if intended; if it runs elsewhere, set --programs-namespace to its namespace; else %s, with the %s enabled (docs/install.md)", e.installCommand(deployFolder), program))
}

func checkLeases(ctx context.Context, e *examination) error {
	err := e.checkLeader(ctx, e.installed["recommender"], "nothing is recommended")
	if err == nil {
		err = e.checkLeader(ctx, e.installed["updater"], "no running pod is changed")
	}
	if err != nil || e.notInstalled("admission-controller") {
		return err
	}
	const lasts = time.Minute
	p := e.installed["admission-controller"]
	beat, err := e.kube.CoordinationV1().Leases(p.Lease.Namespace).Get(ctx, p.Lease.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read Lease %s: %w", p.Lease, err)
	}
	if err == nil && beat.Spec.RenewTime != nil && e.now.Sub(beat.Spec.RenewTime.Time) <= lasts {
		return nil
	}
	if p.Starting(e.now) {
		e.add(severityWarning, "Lease "+p.Lease.String(), "the admission controller does not renew it yet, because it is starting: until then new pods are not sized, and the updater evicts none",
			"ask again in a minute; "+p.PodsCommand()+" shows how far it is")
		return nil
	}
	e.add(severityError, "Lease "+p.Lease.String(), "the admission controller does not renew it, so new pods are not sized, and the updater evicts none", p.PodsCommand()+", and its log")
	return nil
}

func (e *examination) checkLeader(ctx context.Context, p *programs.Installation, effect string) error {
	if e.notInstalled(p.Program) {
		return nil
	}
	if !p.LeaderElection {
		if p.Deployment.Status.AvailableReplicas == 0 {
			e.add(severityError, "Deployment "+p.Namespace+"/"+p.Deployment.Name, "no pod of it is available, so "+effect, p.PodsCommand()+", and its log")
		}
		return nil
	}
	holder, err := p.Holder(ctx, e.kube, e.now)
	if err != nil || holder != "" {
		return err
	}
	unless := ""
	if p.Deployment == nil {
		unless = ", unless it runs with --leader-elect=false"
	}
	e.add(severityError, "Lease "+p.Lease.String(), fmt.Sprintf("no %s holds it, so %s%s", p.Program, effect, unless), p.PodsCommand()+", and its log; set --programs-namespace to its namespace")
	return nil
}

type permission struct {
	group, resource, verb string
}

// requiredPermissions are the permissions that programs cannot work without, all granted by deploy/base.
var requiredPermissions = map[string][]permission{
	"recommender": {
		{"", "pods", "list"}, {"", "pods", "watch"}, {"metrics.k8s.io", "pods", "list"},
		{"autoscaling.k8s.io", "verticalpodautoscalers", "watch"}, {"autoscaling.k8s.io", "verticalpodautoscalers/status", "patch"},
		{"autoscaling.k8s.io", "verticalpodautoscalercheckpoints", "create"}, {"autoscaling.k8s.io", "verticalpodautoscalercheckpoints", "patch"},
		{"apps", "deployments", "watch"}, {"", "events", "watch"},
	},
	"updater": {
		{"", "pods", "list"}, {"", "pods", "watch"}, {"", "pods/eviction", "create"}, {"", "pods", "create"}, {"", "pods/resize", "patch"},
		{"autoscaling.k8s.io", "verticalpodautoscalers", "watch"}, {"apps", "deployments", "watch"}, {"", "limitranges", "list"},
		{"", "nodes", "list"}, {"policy", "poddisruptionbudgets", "list"},
	},
	"admission-controller": {
		{"autoscaling.k8s.io", "verticalpodautoscalers", "watch"}, {"", "limitranges", "list"}, {"apps", "deployments", "watch"},
	},
}

func checkPermissions(ctx context.Context, e *examination) error {
	for _, program := range programs.Names {
		if e.notInstalled(program) {
			continue
		}
		account := e.installed[program].ServiceAccount
		for _, p := range requiredPermissions[program] {
			if p.group == "metrics.k8s.io" && e.installed[program].NoMetricsAPI {
				continue
			}
			resource, sub, _ := strings.Cut(p.resource, "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + e.programs + ":" + account,
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + e.programs, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Group: p.group, Resource: resource, Subresource: sub, Verb: p.verb},
			}}
			reviewed, err := e.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("review permissions of service account %s: %w", account, err)
			}
			if !reviewed.Status.Allowed {
				severity, folder := severityError, deployFolder
				if e.migrating {
					severity, folder = severityNote, "deploy/migrate"
					if e.programs != metav1.NamespaceSystem || account != "vpa-"+program {
						folder += ", with this account in its bindings"
					}
				}
				e.add(severity, "ServiceAccount "+e.programs+"/"+account, fmt.Sprintf("it may not %s %s of API group %q", p.verb, p.resource, p.group), e.installCommand(folder))
			}
		}
	}
	return nil
}

const webhookConfiguration = "vpa-webhook-config"

func checkWebhook(ctx context.Context, e *examination) error {
	if e.notInstalled("admission-controller") {
		return nil
	}
	object := "MutatingWebhookConfiguration " + webhookConfiguration
	configuration, err := e.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookConfiguration, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		e.add(severityError, object, "it does not exist, so new pods are not sized", e.installCommand(deployFolder)+"; with --register-webhook=false apply the one that you keep")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", object, err)
	}
	for i := range configuration.Webhooks {
		if err := e.checkHook(ctx, object, &configuration.Webhooks[i]); err != nil {
			return err
		}
	}
	if len(configuration.Webhooks) == 0 { // from manifests, to be completed by the admission controller
		e.add(severityError, object, "it has no webhook, so new pods are not sized", "the admission controller has not registered, see its log for the cause: "+e.installed["admission-controller"].LogsCommand()+"; with --register-webhook=false put yours there")
	}
	return nil
}

func (e *examination) checkHook(ctx context.Context, object string, hook *admissionv1.MutatingWebhook) error {
	cas, err := certificates(hook.ClientConfig.CABundle)
	switch serving, readable := e.certificate(ctx); {
	case err != nil || len(cas) == 0:
		e.add(severityError, object, fmt.Sprintf("webhook %s has no CA that can be read, so the API server does not trust it", hook.Name), "restart the admission controller, which writes the CA; with --register-webhook=false put yours there")
	case !readable: // another check covers the certificate
	case !trusts(cas, serving, e.now):
		e.add(severityError, object, fmt.Sprintf("the CA of webhook %s has not issued the certificate of the admission controller, so the API server does not trust it", hook.Name),
			"restart the admission controller, which writes its CA; where another program injects a CA, let that be the one of Secret "+e.installed["admission-controller"].CertificateSecret)
	}
	service := hook.ClientConfig.Service
	if service == nil {
		return nil
	}
	name := service.Namespace + "/" + service.Name
	known, err := e.kube.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		e.add(severityError, "Service "+name, "it does not exist, so the API server does not reach the webhook", e.installCommand(deployFolder))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Service %s: %w", name, err)
	}
	pods, err := e.kube.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set(known.Spec.Selector).String()})
	if err != nil {
		return fmt.Errorf("list the pods behind Service %s: %w", name, err)
	}
	if !slices.ContainsFunc(pods.Items, ready) {
		e.add(severityError, "Service "+name, "no pod behind it is ready, so the API server does not reach the webhook and new pods are not sized",
			fmt.Sprintf("kubectl -n %s get pods -l %s, and their log; the selector of the Service must match them", service.Namespace, labels.Set(known.Spec.Selector)))
	}
	return nil
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func (e *examination) certificate(ctx context.Context) (*x509.Certificate, bool) {
	p := e.installed["admission-controller"]
	secret, err := e.kube.CoreV1().Secrets(e.programs).Get(ctx, p.CertificateSecret, metav1.GetOptions{})
	if err != nil {
		return nil, false
	}
	for _, key := range p.CertificateKeys {
		if found, err := certificates(secret.Data[key]); err == nil && len(found) > 0 {
			return found[0], true
		}
	}
	return nil, false
}

func certificates(text []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all, nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return all, err
		}
		all = append(all, certificate)
	}
}

func trusts(cas []*x509.Certificate, serving *x509.Certificate, now time.Time) bool {
	roots := x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca)
	}
	_, err := serving.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	var expired x509.CertificateInvalidError // another check covers the validity
	return err == nil || errors.As(err, &expired)
}

// minValidity is the remaining validity below which the certificate is reported.
const minValidity = 7 * 24 * time.Hour

func checkCertificate(ctx context.Context, e *examination) error {
	p := e.installed["admission-controller"]
	if e.notInstalled(p.Program) {
		return nil
	}
	object := "Secret " + e.programs + "/" + p.CertificateSecret
	secret, err := e.kube.CoreV1().Secrets(e.programs).Get(ctx, p.CertificateSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // certificates may come from files
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", object, err)
	}
	fix, anew := "restart the admission controller to issue a new one; see its log for the cause", "delete it and restart the admission controller to issue a new one"
	if p.MountsCertificate || len(secret.Data[corev1.TLSCertKey]) > 0 {
		fix = "renew it with whoever issues it, such as cert-manager or tooling of yours"
		anew = fix
	}
	serving, readable := e.certificate(ctx)
	if !readable {
		e.add(severityError, object, "it has no certificate that can be read", anew)
		return nil
	}
	switch left := serving.NotAfter.Sub(e.now); {
	case left <= 0:
		e.add(severityError, object, "the certificate of the webhook expired at "+cli.Timestamp(serving.NotAfter)+", so new pods are not sized", fix)
	case left < minValidity:
		e.add(severityWarning, object, "the certificate of the webhook expires at "+cli.Timestamp(serving.NotAfter), fix)
	}
	return nil
}

func checkResizeSupport(_ context.Context, e *examination) error {
	missing, err := e.missingResources(corev1.SchemeGroupVersion.String(), "pods/resize")
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		e.add(severityWarning, "API server", "it does not resize pods in place: mode InPlaceOrRecreate evicts, mode InPlace does nothing", "Kubernetes 1.33 or newer, with the feature gate InPlacePodVerticalScaling")
		return nil
	}
	if err := e.require("nodes"); err != nil {
		return err
	}
	for i := range e.nodes {
		n := &e.nodes[i]
		if !convert.IsVirtualNode(n) && !convert.ResizesPods(n) {
			e.add(severityWarning, "Node "+n.Name, fmt.Sprintf("its kubelet %s does not resize pods in place", n.Status.NodeInfo.KubeletVersion), "a kubelet of version 1.33 or newer")
		}
	}
	return nil
}
