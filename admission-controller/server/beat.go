package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
)

// Beater renews the heartbeat Lease while the webhook answers probes. The updater evicts pods only
// while it is fresh. Probes use the API server's route to the webhook if known, else the own port.
// An answered probe is valid for two heartbeats.
type Beater struct {
	Lease   *lease.Heartbeat
	Server  *Server      // for probes of the own port
	Service ServiceProbe // finds the API server's route
	Health  *Health      // updated by probes of the own port
	// Keeper reports why the API server may not call the webhook. An error only stops the
	// heartbeat: an earlier registration may still work.
	Keeper *certs.Keeper

	loggedNoRoute bool      // the missing route was logged
	selfProber    Prober    // of the own port
	serviceProber Prober    // of the API server's route
	lastSelfProbe time.Time // last successful probe of the own port
	probeValid    bool      // the last probe is valid for one more heartbeat
}

// selfProbeInterval applies to the own port while probes use the API server's route. After a
// failure the own port is probed with each heartbeat.
const selfProbeInterval = 2 * time.Minute

const expireTimeout = 3 * time.Second

// Run renews the Lease until ctx ends, and then makes it stale, so that evictions stop at once.
func (b *Beater) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	start, renewed := time.Now(), false
	report := func(err error) {
		switch {
		case err == nil:
			renewed = true
		case ctx.Err() != nil:
		case !renewed && time.Since(start) < StartGrace: // the Service sends nothing before readiness
			log.V(1).Info("No heartbeat yet", "reason", err)
		default:
			log.Error(err, "No heartbeat: the updater will not evict pods")
		}
	}
	// The certificate keeper starts at the same time with the same interval: waking an idle program
	// costs more than the work itself.
	_ = wait.PollUntilContextCancel(ctx, b.Lease.Interval, true, func(ctx context.Context) (bool, error) {
		report(b.once(ctx))
		return false, nil
	})
	if !renewed {
		return nil
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), expireTimeout)
	defer cancel()
	return b.Lease.Expire(ending)
}

func (b *Beater) once(ctx context.Context) error {
	if b.probeValid = !b.probeValid; b.probeValid {
		if err := b.probe(ctx); err != nil {
			b.probeValid = false
			return err
		}
	}
	if err := b.Keeper.Registered(); err != nil {
		return err
	}
	return b.Lease.Write(ctx, time.Now())
}

func (b *Beater) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.Lease.Interval)
	defer cancel()
	b.selfProber.Environment, b.serviceProber.Environment = b.Service.Environment, b.Service.Environment
	trusted := b.Keeper.Holder.Trusted()
	service, known := b.Service.Target(ctx, trusted)
	if now := time.Now(); !known || !now.Before(b.lastSelfProbe.Add(selfProbeInterval)) {
		own, err := b.Server.SelfProbe(b.Service.Host, trusted)
		if err == nil {
			err = b.selfProber.Probe(ctx, own, now)
		}
		if err != nil {
			b.lastSelfProbe = time.Time{}
			return err
		}
		b.lastSelfProbe = now
		b.Health.Alive()
	}
	if known {
		return b.serviceProber.Probe(ctx, service, time.Now())
	}
	if !b.loggedNoRoute {
		klog.FromContext(ctx).Info("Failed to resolve the API server's route to the webhook, probing only the own port before each heartbeat", "host", service.Host)
	}
	b.loggedNoRoute = true
	return nil
}

// ProbeTarget is a route to a webhook.
type ProbeTarget struct {
	Address string // to connect to, host:port
	Host    string // name in the certificate
	CAs     []byte // PEM, empty if managed elsewhere: accept any certificate
}

// SelfProbe returns the route to this server over the loopback device.
func (s *Server) SelfProbe(host string, cas []byte) (ProbeTarget, error) {
	_, port, err := net.SplitHostPort(s.listener.Addr().String())
	return ProbeTarget{Address: net.JoinHostPort("127.0.0.1", port), Host: host, CAs: cas}, err
}

// reconnectInterval is how long probes reuse a connection. A reused connection does not prove that
// new ones work, and the API server opens a new one if it made no call for 90 s.
const reconnectInterval = 5 * time.Minute

// Prober sends probes to webhooks. A new connection costs ten times as much as a request, so it
// reuses its connection, as the API server does. It is used by one goroutine.
type Prober struct {
	Environment process.Environment

	transport *http.Transport // nil: no connection
	route     ProbeTarget     // of transport
	since     time.Time
}

// Probe returns an error unless the webhook answers. It connects as the API server does: for the
// given name, trusting only the CAs. It reconnects after a changed route or failure.
func (p *Prober) Probe(ctx context.Context, to ProbeTarget, now time.Time) error {
	same := p.route.Address == to.Address && p.route.Host == to.Host && bytes.Equal(p.route.CAs, to.CAs)
	if !same || !now.Before(p.since.Add(reconnectInterval)) {
		p.close()
	}
	if p.transport == nil {
		p.transport, p.route, p.since = p.connect(to), to, now
	}
	err := to.probe(ctx, p.transport)
	if err != nil {
		p.close()
	}
	return err
}

func (p *Prober) close() {
	if p.transport != nil {
		p.transport.CloseIdleConnections()
		p.transport = nil
	}
}

func (p *Prober) connect(r ProbeTarget) *http.Transport {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.CAs)
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: r.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: len(r.CAs) == 0},
		MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return p.Environment.Dial(ctx, network, r.Address)
		},
	}
}

func (r ProbeTarget) probe(ctx context.Context, transport *http.Transport) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(r.Host, "443")+ProbePath, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("probe own webhook at %s: %w", r.Address, err)
	}
	// Drain the body, so that the connection can be reused.
	_, _ = io.CopyN(io.Discard, response.Body, maxProbeResponse)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("probe own webhook at %s: unexpected status %s", r.Address, response.Status)
	}
	return nil
}

// maxProbeResponse exceeds the length of a valid probe response in bytes.
const maxProbeResponse = 1 << 10

// ServiceProbe finds the API server's route to the webhook.
type ServiceProbe struct {
	Foreign     bool   // another program registers the webhook
	URL         string // registered URL, empty: through the Service
	Service     string // its name, in the namespace of the program
	Host        string // name in the certificate, the DNS name of a Service
	Environment process.Environment
}

// Target returns the route through the Service or by URL, trusting the CAs (PEM). It is false if
// another program registers the webhook, or without cluster DNS, as on the host network.
func (w ServiceProbe) Target(ctx context.Context, trusted []byte) (ProbeTarget, bool) {
	route := ProbeTarget{Host: w.Host, CAs: trusted}
	if w.Foreign {
		return route, false
	}
	if w.URL != "" {
		if target, err := url.Parse(w.URL); err == nil {
			port := target.Port()
			if port == "" {
				port = servicePort
			}
			route.Address = net.JoinHostPort(target.Hostname(), port)
			return route, true
		}
	}
	address := os.Getenv(strings.ToUpper(strings.ReplaceAll(w.Service, "-", "_")) + "_SERVICE_HOST")
	if found, err := w.Environment.LookupHost(ctx, route.Host); err == nil && len(found) > 0 {
		address = found[0]
	}
	route.Address = net.JoinHostPort(address, servicePort)
	return route, address != ""
}

const servicePort = "443"
