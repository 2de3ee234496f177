// Package programs finds the installed programs and calls their HTTP API.
package programs

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"iter"
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

// Installation describes an installed program by its Deployment. Without a Deployment it describes deploy/base.
type Installation struct {
	Program           string
	Namespace         string
	Deployment        *appsv1.Deployment // nil: not found
	ServiceAccount    string
	selector          string           // label selector of its pods
	Lease             cache.ObjectName // held for leader election, or renewed as heartbeat
	LeaderElection    bool             // only the holder of the Lease works
	port              string           // metrics port
	CertificateSecret string           // holds the certificate of the webhook
	CertificateKeys   []string         // keys of the certificate in this Secret
	MountsCertificate bool             // the Secret is mounted, and its certificate is issued externally

	NoMetricsAPI  bool // the recommender reads usage elsewhere
	NoCheckpoints bool // the recommender stores no checkpoints
}

var leaseNames = map[string]string{"recommender": "vpa-recommender-lease", "updater": "vpa-updater", "admission-controller": "vpa-admission-controller"}

var ports = map[string]string{"recommender": "8942", "updater": updaterPort, "admission-controller": "8944"}

// Defaults for the certificate of the admission controller. Other issuers use tls.crt.
const (
	certificateSecret = "vpa-tls-certs"
	certificateFile   = "/etc/tls-certs/serverCert.pem"
)

var certificateKeys = []string{"serverCert.pem", corev1.TLSCertKey}

// FindInstallation returns the installation of a program among the Deployments of a namespace.
func FindInstallation(program, namespace string, deployments []appsv1.Deployment) *Installation {
	p := &Installation{Program: program, Namespace: namespace, ServiceAccount: "vpa-" + program, selector: "app=vpa-" + program,
		Lease: cache.ObjectName{Namespace: namespace, Name: leaseNames[program]}, LeaderElection: true,
		port: ports[program], CertificateSecret: certificateSecret, CertificateKeys: certificateKeys}
	best := 0
	for i := range deployments {
		d := &deployments[i]
		if sign := certainty(d, program); sign > best || sign == best && sign > 0 && d.Name < p.Deployment.Name {
			best, p.Deployment = sign, d
		}
	}
	if p.Deployment != nil {
		p.read()
	}
	return p
}

// certainty returns how certainly a Deployment runs a program. 0 means no evidence. An image
// counts more than labels, because other programs use the same labels.
func certainty(d *appsv1.Deployment, program string) (n int) {
	if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return OfContainer(d, &c) == program }) {
		n += 2
	}
	if pod := d.Spec.Template.Labels; pod["app"] == "vpa-"+program || pod["app.kubernetes.io/component"] == program {
		n++
	}
	return n
}

func (p *Installation) read() {
	d := p.Deployment
	p.ServiceAccount = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
	if d.Spec.Selector != nil {
		p.selector = metav1.FormatLabelSelector(d.Spec.Selector)
	}
	c := p.container()
	p.Lease.Namespace = metav1.NamespaceSystem
	if own := envValue(c, "NAMESPACE", d.Namespace); own != "" && p.Program == "admission-controller" {
		p.Lease.Namespace = own
	}
	p.LeaderElection = false
	file := certificateFile
	fromPrometheus, external := false, false
	for name, value := range parseFlags(p.Program, slices.Concat(c.Command, c.Args)) {
		for i := range c.Env {
			value = strings.ReplaceAll(value, "$("+c.Env[i].Name+")", envValue(c, c.Env[i].Name, d.Namespace))
		}
		switch name {
		case "leader-elect":
			p.LeaderElection, _ = strconv.ParseBool(value) // invalid values prevent its start
		case "leader-elect-resource-name", "status-lease-name":
			p.Lease.Name = value
		case "leader-elect-resource-namespace", "status-lease-namespace":
			p.Lease.Namespace = cmp.Or(value, p.Lease.Namespace)
		case "address":
			if _, port, err := net.SplitHostPort(value); err == nil {
				p.port = port
			}
		case "tls-secret":
			p.CertificateSecret = value
		case "tls-cert-file":
			file = value
		case "usage-source":
			fromPrometheus = value == "prometheus"
		case "use-external-metrics":
			external, _ = strconv.ParseBool(value)
		case "storage":
			p.NoCheckpoints = value == "prometheus"
		}
	}
	p.NoMetricsAPI = fromPrometheus || external
	p.readCertificateMount(c, file)
}

// readCertificateMount finds the Secret that is mounted at the path of a file. The program issues no certificate then.
func (p *Installation) readCertificateMount(c *corev1.Container, file string) {
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(p.Deployment.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.Secret != nil })
		if i < 0 || path.Clean(m.MountPath) != path.Dir(file) {
			continue
		}
		secret := p.Deployment.Spec.Template.Spec.Volumes[i].Secret
		p.CertificateSecret, p.MountsCertificate = secret.SecretName, true
		key := path.Base(file)
		for _, item := range secret.Items {
			if item.Path == key {
				key = item.Key
				break
			}
		}
		p.CertificateKeys = append([]string{key}, certificateKeys...)
	}
}

