package admission

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/admission-controller/mutate"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/admission-controller/validate"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
)

// Config holds the command-line settings of the admission controller.
type Config struct {
	Kube    flags.Kube
	Logging flags.Logging
	Serving flags.Serving
	Gates   flags.Gates

	Port       int
	Files      certs.Files
	ReloadCert bool
	Ciphers    string // names separated by commas or colons
	MinTLS     string // tls1_2 or tls1_3

	Register       bool
	ByURL          bool
	Service        string
	WebhookAddress string // with scheme, used with ByURL
	WebhookPort    string
	WebhookLabels  string // k:v,k2:v2
	TimeoutSeconds int
	FailurePolicy  bool // true: Fail

	LeaseName      string
	LeaseNamespace string
	LeaseInterval  time.Duration

	MaxBoost flags.Quantity

	// The fields below have no counterpart in the reference VPA.
	Policies flags.Policies
	// SharingMinAge is the minimum age of a workload whose new pods share their nodes.
	SharingMinAge time.Duration

	Secret      string        // holds a self-issued certificate
	Drain       time.Duration // time between SIGTERM and the end of serving
	ClientCA    string        // file, empty: any client
	ClientNames string        // common names separated by commas, empty: any
}

// Default returns the defaults of all flags.
func Default() *Config {
	return &Config{
		Kube:           flags.DefaultKube(),
		Logging:        flags.DefaultLogging(),
		Serving:        flags.Serving{Address: ":8944"},
		Port:           8000,
		Files:          certs.Files{CA: "/etc/tls-certs/caCert.pem", Cert: "/etc/tls-certs/serverCert.pem", Key: "/etc/tls-certs/serverKey.pem"},
		MinTLS:         "tls1_2",
		Register:       true,
		Service:        "vpa-webhook",
		TimeoutSeconds: 30,
		LeaseName:      "vpa-admission-controller",
		LeaseInterval:  10 * time.Second,
		Secret:         "vpa-tls-certs",
		Drain:          3 * time.Second,
		SharingMinAge:  sharing.MinAge,
	}
}

// AddFlags binds every flag to fs.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Kube.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Serving.AddFlags(fs)
	c.Gates.AddFlags(fs)

	fs.IntVar(&c.Port, "port", c.Port, "Port of the webhook.")
	fs.StringVar(&c.Files.CA, "client-ca-file", c.Files.CA, "CA (PEM) that is published to the API server, if the certificate files exist.")
	fs.StringVar(&c.Files.Cert, "tls-cert-file", c.Files.Cert, "Serving certificate (PEM). If neither it nor the key exists, a certificate is issued and rotated by the program itself.")
	fs.StringVar(&c.Files.Key, "tls-private-key", c.Files.Key, "Private key (PEM) of the serving certificate.")
	fs.BoolVar(&c.ReloadCert, "reload-cert", c.ReloadCert, "Read the certificate files again when they change. A self-issued certificate is always reloaded.")
	fs.StringVar(&c.Ciphers, "tls-ciphers", c.Ciphers, "Cipher suites for TLS 1.2, Go names separated by commas or colons. Empty: Go's choice.")
	fs.StringVar(&c.MinTLS, "min-tls-version", c.MinTLS, "Lowest version of TLS: tls1_2 or tls1_3.")

	fs.BoolVar(&c.Register, "register-webhook", c.Register, "Keep the MutatingWebhookConfiguration "+certs.ConfigurationName+" up to date.")
	fs.BoolVar(&c.ByURL, "register-by-url", c.ByURL, "Register the webhook by URL instead of through a Service.")
	fs.StringVar(&c.Service, "webhook-service", c.Service, "Service of the webhook, in the namespace of the program.")
	fs.StringVar(&c.WebhookAddress, "webhook-address", c.WebhookAddress, "Address of the webhook with --register-by-url, with scheme, for example https://10.0.0.7.")
	fs.StringVar(&c.WebhookPort, "webhook-port", c.WebhookPort, "Port of the webhook with --register-by-url.")
	fs.StringVar(&c.WebhookLabels, "webhook-labels", c.WebhookLabels, "Labels of the webhook configuration: key:value, separated by commas.")
	fs.IntVar(&c.TimeoutSeconds, "webhook-timeout-seconds", c.TimeoutSeconds, "How long the API server waits for an answer.")
	fs.BoolVar(&c.FailurePolicy, "webhook-failure-policy-fail", c.FailurePolicy, "Refuse pods while the webhook does not answer. Otherwise they start unchanged.")

	fs.StringVar(&c.LeaseName, "status-lease-name", c.LeaseName, "Name of the heartbeat Lease.")
	fs.StringVar(&c.LeaseNamespace, "status-lease-namespace", c.LeaseNamespace, "Namespace of the heartbeat Lease. Empty: $NAMESPACE, else kube-system.")
	fs.DurationVar(&c.LeaseInterval, "status-lease-update-interval", c.LeaseInterval, "How often the heartbeat Lease is renewed.")
	fs.Var(&c.MaxBoost, "max-allowed-cpu-boost", "Most CPU that a startup boost may give a container. Empty: no maximum.")
	c.addOwnFlags(fs)
}

