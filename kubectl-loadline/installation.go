package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/lease"
)

// installed is one of the programs as it is installed: as its Deployment says, or as deploy/base
// installs it where no Deployment is found.
type installed struct {
	program    string
	namespace  string
	deployment *appsv1.Deployment // nil: none was found
	account    string             // of the service
	selector   string             // of its pods
	lease      cache.ObjectName   // that it holds while it works, or renews as its heartbeat
	elected    bool               // it works only while it holds its Lease
	port       string             // of its metrics
	secret     string             // with the certificate of the webhook
	keys       []string           // under which the certificate may lie in it
	mounts     bool               // that Secret, which somebody else fills: it issues no certificate

	otherUsage    bool // than that of the metrics API is what the recommender takes
	noCheckpoints bool // keep the history of the recommender
}

// leaseNames are the defaults of the programs.
var leaseNames = map[string]string{"recommender": "vpa-recommender-lease", "updater": "vpa-updater", "admission-controller": "vpa-admission-controller"}

// ports are those of the metrics, unless a flag has another.
var ports = map[string]string{"recommender": "8942", "updater": updaterPort, "admission-controller": "8944"}

// Where the admission controller keeps its certificate, unless a flag has another name or a Secret is
// mounted where it reads files; and under which keys: its own, or those of whoever else issues it.
const (
	certificateSecret = "vpa-tls-certs"
	certificateFile   = "/etc/tls-certs/serverCert.pem"
)

var certificateKeys = []string{"serverCert.pem", corev1.TLSCertKey}

// asInstalled returns how a program is installed in a namespace with some Deployments.
func asInstalled(program, namespace string, deployments []appsv1.Deployment) *installed {
	p := &installed{program: program, namespace: namespace, account: "vpa-" + program, selector: "app=vpa-" + program,
		lease: cache.ObjectName{Namespace: namespace, Name: leaseNames[program]}, elected: true,
		port: ports[program], secret: certificateSecret, keys: certificateKeys}
	best := 0
	for i := range deployments {
		d := &deployments[i]
		if sign := signs(d, program); sign > best || sign == best && sign > 0 && d.Name < p.deployment.Name {
			best, p.deployment = sign, d
		}
	}
	if p.deployment != nil {
		p.read()
	}
	return p
}

// signs returns how sure it is that a Deployment runs a program; 0: nothing says so. An image counts
// for more than labels, of which others have some, too.
func signs(d *appsv1.Deployment, program string) (n int) {
	if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return programOf(d, &c) == program }) {
		n += 2
	}
	if pod := d.Spec.Template.Labels; pod["app"] == "vpa-"+program || pod["app.kubernetes.io/component"] == program {
		n++
	}
	return n
}

// read takes from the Deployment what it says.
func (p *installed) read() {
	d := p.deployment
	p.account = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
	if d.Spec.Selector != nil {
		p.selector = metav1.FormatLabelSelector(d.Spec.Selector)
	}
	c := p.container()
	p.lease.Namespace = metav1.NamespaceSystem
	if own := variable(c, "NAMESPACE", d.Namespace); own != "" && p.program == "admission-controller" {
		p.lease.Namespace = own
	}
	p.elected = false
	file := certificateFile
	fromPrometheus, external := false, false
	for name, value := range given(p.program, slices.Concat(c.Command, c.Args)) {
		for i := range c.Env {
			value = strings.ReplaceAll(value, "$("+c.Env[i].Name+")", variable(c, c.Env[i].Name, d.Namespace))
		}
		switch name {
		case "leader-elect":
			p.elected, _ = strconv.ParseBool(value) // with another value it does not start
		case "leader-elect-resource-name", "status-lease-name":
			p.lease.Name = value
		case "leader-elect-resource-namespace", "status-lease-namespace":
			p.lease.Namespace = cmp.Or(value, p.lease.Namespace)
		case "address":
			if _, port, err := net.SplitHostPort(value); err == nil {
				p.port = port
			}
		case "tls-secret":
			p.secret = value
		case "tls-cert-file":
			file = value
		case "usage-source":
			fromPrometheus = value == "prometheus"
		case "use-external-metrics":
			external, _ = strconv.ParseBool(value)
		case "storage":
			p.noCheckpoints = value == "prometheus"
		}
	}
	p.otherUsage = fromPrometheus || external
	p.mounted(c, file)
}

// mounted takes the Secret in which a file of the container lies, if one is mounted there: the program
// keeps no certificate of its own then.
func (p *installed) mounted(c *corev1.Container, file string) {
	for _, m := range c.VolumeMounts {
		at := slices.IndexFunc(p.deployment.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.Secret != nil })
		if at < 0 || path.Clean(m.MountPath) != path.Dir(file) {
			continue
		}
		secret := p.deployment.Spec.Template.Spec.Volumes[at].Secret
		p.secret, p.mounts = secret.SecretName, true
		key := path.Base(file)
		for _, item := range secret.Items {
			if item.Path == key {
				key = item.Key
				break
			}
		}
		p.keys = append([]string{key}, certificateKeys...)
	}
}