func (p *Installation) container() *corev1.Container {
	all := p.Deployment.Spec.Template.Spec.Containers
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return OfContainer(p.Deployment, &c) == p.Program })
	if i < 0 {
		i = slices.IndexFunc(all, func(c corev1.Container) bool { return strings.HasSuffix(c.Name, p.Program) })
	}
	if len(all) == 0 {
		return &corev1.Container{}
	}
	return &all[max(i, 0)]
}

// envValue returns the value of an environment variable, or "" if it is unset or unknown.
func envValue(c *corev1.Container, name, namespace string) string {
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

// Holder returns the identity of the leader, or "".
func (p *Installation) Holder(ctx context.Context, kube kubernetes.Interface, now time.Time) (string, error) {
	e := flags.DefaultElection(p.Lease.Name)
	e.Namespace = p.Lease.Namespace
	return lease.Holder(ctx, kube, e, now)
}

// PodsCommand returns the command that lists the pods.
func (p *Installation) PodsCommand() string { return p.kubectl("get pods") }

// LogsCommand returns the command that prints the complete logs.
func (p *Installation) LogsCommand() string { return p.kubectl("logs") + " --prefix --tail=-1" }

func (p *Installation) kubectl(verb string) string {
	selector := p.selector
	if strings.ContainsAny(selector, " !()") {
		selector = "'" + selector + "'"
	}
	return fmt.Sprintf("kubectl -n %s %s -l %s", p.Namespace, verb, selector)
}

// Starting reports whether the program changed within the last minute or is being rolled out.
func (p *Installation) Starting(now time.Time) bool {
	const while = time.Minute
	if p.Deployment == nil {
		return false
	}
	if now.Sub(p.Deployment.CreationTimestamp.Time) < while {
		return true
	}
	for _, c := range p.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionTrue {
			return c.Reason != rolledOut || now.Sub(c.LastUpdateTime.Time) < while
		}
	}
	return false
}

const rolledOut = "NewReplicaSetAvailable"

// ListDeployments lists the Deployments of the namespace of the programs.
func ListDeployments(ctx context.Context, kube kubernetes.Interface, namespace string) ([]appsv1.Deployment, error) {
	list, err := kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Deployments of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

//go:embed known-flags.txt
var knownFlags string

type knownFlag struct {
	bool      bool // no value is required
	reference bool // the reference VPA has it too
}

func knownFlagsOf(program string) map[string]knownFlag {
	known := map[string]knownFlag{"help": {bool: true, reference: true}, "version": {bool: true}}
	for lines := bufio.NewScanner(strings.NewReader(knownFlags)); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 4 && words[0] == program {
			known[words[1]] = knownFlag{words[2] == "bool", words[3] == "reference"}
		}
	}
	return known
}

// UnsupportedFlags returns unknown flags, and flags that the reference VPA does not have.
func UnsupportedFlags(program string, args []string) (unknown, own []string) {
	known := knownFlagsOf(program)
	for name := range parseFlags(program, args) {
		switch f, found := known[name]; {
		case !found:
			unknown = append(unknown, "--"+name)
		case !f.reference:
			own = append(own, "--"+name)
		}
	}
	return unknown, own
}

// parseFlags returns the flags of a command line with their documented names, and their values.
func parseFlags(program string, args []string) iter.Seq2[string, string] {
	known := knownFlagsOf(program)
	return func(yield func(name, value string) bool) {
		for i := 0; i < len(args); i++ {
			if !strings.HasPrefix(args[i], "-") {
				continue
			}
			name, value, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
			name = strings.ReplaceAll(name, "_", "-")
			switch f, found := known[name]; {
			case hasValue || !found:
			case f.bool:
				value = "true"
			case i+1 < len(args):
				i++
				value = args[i]
			}
			if !yield(name, value) {
				return
			}
		}
	}
}

// Names are the programs of an installation. Names of images and Deployments end with them.
var Names = []string{"recommender", "updater", "admission-controller"}

// OfContainer returns the program of a container, or "".
func OfContainer(d *appsv1.Deployment, c *corev1.Container) string {
	image := c.Image[strings.LastIndex(c.Image, "/")+1:]
	if end := strings.IndexAny(image, ":@"); end >= 0 {
		image = image[:end]
	}
	for _, p := range Names {
		if image == "vpa-"+p || image == "loadline-"+p || d.Name == "vpa-"+p && len(d.Spec.Template.Spec.Containers) == 1 {
			return p
		}
	}
	return ""
}