func (c *Config) addOwnFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Secret, "tls-secret", c.Secret, "Secret, in the namespace of the program, that holds a self-issued certificate.")
	fs.DurationVar(&c.Drain, "drain-delay", c.Drain, "How long the webhook keeps answering after SIGTERM, until the Service has removed it.")
	fs.StringVar(&c.ClientCA, "webhook-client-ca-file", c.ClientCA, "CA (PEM) of the client certificate that the API server must present to the webhook. Empty: no certificate is required.")
	c.Policies.AddFlags(fs)
	flags.AddSharingMinAge(fs, &c.SharingMinAge)
	fs.StringVar(&c.ClientNames, "webhook-client-names", c.ClientNames, "Common names that the client certificate may have, separated by commas. Empty: any.")
}

// Complete does nothing: all files may change while the program runs.
func (c *Config) Complete() error { return nil }

// maxTimeout is the API server's limit for a webhook in seconds.
const maxTimeout = 30

// Validate returns all problems joined.
func (c *Config) Validate() error {
	const portRange = "must be a port number from 1 to 65535"
	problems := []error{
		c.Kube.Validate(),
		c.Serving.Validate(),
		flags.Check(validPort(strconv.Itoa(c.Port)), "port", c.Port, portRange),
		flags.Check(c.MinTLS == "tls1_2" || c.MinTLS == "tls1_3", "min-tls-version", c.MinTLS, "must be tls1_2 or tls1_3"),
		flags.Check(c.LeaseInterval > 0, "status-lease-update-interval", c.LeaseInterval, "must be longer than 0"),
		flags.Check(c.Drain >= 0, "drain-delay", c.Drain, "must not be negative"),
		c.MaxBoost.Check("max-allowed-cpu-boost"),
		flags.CheckSharingMinAge(c.SharingMinAge),
	}
	if _, port, err := net.SplitHostPort(c.Serving.Address); err == nil {
		problems = append(problems, flags.Check(port != strconv.Itoa(c.Port), "port", c.Port, "is also the port of --address="+c.Serving.Address+": give them different ports"))
	}
	if c.Register {
		problems = append(problems, flags.Check(c.TimeoutSeconds >= 1 && c.TimeoutSeconds <= maxTimeout, "webhook-timeout-seconds", c.TimeoutSeconds, "must be from 1 to 30"))
	}
	if c.Register && c.ByURL {
		target, err := url.Parse(c.url())
		problems = append(problems,
			flags.Check(err == nil && target.Scheme == "https" && target.Host != "", "webhook-address", strconv.Quote(c.WebhookAddress), "--register-by-url needs an address that starts with https://, for example https://10.0.0.7"),
			flags.Check(c.WebhookPort == "" || validPort(c.WebhookPort), "webhook-port", c.WebhookPort, portRange),
			flags.Check(err != nil || c.WebhookPort == "" || target.Port() == c.WebhookPort, "webhook-address", c.WebhookAddress, "must end with the host, because --webhook-port="+c.WebhookPort+" is put behind it: leave out the path"))
	}
	return errors.Join(problems...)
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// Warnings returns a line for each setting that is accepted but has no effect.
func (c *Config) Warnings() []string {
	lines := c.Kube.Warnings()
	if c.ByURL && !c.Register {
		lines = append(lines, flags.Problem("register-by-url", c.ByURL, "has no effect with --register-webhook=false").Error())
	}
	if !c.ByURL && c.WebhookAddress+c.WebhookPort != "" {
		lines = append(lines, flags.Problem("webhook-address", c.WebhookAddress, "has no effect without --register-by-url").Error())
	}
	if c.ClientCA == "" && c.ClientNames != "" {
		lines = append(lines, flags.Problem("webhook-client-names", c.ClientNames, "has no effect without --webhook-client-ca-file").Error())
	}
	if _, err := certs.ParseLabels(c.WebhookLabels); err != nil {
		lines = append(lines, flags.Problem("webhook-labels", c.WebhookLabels, "ignored: "+err.Error()).Error())
	}
	if _, unknown := c.cipherSuites(); len(unknown) > 0 {
		lines = append(lines, flags.Problem("tls-ciphers", c.Ciphers, "ignored: Go has no such secure suite: "+strings.Join(unknown, ", ")).Error())
	}
	return lines
}

func (c *Config) callers() server.Callers {
	callers := server.Callers{CAFile: c.ClientCA}
	for name := range strings.SplitSeq(c.ClientNames, ",") {
		if name = strings.TrimSpace(name); name != "" {
			callers.Names = append(callers.Names, name)
		}
	}
	return callers
}

func (c *Config) cipherSuites() (ids []uint16, unknown []string) {
	known := map[string]uint16{}
	for _, suite := range tls.CipherSuites() {
		known[suite.Name] = suite.ID
	}
	for _, name := range strings.FieldsFunc(c.Ciphers, func(r rune) bool { return r == ',' || r == ':' }) {
		if id, ok := known[strings.TrimSpace(name)]; ok {
			ids = append(ids, id)
		} else {
			unknown = append(unknown, name)
		}
	}
	return ids, unknown
}

// cheapCurves are the key exchanges of handshakes. P-384 and P-521 take much more CPU time, and any
// client can request them. All API servers support one of these.
var cheapCurves = []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256}

