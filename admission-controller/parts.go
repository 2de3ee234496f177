package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/admission-controller/mutate"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/admission-controller/validate"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/kube/lease"
)

// What the parts of the program are built from.

// callers says who may ask the webhook.
func (c *Config) callers() server.Callers {
	callers := server.Callers{CAFile: c.ClientCA}
	for name := range strings.SplitSeq(c.ClientNames, ",") {
		if name = strings.TrimSpace(name); name != "" {
			callers.Names = append(callers.Names, name)
		}
	}
	return callers
}

// cipherSuites returns the suites that Go knows as secure and the other names.
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

// tls is the configuration of connections without their certificate.
func (c *Config) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.MinTLS == "tls1_3" {
		config.MinVersion = tls.VersionTLS13
	}
	config.CipherSuites, _ = c.cipherSuites()
	return config
}

// namespace is where the program, its Service and its Secret live.
func (c *Config) namespace() string { return lease.Namespace("") }

// url is what the API server calls with ByURL.
func (c *Config) url() string {
	if c.WebhookPort == "" {
		return c.WebhookAddress
	}
	return c.WebhookAddress + ":" + c.WebhookPort
}

// host is the name or IP address that the API server expects in the
// certificate.
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
		labels = nil // Warnings tells
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
	if c.MaxBoost.Given {
		config.MaxBoost = convert.Amount(resources.CPU, c.MaxBoost.Value)
	}
	return config
}

func (c *Config) validation() validate.Config {
	return validate.Config{InPlace: c.Gates.InPlace, PerVPAConfig: c.Gates.PerVPAConfig, Boost: c.Gates.CPUStartupBoost}
}

// heartbeat is the Lease that the updater looks at.
func (c *Config) heartbeat(client coordinationclient.LeasesGetter) *lease.Beat {
	holder, err := os.Hostname()
	if err != nil {
		holder = "admission-controller"
	}
	return &lease.Beat{Client: client, Namespace: lease.Namespace(c.LeaseNamespace), Name: c.LeaseName, Holder: holder, Interval: c.LeaseInterval}
}

// way is how the API server reaches the webhook.
func (c *Config) way(holder *certs.Holder) server.ServiceProbe {
	w := server.ServiceProbe{Foreign: !c.Register, Service: c.Service, Host: c.host(), Resolve: net.DefaultResolver.LookupHost, Trusted: holder.Trusted}
	if c.ByURL {
		w.URL = c.url()
	}
	return w
}