// What Helm writes on what it installs.
const (
	releaseAnnotation = "meta.helm.sh/release-name"
	releaseNamespace  = "meta.helm.sh/release-namespace"
)

// ofDeployment is the folder of what is not in deploy/crds: `make push` writes it, and others may be used.
const ofDeployment = "dist/deploy, or the folder that it was installed from"

// leftOut reports whether a program has no Deployment where another one has: whoever wants recommendations alone
// installs no more than the recommender.
func (e *examination) leftOut(program string) bool {
	return e.installed[program].deployment == nil && slices.ContainsFunc(programs, func(p string) bool { return e.installed[p].deployment != nil })
}

// installing is the command that adds what an installation lacks: that of Helm where it
// installed one of the programs, else that of a folder, or of words that say which.
func (e *examination) installing(folder string) string {
	for _, p := range programs {
		if d := e.installed[p].deployment; d != nil {
			if upgrade := upgradingRelease(d, e.moves); upgrade != "" {
				return upgrade
			}
		}
	}
	return "kubectl apply -k " + folder
}

// upgradingRelease is the command that upgrades the release to which a Deployment belongs: one that moves over
// to our chart. Empty: it belongs to none.
func upgradingRelease(d *appsv1.Deployment, moves bool) string {
	name := d.Annotations[releaseAnnotation]
	if name == "" {
		return ""
	}
	chart := "CHART --reset-then-reuse-values, with the chart of the release"
	if moves {
		chart = "charts/loadline --reset-then-reuse-values --take-ownership, with images of yours as docs/migrate.md says"
	}
	return fmt.Sprintf("helm -n %s upgrade %s %s", cmp.Or(d.Annotations[releaseNamespace], d.Namespace), name, chart)
}

// upgraded reports whether an object belongs to a release of which a program is part, so that an upgrade of that
// takes it away where the new chart has none of its name.
func (e *examination) upgraded(object metav1.Object) bool {
	of := object.GetAnnotations()
	return of[releaseAnnotation] != "" && slices.ContainsFunc(programs, func(program string) bool {
		d := e.installed[program].deployment
		return d != nil && d.Annotations[releaseAnnotation] == of[releaseAnnotation] && d.Annotations[releaseNamespace] == of[releaseNamespace]
	})
}

// container returns that of the program.
func (p *installed) container() *corev1.Container {
	all := p.deployment.Spec.Template.Spec.Containers
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return programOf(p.deployment, &c) == p.program })
	if at < 0 {
		at = slices.IndexFunc(all, func(c corev1.Container) bool { return strings.HasSuffix(c.Name, p.program) })
	}
	if len(all) == 0 {
		return &corev1.Container{}
	}
	return &all[max(at, 0)]
}

// variable returns the value of a variable of a container in a namespace; empty: it has none that is
// known here.
func variable(c *corev1.Container, name, namespace string) string {
	for i := range c.Env {
		e := &c.Env[i]
		switch {
		case e.Name != name:
		case e.ValueFrom == nil:
			return e.Value
		case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			return namespace
		}
	}
	return ""
}

// holder returns who holds the Lease; empty: nobody does.
func (p *installed) holder(ctx context.Context, kube kubernetes.Interface, now time.Time) (string, error) {
	e := flags.DefaultElection(p.lease.Name)
	e.Namespace = p.lease.Namespace
	return lease.Holder(ctx, kube, e, now)
}

// podsHint is the command that lists the pods.
func (p *installed) podsHint() string { return p.kubectl("get pods") }

// logsHint is the command that prints their logs, from the beginning.
func (p *installed) logsHint() string { return p.kubectl("logs") + " --prefix --tail=-1" }

// kubectl is a command for the pods.
func (p *installed) kubectl(verb string) string {
	selector := p.selector
	if strings.ContainsAny(selector, " !()") {
		selector = "'" + selector + "'"
	}
	return fmt.Sprintf("kubectl -n %s %s -l %s", p.namespace, verb, selector)
}

// starts reports whether the program was installed or changed less than a minute ago, or is still
// being rolled out. Kubernetes itself says when that takes too long.
func (p *installed) starts(now time.Time) bool {
	const while = time.Minute
	if p.deployment == nil {
		return false
	}
	if now.Sub(p.deployment.CreationTimestamp.Time) < while {
		return true
	}
	for _, c := range p.deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionTrue {
			return c.Reason != rolledOut || now.Sub(c.LastUpdateTime.Time) < while
		}
	}
	return false
}

// rolledOut is the reason with which Kubernetes says that the pods of a Deployment are as it says.
const rolledOut = "NewReplicaSetAvailable"

// readDeployments returns those of the namespace of the programs.
func readDeployments(ctx context.Context, kube kubernetes.Interface, namespace string) ([]appsv1.Deployment, error) {
	list, err := kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Deployments of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}