func (c *Config) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}
	if c.MinTLS == "tls1_3" {
		config.MinVersion = tls.VersionTLS13
	}
	config.CipherSuites, _ = c.cipherSuites()
	return config
}

func (c *Config) namespace() string { return lease.Namespace("") }

func (c *Config) url() string {
	if c.WebhookPort == "" {
		return c.WebhookAddress
	}
	return c.WebhookAddress + ":" + c.WebhookPort
}

// host is the name or IP address that the API server expects in the certificate.
func (c *Config) host() string {
	if c.Register && c.ByURL {
		if target, err := url.Parse(c.url()); err == nil {
			return target.Hostname()
		}
	}
	return fmt.Sprintf("%s.%s.svc", c.Service, c.namespace())
}

func (c *Config) registration() certs.Config {
	labels, err := certs.ParseLabels(c.WebhookLabels)
	if err != nil {
		labels = nil // reported by Warnings
	}
	config := certs.Config{
		Labels:            labels,
		Service:           c.Service,
		Namespace:         c.namespace(),
		TimeoutSeconds:    int32(c.TimeoutSeconds),
		Fail:              c.FailurePolicy,
		OnlyNamespace:     c.Kube.Namespace,
		IgnoredNamespaces: c.Kube.Ignored(),
	}
	if c.ByURL {
		config.URL = c.url()
	}
	return config
}

func (c *Config) mutation() mutate.Config {
	config := mutate.Config{Boost: c.Gates.CPUStartupBoost}
	if c.MaxBoost.IsSet {
		config.MaxBoost = convert.Amount(resources.CPU, c.MaxBoost.Value)
	}
	return config
}

func (c *Config) validation() validate.Config {
	return validate.Config{InPlace: c.Gates.InPlace, PerVPAConfig: c.Gates.PerVPAConfig, Boost: c.Gates.CPUStartupBoost}
}

func (c *Config) heartbeat(env process.Environment, client coordinationclient.LeasesGetter) *lease.Heartbeat {
	holder, err := env.Hostname()
	if err != nil {
		holder = "admission-controller"
	}
	return &lease.Heartbeat{Client: client, Namespace: lease.Namespace(c.LeaseNamespace), Name: c.LeaseName, Holder: holder, Interval: c.LeaseInterval}
}

func (c *Config) serviceProbe(env process.Environment) server.ServiceProbe {
	w := server.ServiceProbe{Foreign: !c.Register, Service: c.Service, Host: c.host(), Environment: env}
	if c.ByURL {
		w.URL = c.url()
	}
	return w
}
